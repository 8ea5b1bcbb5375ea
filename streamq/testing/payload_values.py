"""Types of payload columns, and values of them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.errors import PlanError
from streamq.runtime.arrow.arrow_types import BITS
from streamq.testing.arrival import EPOCH
from streamq.testing.intent import Draw, Intent
from streamq.testing.table import fields_of


def _types(names: Iterable[str]) -> Mapping[str, t.DataType]:
    return {name: fields_of(f"k {name}")[0].type for name in names}


NUMBERS = _types([
    "int", "double", "bigint", "float", "smallint", "tinyint",
    "decimal(5,2)", "decimal(38,0)", "decimal(38,18)", "decimal(18,18)",
])  # fmt: skip
"""Numeric types, by name."""

OTHERS = _types(["string", "boolean", "binary", "date", "timestamp", "timestamp_ntz", "interval day to second"])
"""Other types without parts, by name."""

NESTED = _types([
    "array<double>", "struct<x:double,y:string>", "map<string,double>", "array<string>", "array<timestamp>",
    "array<array<int>>", "array<struct<x:int,y:float>>", "map<int,array<double>>", "struct<x:date,y:struct<z:double>>",
    "array<decimal(38,18)>", "struct<x:map<string,int>,y:array<boolean>>", "array<binary>",
])  # fmt: skip
"""Some nested types, by name: arrays, structs and maps, also within each other."""


@st.composite
def key_types(draw: Draw) -> tuple[t.DataType, ...]:
    """Draw three types for a column of keys, to be tried in turn: any type, one without parts, a plain one."""
    plain = draw(st.sampled_from([OTHERS["string"], NUMBERS["int"]]))
    # doubles are drawn often: they have the most values that are equal but look different
    often = [NUMBERS["double"]] * 12 + [OTHERS["timestamp"]] * 2
    scalar = draw(st.sampled_from([plain] * 20 + often + [*OTHERS.values(), *NUMBERS.values()]))
    return draw(st.sampled_from([scalar] * 60 + list(NESTED.values()))), scalar, plain


@st.composite
def value_types(draw: Draw) -> tuple[t.DataType, ...]:
    """Draw three types for a column of values, to be tried in turn: any type, a number, a plain number."""
    plain = draw(st.sampled_from([NUMBERS["int"], NUMBERS["double"]]))
    number = draw(st.sampled_from([plain] * 15 + list(NUMBERS.values())))
    return draw(st.sampled_from([number] * 60 + [*OTHERS.values(), *NESTED.values()])), number, plain


IDS = {name: kind for name, kind in {**NUMBERS, **OTHERS}.items() if name not in ("boolean", "decimal(18,18)")}
"""The types, by name, with enough values for a column of ids."""


def is_exact(kind: t.DataType) -> bool:
    """True if sums of values of a type are exact."""
    return type(kind) in BITS or isinstance(kind, t.DecimalType)


FAR = 9_000_000_000_000_000_000
"""Microseconds from 1970 to an instant in the year 287,000, far beyond the range of Python's datetime."""
YEAR_10000 = 253_402_300_800_000_000
"""Microseconds from 1970 to the first instant beyond the range of Python's datetime."""
MOST_DIGITS = 38
"""The greatest number of digits of a decimal; Python's default context rounds to fewer."""
LONG = 300
"""The length of a long text."""


def numbered_value(kind: t.DataType, n: int) -> Any:
    """Return the n-th id of a type, from 0; ids are all different, one is NULL (n = 4), some are edge cases of the type.

    For a type without a rule of its own it is the number itself.
    """
    if n == 4:
        return None
    strange = [v for v in odd(kind, Intent()) if v not in (None, 0)]
    if n % 3 == 1 and n // 3 < len(strange):
        return strange[n // 3]
    match kind:
        case t.FloatType() | t.DoubleType():
            return float("nan") if n == 2 else float(n)
        case t.DecimalType():
            return Decimal(n)
        case t.StringType():
            return f"e{n}"
        case t.BinaryType():
            return f"e{n}".encode()
        case t.DateType():
            return EPOCH.date() + dt.timedelta(days=n)
        case t.TimestampType():
            return EPOCH + dt.timedelta(microseconds=n)
        case t.TimestampNTZType():
            return EPOCH.replace(tzinfo=None) + dt.timedelta(microseconds=n)
        case t.DayTimeIntervalType():
            return dt.timedelta(microseconds=n)
    return n


def growing_value(kind: t.DataType, n: int) -> Any:
    """Return a value of a type that is greater for a greater ``n``, from 0; NULL for n = 0, and for types without such values."""
    if n == 0:
        return None
    match kind:
        case t.StringType():
            return f"{n:06}"
        case t.IntegerType() | t.LongType() | t.FloatType() | t.DoubleType() | t.DateType():
            return numbered_value(kind, 6 * n)
        case t.TimestampType() | t.TimestampNTZType():
            return numbered_value(kind, 6 * n)
    return None


def grows(kind: t.DataType) -> bool:
    """True if :func:`growing_value` tells the values of a type apart."""
    return growing_value(kind, 1) is not None


def beside(constant: Any, kind: t.DataType) -> list[Any]:
    """Return a constant as a value of a type, rounded to the scale of decimals, and for numbers a value on either side of it.

    The list is empty for a constant of another type, and for binaries and durations.
    """
    match kind, constant:
        case _, bool():
            return []
        case (t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType(), int()):
            return [constant, constant + 1, constant - 1]
        case (t.FloatType() | t.DoubleType(), int() | float() | Decimal()):
            at = float(constant)
            return [at, at + 0.25, at - 0.25] if abs(at) < EXACT else [at]
        case (t.DecimalType(), Decimal()) if constant.copy_abs() <= _greatest(kind):
            at_scale = constant.quantize(_unit(kind), context=Context(prec=MOST_DIGITS))
            return [at_scale, at_scale + _unit(kind), at_scale - _unit(kind)]
        case t.StringType(), str():
            return [constant]
        case t.TimestampType(), dt.datetime():
            return [constant if constant.tzinfo else constant.replace(tzinfo=dt.UTC)]
        case t.TimestampNTZType(), dt.datetime():
            return [constant.replace(tzinfo=None)]
        case t.DateType(), dt.date() if not isinstance(constant, dt.datetime):
            return [constant]
    return []


EXACT = 2.0**40
"""Floats below it have a quarter beside them, of which sums are exact."""


def pool(kind: t.DataType, intent: Intent, compared: Sequence[Any] = ()) -> list[Any]:
    """Return the plain values of a type that an intent allows, none of them NULL, with those of its type in ``compared``.

    Parts of nested values may be NULL. ``compared`` are values that a query compares with, which are there as :func:`beside`.
    Finite floats are small multiples of a quarter, so that their sums are exact in any order; NaN and infinities are added
    unless the intent forbids them. Raises PlanError for a type without values.
    """
    near = [value for constant in compared for value in beside(constant, kind)]
    match kind:
        case t.BooleanType():
            values: list[Any] = [True, False]
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            reach = 2 ** (BITS[type(kind)] - 1)
            values = [0, 1, 2, 3, 7, -4]
            values = [v for v in [*values, *near] if -reach <= v < reach]
        case t.FloatType() | t.DoubleType():
            values = [0.0, 1.0, 1.5, -2.25, 7.0, -0.0]
            values += near
            values += [float("nan")] * (intent.nan is not False)
            values += [float("inf"), float("-inf")] * (intent.infinities is not False)
        case t.DecimalType():
            unit, most = _unit(kind), _greatest(kind)
            values = [v for v in (unit * 0, unit, unit * 100, unit * -250, unit * 333) if abs(v) <= most]
            values += [v for v in near if abs(v) <= most]
        case t.StringType():
            values = ["a", "b", "c", ""]
            values += near
            values += ["ß", "日本", "e\u0301"] * (intent.unicode is not False)
        case t.BinaryType():
            values = [b"", b"a", b"\x00\xff"]
        case t.DateType():
            values = [dt.date(1970, 1, 1), dt.date(1970, 1, 2), dt.date(1969, 12, 31)]
            values += near
        case t.TimestampType():
            values = [EPOCH, EPOCH + dt.timedelta(seconds=1), EPOCH - dt.timedelta(microseconds=1)]
            values += near
        case t.TimestampNTZType():
            values = [EPOCH.replace(tzinfo=None), EPOCH.replace(tzinfo=None) + dt.timedelta(seconds=1)]
            values += near
        case t.DayTimeIntervalType():
            values = [dt.timedelta(0), dt.timedelta(seconds=1), dt.timedelta(days=1)]
        case t.ArrayType():
            inner, null = _inner(kind.elementType, intent, compared)
            values = [inner[:1], [], [*inner[:1], *null], inner[:3], inner[-1:], null, inner[1:2]]
        case t.MapType():
            keys, (inner, null) = pool(kind.keyType, intent, compared), _inner(kind.valueType, intent, compared)
            values = [[(keys[0], inner[0])], [], list(zip(keys[:2], [inner[-1], *null, inner[0]], strict=False))]
            values += [[(keys[0], v)] for v in [*null, inner[-1]]]
        case t.StructType():
            parts = [(f.name, *_inner(f.dataType, intent, compared)) for f in kind.fields]
            values = [{name: inner[i % len(inner)] for name, inner, _ in parts} for i in range(3)]
            values += [{name: [*null, inner[0]][i % 2] for i, (name, inner, null) in enumerate(parts)}]
            values += [{name: [inner[0], *null][-1] for name, inner, null in parts}]
            values += [{name: inner[-1] for name, inner, _ in parts}]
        case _:
            what = f"no values of type {kind.simpleString()}"
            raise PlanError("Intent", what, "", "Give them: Intent(payload={'column': [...]}).")
    return distinct(values)


def _inner(kind: t.DataType, intent: Intent, compared: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the values of an element or field, and [None] if the intent allows NULL, else []."""
    return pool(kind, intent, compared), [] if intent.nulls is False else [None]


def distinct(values: Iterable[Any]) -> list[Any]:
    """Return the values in order, without repetitions."""
    return list({repr(v): v for v in values}.values())


def odd(kind: t.DataType, intent: Intent) -> list[Any]:
    """Return the edge cases of a type: its least and greatest values, and values easily mistaken for others; maybe none."""
    match kind:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            reach = 2 ** (BITS[type(kind)] - 1)
            return [-reach, reach - 1]
        case t.DoubleType():
            return [5e-324, -5e-324, 1.7976931348623157e308, -1.7976931348623157e308, 2.0**53 + 1]
        case t.FloatType():
            return [1.401298464324817e-45, -1.401298464324817e-45, 3.4028234663852886e38, -3.4028234663852886e38]
        case t.DecimalType():
            return [_greatest(kind), _greatest(kind).copy_negate()]
        case t.StringType():
            texts = ["a ", " a", "A", "a\x00", "'", '"', "\\", "a\nb", "x" * LONG]
            return texts + ["é", "\uffff", "😀", "a\u0301\u0302"] * (intent.unicode is not False)
        case t.BinaryType():
            return [b"\x00", b"\xff", b"a\x00", b"\x80" * LONG]
        case t.DateType():
            return [dt.date.min, dt.date.max]
        case t.TimestampType():
            return [FAR, YEAR_10000, *(end.replace(tzinfo=dt.UTC) for end in (dt.datetime.max, dt.datetime.min)), -FAR]
        case t.TimestampNTZType():
            return [FAR, dt.datetime.max, dt.datetime.min, -FAR]
        case t.DayTimeIntervalType():
            return [dt.timedelta(days=106_751_991), dt.timedelta(days=-106_751_991)]
        case t.ArrayType():
            inner = odd(kind.elementType, intent)
            return [[v] for v in inner[:4]] + [[*inner[:2], *pool(kind.elementType, intent)[:1]]] * bool(inner)
        case t.MapType():
            keys, inner = odd(kind.keyType, intent), odd(kind.valueType, intent)
            plain = pool(kind.keyType, intent)[0], pool(kind.valueType, intent)[0]
            return [[(key, plain[1])] for key in keys[:3]] + [[(plain[0], v)] for v in inner[:3]]
        case t.StructType():
            parts = [(f.name, odd(f.dataType, intent) or pool(f.dataType, intent)) for f in kind.fields]
            return [{name: inner[i % len(inner)] for name, inner in parts} for i in range(3)]
    return []


def _unit(kind: t.DecimalType) -> Decimal:
    return Decimal(1).scaleb(-kind.scale)


def _greatest(kind: t.DecimalType) -> Decimal:
    return Decimal((0, (9,) * kind.precision, -kind.scale))


def part(value: int | Decimal, count: int) -> int | Decimal:
    """Return one of ``count`` equal parts of a whole number or of a decimal, as a whole number."""
    return Context(prec=MOST_DIGITS).divide_int(value, Decimal(count)) if isinstance(value, Decimal) else value // count


def twin(value: Any) -> Any:
    """Return a value that Spark regards as equal but that has other bits: zeros and NaN change sign, maps their order.

    Lists and structs change in their parts, maps in their values, not in their keys.

    A value that has no other form is returned as it is.
    """
    match value:
        case float() if value == 0 or math.isnan(value):
            return -value
        case list():
            parts = [twin(v) for v in value]
            return parts[::-1] if value and isinstance(value[0], tuple) else parts
        case tuple():
            return value[0], twin(value[1])
        case dict():
            return {name: twin(v) for name, v in value.items()}
    return value


def in_one_form(value: Any) -> Any:
    """Return the value without the bits in which equal values differ: 0.0 for any zero, one NaN, maps in the order of their keys.

    Lists and structs change in their parts, maps in their values.
    """
    match value:
        case float():
            return math.nan if math.isnan(value) else value + 0.0
        case list():
            parts = [in_one_form(v) for v in value]
            return sorted(parts, key=lambda entry: repr(entry[0])) if value and isinstance(value[0], tuple) else parts
        case tuple():
            return value[0], in_one_form(value[1])
        case dict():
            return {name: in_one_form(v) for name, v in value.items()}
    return value
