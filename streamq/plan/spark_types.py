"""Spark's types: from their names, of constants, of two operands, of sums and means; and the names of Spark's functions.

``pyspark.sql.functions`` holds functions of a row's values, and others: both are told apart here.
"""

from __future__ import annotations

import datetime as dt
import inspect
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.errors import TypeMismatch

_SIMPLE: Mapping[str, DataType] = {
    "boolean": t.BooleanType(), "bool": t.BooleanType(), "byte": t.ByteType(), "tinyint": t.ByteType(), "short": t.ShortType(),
    "smallint": t.ShortType(), "int": t.IntegerType(), "integer": t.IntegerType(), "long": t.LongType(), "bigint": t.LongType(),
    "float": t.FloatType(), "real": t.FloatType(), "double": t.DoubleType(), "string": t.StringType(), "binary": t.BinaryType(),
    "date": t.DateType(), "timestamp": t.TimestampType(), "timestamp_ntz": t.TimestampNTZType(), "decimal": t.DecimalType(10, 0),
    "interval day to second": t.DayTimeIntervalType(),
}  # fmt: skip


_OF_OTHERS: Mapping[str, str] = {
    "float64": "double", "float32": "float", "int64": "bigint", "int32": "int", "int16": "smallint", "int8": "tinyint",
    "uint32": "bigint", "uint64": "decimal(20,0)", "str": "string", "object": "string", "text": "string", "varchar": "string",
    "datetime": "timestamp", "datetime64": "timestamp", "datetime64[ns]": "timestamp", "datetime64[us]": "timestamp",
    "bytes": "binary", "number": "double", "list": "array<double>", "dict": "map<string, double>", "bool_": "boolean",
}  # fmt: skip
"""The names of types in NumPy, pandas and Python, each with Spark's name."""


def parse_type(to: Any, verb: str = "cast") -> DataType:
    """Return a DataType from its SQL name, without Spark; a DataType is returned unchanged.

    Raises TypeMismatch, at ``verb``, for a name that does not exist, with a hint if it is a type of Python, NumPy or pandas.
    """
    if isinstance(to, DataType):
        return to
    if not isinstance(to, str):
        instead = {int: "'bigint'", float: "'double'", str: "'string'", bool: "'boolean'", Decimal: "'decimal(38,18)'"}
        instead |= {dt.date: "'date'", dt.datetime: "'timestamp'", bytes: "'binary'"}
        hint = (
            f"Write {instead[to]}."
            if isinstance(to, type) and to in instead
            else "Give the name of a type, as 'double'."
        )
        raise TypeMismatch(verb, "not a type of Spark's", f"found {getattr(to, '__name__', to)!r}", hint)
    text = to.strip()
    if text.lower() in _SIMPLE:
        return _SIMPLE[text.lower()]
    if match := re.fullmatch(r"(?:decimal|numeric)\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", text, re.IGNORECASE):
        return t.DecimalType(int(match.group(1)), int(match.group(2) or 0))
    if match := re.fullmatch(r"(array|map|struct)\s*<(.*)>", text, re.IGNORECASE | re.DOTALL):
        parts = _parts(match.group(2))
        match match.group(1).lower(), parts:
            case "array", [element]:
                return t.ArrayType(parse_type(element, verb))
            case "map", [key, value]:
                return t.MapType(parse_type(key, verb), parse_type(value, verb))
            case "struct", [*fields] if all(map(_FIELD.fullmatch, fields)):
                return t.StructType(_fields(fields, verb))
    hint = f"Give a pyspark DataType or one of {', '.join(_SIMPLE)}, decimal(p,s), array<t>, map<t, t>, struct<name: t, ...>."
    if text.lower() in _OF_OTHERS:
        hint = f"Write {_OF_OTHERS[text.lower()]!r}."
    raise TypeMismatch(verb, "no such type", f"found {to!r}", hint)


def parse_fields(columns: Any, verb: str) -> tuple[t.StructField, ...]:
    """Return columns from SQL text, ``"k string, v double"``, or from a StructType; raise TypeMismatch for anything else."""
    if isinstance(columns, t.StructType):
        return tuple(columns.fields)
    if callable(columns):
        hint = f'Write @sq.{verb}("pattern string, strength double") above it: the columns of its rows in SQL.'
        raise TypeMismatch(verb, "not the columns of rows", f"found {columns!r}", hint)
    parts = _parts(columns) if isinstance(columns, str) else []
    if not parts or not all(map(_FIELD.fullmatch, parts)):
        hint = 'Write names and types: "pattern string, strength double".'
        raise TypeMismatch(verb, "not the columns of rows", f"found {columns!r}", hint)
    return tuple(_fields(parts, verb))


_FIELD = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+))(?:\s*:\s*|\s+)(.+?)\s*", re.DOTALL)
"""The text of a field of a struct: its name, which may be in backticks, and its type."""


def _fields(texts: Iterable[str], verb: str) -> list[t.StructField]:
    """Return the fields whose texts these are; each of them fits _FIELD."""
    matches = (_FIELD.fullmatch(text) for text in texts)
    parts = (match.groups() for match in matches if match is not None)
    return [
        t.StructField(quoted.replace("``", "`") if quoted else plain, parse_type(kind, verb))
        for quoted, plain, kind in parts
    ]


def _parts(text: str) -> list[str]:
    """Return the parts of a text between commas outside of brackets and backticks."""
    parts, depth, is_quoted = [""], 0, False
    for letter in text:
        is_quoted ^= letter == "`"
        depth += 0 if is_quoted else {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0 and not is_quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def literal_type(value: Any) -> DataType:
    """Return Spark's type of a Python value; raise TypeMismatch without one.

    An integer is an int if it fits, else a bigint; a decimal has the least precision and scale that fit.
    """
    match value:
        case None:
            return t.NullType()
        case bool():
            return t.BooleanType()
        case int():
            if not -(2**63) <= value < 2**63:
                raise TypeMismatch("literal", "an integer beyond 64 bits", f"found {value}")
            return t.IntegerType() if -(2**31) <= value < 2**31 else t.LongType()
        case float():
            return t.DoubleType()
        case str():
            return t.StringType()
        case bytes():
            return t.BinaryType()
        case Decimal():
            _, digits, exponent = value.as_tuple()
            if not isinstance(exponent, int):
                raise TypeMismatch("literal", "a decimal that is no number", f"found {value}")
            scale = max(0, -exponent)
            return t.DecimalType(max(len(digits) + max(0, exponent), scale, 1), scale)
        case dt.datetime():
            return t.TimestampType()
        case dt.date():
            return t.DateType()
        case dt.timedelta():
            return t.DayTimeIntervalType()
    raise TypeMismatch("literal", "a value of no Spark type", f"found {value!r}")


INTEGRAL = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
FLOATING = (t.FloatType, t.DoubleType)
_WIDTH: list[type[DataType]] = [*INTEGRAL, *FLOATING]


def widens_integer(kind: DataType, to: DataType) -> bool:
    """Return True if a cast turns an integer into one as wide or wider, or into a double, which never fails."""
    if not isinstance(kind, INTEGRAL):
        return False
    return isinstance(to, t.DoubleType) or (isinstance(to, INTEGRAL) and wider(kind, to) == to)


def is_numeric(kind: DataType) -> bool:
    """True if arithmetic is defined on the type."""
    return isinstance(kind, t.NumericType)


def is_orderable(kind: DataType) -> bool:
    """True if Spark orders values of the type."""
    match kind:
        case t.StructType(fields=fields):
            return all(is_orderable(field.dataType) for field in fields)
        case t.ArrayType(elementType=element):
            return is_orderable(element)
    return not isinstance(kind, t.MapType | t.VariantType | t.CalendarIntervalType)


def wider(a: DataType, b: DataType) -> DataType | None:
    """Return the common type of two operands, which NULL does not change; None where Spark must be asked."""
    if a == b:
        return a
    if isinstance(a, t.NullType):
        return b
    if isinstance(b, t.NullType):
        return a
    if type(a) in _WIDTH and type(b) in _WIDTH:
        wide = max(a, b, key=lambda k: _WIDTH.index(type(k)))
        # a float does not hold every integer, so Spark's ANSI rules go to double at once
        return t.DoubleType() if isinstance(wide, t.FloatType) else wide
    if {type(a), type(b)} == {t.DateType, t.TimestampType}:
        return t.TimestampType()
    return None


def comparable(a: DataType, b: DataType) -> bool:
    """True if values of two types can be compared without a cast.

    Numbers compare with numbers, dates and times with each other, NULL with anything, and types of one class, as two arrays.
    """
    if (
        isinstance(a, t.NullType)
        or isinstance(b, t.NullType)
        or type(a) is type(b)
        or (is_numeric(a) and is_numeric(b))
    ):
        return True
    times = (t.TimestampType, t.TimestampNTZType, t.DateType)
    return isinstance(a, times) and isinstance(b, times)


def as_decimal(kind: DataType, constant: Any = ...) -> t.DecimalType | None:
    """Return the decimal type of an operand beside a decimal; None if it is neither a decimal nor an integer.

    An integer constant has as many digits as are written, a column as many as its type can have.
    """
    if isinstance(kind, t.DecimalType):
        return kind
    if isinstance(constant, int) and not isinstance(constant, bool):
        return t.DecimalType(len(str(abs(constant))), 0)
    widths: dict[type[DataType], int] = {t.ByteType: 3, t.ShortType: 5, t.IntegerType: 10, t.LongType: 20}
    digits = widths.get(type(kind))
    return t.DecimalType(digits, 0) if digits else None


def quotient_type(left: t.DecimalType, right: t.DecimalType) -> t.DecimalType:
    """Return Spark's type of a quotient of decimals: beyond 38 digits the fraction is shortened, to six digits at least."""
    whole, scale = left.precision - left.scale + right.scale, max(6, left.scale + right.precision + 1)
    if whole + scale <= 38:
        return t.DecimalType(whole + scale, scale)
    return t.DecimalType(38, max(38 - whole, min(scale, 6)))


def sum_type(kind: DataType) -> DataType:
    """Return Spark's type of SUM over a type: a wider decimal, bigint for integers, else double."""
    if isinstance(kind, t.DecimalType):
        return t.DecimalType(min(38, kind.precision + 10), kind.scale)
    return t.LongType() if isinstance(kind, INTEGRAL) else t.DoubleType()


def avg_type(kind: DataType) -> DataType:
    """Return Spark's type of AVG over a type: a wider decimal with four more digits of fraction, else double."""
    if isinstance(kind, t.DecimalType):
        # DecimalType.bounded: both are capped at 38 on their own
        return t.DecimalType(min(38, kind.precision + 4), min(38, kind.scale + 4))
    return t.DoubleType()


OURS = {
    "avg": "avg", "mean": "avg", "count": "count", "max": "max", "min": "min", "sum": "sum", "var_pop": "var_pop",
    "stddev_pop": "stddev_pop", "std": "stddev", "stddev": "stddev", "stddev_samp": "stddev", "variance": "var",
    "var_samp": "var", "array_agg": "collect", "collect_list": "collect", "corr": "corr", "count_distinct": "count_distinct",
    "covar_pop": "covar_pop", "covar_samp": "covar", "first": "first", "first_value": "first", "last": "last",
    "last_value": "last", "median": "median", "percentile": "percentile",
}  # fmt: skip
"""Spark's aggregates that streamq has too, with streamq's names."""

EXACTLY = {
    **dict.fromkeys(("approx_percentile", "percentile_approx"), "percentile"),
    **{f"kll_sketch_agg_{kind}": "percentile" for kind in ("bigint", "double", "float")},
    **dict.fromkeys(("approx_count_distinct", "hll_sketch_agg", "theta_sketch_agg"), "count_distinct"),
}  # fmt: skip
"""Spark's aggregates that estimate a result, or keep a sketch of it, with streamq's that compute it."""

AGGREGATES = frozenset(OURS) | frozenset({
    "any_value", "approx_count_distinct", "approx_percentile", "bit_and", "bit_or", "bit_xor",
    "bitmap_and_agg", "bitmap_construct_agg", "bitmap_or_agg", "bool_and", "bool_or", "collect_set",
    "collect_union", "count_if", "count_min_sketch", "every", "grouping", "grouping_id", "histogram_numeric",
    "hll_sketch_agg", "hll_union_agg",
    "kll_merge_agg_bigint", "kll_merge_agg_double", "kll_merge_agg_float", "kll_sketch_agg_bigint",
    "kll_sketch_agg_double", "kll_sketch_agg_float", "kurtosis", "listagg",
    "listagg_distinct", "max_by", "min_by", "mode", "percentile_approx", "product",
    "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy",
    "regr_syy", "schema_of_variant_agg", "skewness", "some", "string_agg", "string_agg_distinct", "sum_distinct",
    "theta_intersection_agg", "theta_sketch_agg", "theta_union_agg", "try_avg", "try_sum",
    "tuple_intersection_agg_double", "tuple_intersection_agg_integer", "tuple_sketch_agg_double",
    "tuple_sketch_agg_integer", "tuple_union_agg_double", "tuple_union_agg_integer", "vector_avg", "vector_sum",
})  # fmt: skip
WINDOWED = frozenset({
    "counter_diff", "cume_dist", "dense_rank", "lag", "lead", "nth_value", "ntile", "percent_rank", "rank",
    "row_number",
})  # fmt: skip
GENERATORS = frozenset({
    "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode", "posexplode_outer", "stack",
})  # fmt: skip
ELSEWHERE = {
    **dict.fromkeys(("col", "column"), "Use sq.col, or s[name]."),
    "lit": "Use sq.lit.",
    "when": "Use sq.when.",
    **dict.fromkeys(
        ("window", "session_window", "window_time"), "Use the windows of a stream, as s.tumbling_window(...)."
    ),
    **dict.fromkeys(
        ("expr", "call_function", "call_udf", "udtf", "arrow_udtf"), "Make the Column with PySpark and pass that."
    ),
    **dict.fromkeys(("udf", "pandas_udf", "arrow_udf"), 'Write @sq.udf("double") above the function.'),
    **dict.fromkeys(
        ("asc", "asc_nulls_first", "asc_nulls_last", "desc", "desc_nulls_first", "desc_nulls_last"),
        "Streams have no order but time.",
    ),
    **dict.fromkeys(("years", "months", "days", "hours", "bucket"), "It partitions tables and computes no value."),
    "broadcast": "It takes a DataFrame.",
}
"""The names in ``pyspark.sql.functions`` that are not functions of a row's values."""


@cache
def function_names() -> tuple[str, ...]:
    """Return the names of the functions of a row's values."""
    refused = AGGREGATES | WINDOWED | GENERATORS | ELSEWHERE.keys()
    return tuple(sorted(n for n in F.__all__ if inspect.isfunction(getattr(F, n)) and n not in refused))
