"""Spark's types in Arrow, and conversions between Arrow and NumPy, for in-process expressions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.errors import NeedsSpark
from streamq.plan.function import Fault

if TYPE_CHECKING:
    from streamq.plan.function import Mask
    from streamq.plan.schema import Schema

_ARROW: dict[type[DataType], pa.DataType] = {
    t.NullType: pa.null(), t.BooleanType: pa.bool_(), t.ByteType: pa.int8(), t.ShortType: pa.int16(),
    t.IntegerType: pa.int32(), t.LongType: pa.int64(), t.FloatType: pa.float32(), t.DoubleType: pa.float64(),
    t.StringType: pa.string(), t.BinaryType: pa.binary(),
    t.DateType: pa.date32(), t.TimestampType: pa.timestamp("us", tz="UTC"), t.TimestampNTZType: pa.timestamp("us"),
    t.DayTimeIntervalType: pa.duration("us"),
}  # fmt: skip

BITS: dict[type[DataType], int] = {t.ByteType: 8, t.ShortType: 16, t.IntegerType: 32, t.LongType: 64}

DIVIDED = "[DIVIDE_BY_ZERO] division by zero"
REMAINDER = "[REMAINDER_BY_ZERO] remainder of a division by zero"
OVERFLOW = "[ARITHMETIC_OVERFLOW] the result does not fit {to}"
CAST_OVERFLOW = "[CAST_OVERFLOW] a value does not fit {to}"
INVALID = "[CAST_INVALID_INPUT] a value is no {to}"
OUT_OF_RANGE = "[NUMERIC_VALUE_OUT_OF_RANGE] a value does not fit {to}"


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type; raise NeedsSpark if there is none."""
    match kind:
        case t.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case t.ArrayType():
            return pa.list_(arrow_type(kind.elementType))
        case t.MapType():
            return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
        case t.StructType():
            return pa.struct([pa.field(f.name, arrow_type(f.dataType)) for f in kind.fields])
    if type(kind) not in _ARROW or (isinstance(kind, t.StringType) and kind != t.StringType()):
        raise NeedsSpark("arrow", "a type that only Spark has", f"found {kind.simpleString()}", "Cast it.")
    return _ARROW[type(kind)]


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow columns of a payload; raise NeedsSpark for one of a type that only Spark has."""
    return pa.schema([(field.name, arrow_type(field.type)) for field in schema.fields])


Outcome = tuple[pa.Array, Sequence[Fault]]
"""The result of a function, and the rows on which it has none because Spark raises there."""


class RowError(Exception):
    """Raised by the function of a single row: this row is an error in Spark."""


def is_null(array: pa.Array) -> Mask:
    """Mark the NULLs of an array."""
    return array.is_null().to_numpy(zero_copy_only=False)


def is_valid(array: pa.Array) -> Mask:
    """Mark the values of an array that are not NULL."""
    return array.is_valid().to_numpy(zero_copy_only=False)


def is_true(array: pa.Array) -> Mask:
    """Mark the values of a boolean array that are true, neither false nor NULL."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array), dtype=bool)
    return pc.fill_null(array, False).to_numpy(zero_copy_only=False)


def to_numpy(array: pa.Array) -> Any:
    """Return numbers, or the ticks and days of times, as a NumPy array, with zero for NULL."""
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    return (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)


def from_numpy(values: Any, empty: Mask, kind: DataType) -> pa.Array:
    """Return an array of a Spark type from numbers, ticks or days, as :func:`to_numpy` returns them; NULL where ``empty``."""
    to = arrow_type(kind)
    if pa.types.is_temporal(to):
        plain = pa.int32() if pa.types.is_date32(to) else pa.int64()
        return pa.array(values, plain, mask=empty).view(to)
    return pa.array(values, to, mask=empty)


def rowwise(function: Callable[..., Any], kind: DataType, text: str, *arrays: pa.Array) -> Outcome:
    """Apply a function of Python values row by row; NULL if an operand is NULL, a fault where it raises RowError.

    ``kind`` is the type of its results, ``text`` the message of the fault. Return the results, NULL at faults, and a list of at
    most one fault, which marks all such rows.
    """
    out: list[Any] = []
    bad: list[int] = []
    for row in zip(*(a.to_pylist() for a in arrays), strict=True):
        try:
            out.append(None if None in row else function(*row))
        except RowError:
            bad.append(len(out))
            out.append(None)
    faults = []
    if bad:
        rows = np.zeros(len(out), dtype=bool)
        rows[bad] = True
        faults.append(Fault(rows, text))
    return pa.array(out, arrow_type(kind)), faults


def fault_list(rows: Mask, text: str) -> list[Fault]:
    """Return the fault on these rows as a list; an empty one if there are none."""
    return [Fault(rows, text)] if rows.any() else []


def constant_array(value: Any, kind: DataType, rows: int) -> pa.Array:
    """Return an array that has a constant in so many rows; a datetime without a zone is UTC."""
    if value is None:
        return pa.nulls(rows, arrow_type(kind))
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    return pa.repeat(pa.scalar(value, arrow_type(kind)), rows)
