"""The types of expressions and aggregates by Spark's rules, defined a second time; None where the oracle has no rule."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from pyspark.sql import types as t

from streamq.plan.expr import Alias, Call, Case, Cast, Col, Expr, Lifetime, Lit
from streamq.plan.schema import Schema
from streamq.plan.tree import fold
from streamq.testing.oracle.aggregates import sum_type
from streamq.time import TIMESTAMP
from tests.judges.scalars import SAME

Kind = t.DataType | None

BOOLEAN, INT, LONG, DOUBLE, TEXT = t.BooleanType(), t.IntegerType(), t.LongType(), t.DoubleType(), t.StringType()
DATE, INSTANT = t.DateType(), t.TimestampType()

DIGITS: Mapping[type[t.DataType], int] = {t.ByteType: 3, t.ShortType: 5, t.IntegerType: 10, t.LongType: 20}
"""The integral types, from the narrowest, and the number of digits that each has as a decimal."""

RESULTS: dict[t.DataType, str] = {
    BOOLEAN: "== != < <= > >= <=> and or not isin isnull isnotnull isnan startswith endswith contains like rlike regexp "
    "regexp_like equal_null",
    INT: "length char_length octet_length instr datediff year month day dayofmonth hour minute second quarter dayofyear "
    "dayofweek weekday weekofyear unix_date",
    LONG: "unix_micros unix_millis unix_seconds",
    DOUBLE: "sqrt exp ln log log10 log2 pow power rint signum",
    TEXT: "upper lower trim btrim ltrim rtrim replace repeat right concat_ws",
    DATE: "date_add date_sub last_day to_date date_from_unix_date",
    INSTANT: "date_trunc timestamp_micros timestamp_millis timestamp_seconds",
}
"""The functions whose results have one type, whatever their operands."""

OF_ANY: dict[str, t.DataType] = {name: kind for kind, names in RESULTS.items() for name in names.split()}
OF_FIRST = ("negative", "positive", "abs", "nullif", "substring", "left", "lpad", "rpad", "reverse")
OF_COMMON = ("coalesce", "ifnull", "nvl", "greatest", "least")


def type_of(expr: Expr, schema: Schema) -> Kind:
    """Return the type of an expression over events; None if there is no rule."""

    def visit(node: Expr, parts: list[Kind]) -> Kind:
        match node:
            case Col(name=name):
                return next((f.type for f in schema.fields if f.name == name), None)
            case Lit(value=value, type=kind):
                return kind or constant(value)
            case Lifetime(part="duration"):
                return LONG
            case Lifetime():
                return INSTANT if schema.axis == TIMESTAMP else LONG
            case Alias():
                return parts[0]
            case Cast(type=to):
                return to
            case Case():
                return common([*parts[1:-1:2], parts[-1]])
            case Call(function=function):
                return _call(SAME.get(function.identity, function.identity), parts, len(node.args))
        return None

    return fold(expr, visit)


def constant(value: Any) -> Kind:
    """Return the type of a plain value."""
    match value:
        case None:
            return t.NullType()
        case bool():
            return BOOLEAN
        case int():
            return INT if abs(2 * value + 1) < 2**32 else LONG
        case float():
            return DOUBLE
        case str():
            return TEXT
        case Decimal():
            return None
        case dt.datetime():
            return INSTANT
        case dt.date():
            return DATE
    return None


def _call(name: str, kinds: Sequence[Kind], count: int) -> Kind:
    """Return the type of a call of a function over operands of these types; ``count``: of all arguments."""
    if name in OF_ANY:
        return None if name == "to_date" and count > 1 else OF_ANY[name]
    if any(kind is None for kind in kinds) or not kinds:
        return None
    is_decimal = any(isinstance(kind, t.DecimalType) for kind in kinds)
    if name in OF_FIRST:
        return kinds[0]
    if name in OF_COMMON:
        return common(kinds)
    if name == "nvl2":
        return common(kinds[1:])
    if name in ("floor", "ceil", "round"):
        return None if is_decimal else kinds[0] if name == "round" else LONG
    match name, *kinds:
        case "/", t.DecimalType() as dividend, t.DecimalType() as divisor:
            return _quotient(dividend, divisor)
    if name in ("+", "-", "*", "/", "%") and all(isinstance(kind, t.NumericType) for kind in kinds):
        return None if is_decimal else DOUBLE if name == "/" else common(kinds)
    return None


def _quotient(dividend: t.DecimalType, divisor: t.DecimalType) -> Kind:
    """Return the type of a quotient of decimals: six digits behind the point at least; of more than 38 digits some are cut."""
    scale = max(6, dividend.scale + divisor.precision + 1)
    whole = dividend.precision - dividend.scale + divisor.scale
    if whole + scale > 38:
        scale = max(38 - whole, min(scale, 6))
    return t.DecimalType(min(whole + scale, 38), scale)


def common(kinds: Sequence[Kind]) -> Kind:
    """Return the type to which values of all these types are converted; NULL has any."""
    first, *others = kinds
    for other in others:
        first = wider(first, other) if first is not None and other is not None else None
    return first


def wider(one: t.DataType, other: t.DataType) -> Kind:
    """Return the type of two to which both are converted: the wider number, a double for a float beside another type."""
    if isinstance(one, t.NullType) or one == other:
        return other
    if isinstance(other, t.NullType):
        return one
    kinds = {type(one), type(other)}
    if kinds <= DIGITS.keys():
        return max(one, other, key=lambda kind: DIGITS[type(kind)])
    if kinds <= {*DIGITS, t.FloatType, t.DoubleType}:
        return DOUBLE
    return INSTANT if kinds == {t.DateType, t.TimestampType} else None


def mean_type(kind: t.DataType) -> t.DataType:
    """Return the type of a mean: four digits more, behind the point, for a decimal, else a double."""
    if isinstance(kind, t.DecimalType):
        return t.DecimalType(min(kind.precision + 4, 38), min(kind.scale + 4, 38))
    return DOUBLE


OF_AGGREGATES: dict[str, Callable[[t.DataType], t.DataType]] = {
    **dict.fromkeys(("count", "count_distinct"), lambda kind: LONG),
    **dict.fromkeys(("min", "max", "first", "last"), lambda kind: kind),
    **dict.fromkeys(("var", "var_pop", "stddev", "stddev_pop", "covar", "covar_pop", "corr"), lambda kind: DOUBLE),
    **dict.fromkeys(("percentile", "time_weighted_avg"), lambda kind: DOUBLE),
    "sum": sum_type,
    "avg": mean_type,
    "collect": t.ArrayType,
}
"""The types of aggregates by that of their first argument."""


__all__ = ["OF_AGGREGATES", "common", "sum_type", "type_of", "wider"]
