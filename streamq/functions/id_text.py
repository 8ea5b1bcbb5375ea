"""Texts that identify values: within a type, two values have equal texts exactly if they are equal, in every backend.

Floats are written in hexadecimal, because the decimal digits of Spark's casts depend on its Java.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.plan.function import ArrowForm, Function, Operand, Value
from streamq.plan.spark_types import FLOATING
from streamq.runtime.arrow.arrow_casts import can_cast, cast
from streamq.runtime.arrow.values import list_members

if TYPE_CHECKING:
    from pyspark.sql import Column

MISSING = " -"
"""The text of NULL."""


@dataclass(frozen=True, eq=False)
class IdText(Function):
    """A value of type ``kind`` as text: a blank, the length, a colon and the value, `` 3:abc``; `` -`` for NULL.

    Such texts stay unambiguous when they are concatenated: lists and structs are the texts of their parts in a row. NaN equals
    NaN, -0.0 equals 0.0. Maps have no such text.
    """

    kind: DataType
    name = "identifying_text"

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrow", ArrowForm(self._is_computed, self._computed))

    @property
    def identity(self) -> str:
        return f"{super().identity}:{self.kind.json()}"

    def result_type(self, operands: Sequence[Operand]) -> DataType | None:
        return t.StringType()

    def is_total(self, operands: Sequence[Operand], result: DataType | None) -> bool:
        return True

    def on_spark(self, *arguments: Any) -> Column:
        return _part_on_spark(arguments[0], self.kind)

    def _is_computed(self, operands: Sequence[Value]) -> bool:
        return _has_text(self.kind)

    def _computed(self, operands: Sequence[Value], kind: DataType) -> pa.Array:
        return _part(operands[0].array, self.kind)


def _part_on_spark(value: Column, kind: DataType) -> Column:
    """Return values as a Spark Column of texts with their lengths: `` 3:abc``, `` -`` for NULL."""
    from pyspark.sql import functions as F

    text = _text_on_spark(value, kind)
    behind_length = F.concat(F.lit(" "), F.length(text).cast("string"), F.lit(":"), text)
    return F.when(value.isNull(), F.lit(MISSING)).otherwise(behind_length)


def _text_on_spark(value: Column, kind: DataType) -> Column:
    """Return the texts of values, without lengths, as a Spark Column; NULL where a value is NULL.

    Parts of lists and structs have lengths.
    """
    from pyspark.sql import functions as F

    match kind:
        case t.DoubleType() | t.FloatType():
            # 0.0 + -0.0 is 0.0
            return F.format_string("%a", F.lit(0.0) + value.cast("double"))
        case t.BinaryType():
            return F.hex(value)
        case t.ArrayType(elementType=of):
            return F.array_join(F.transform(value, lambda element: _part_on_spark(element, of)), "")
        case t.StructType(fields=fields):
            return F.concat(F.lit(""), *(_part_on_spark(value.getField(f.name), f.dataType) for f in fields))
    return value.cast("string")


def _has_text(kind: DataType) -> bool:
    """True if values of the type can be written without Spark."""
    match kind:
        case t.ArrayType(elementType=of):
            return _has_text(of)
        case t.StructType(fields=fields):
            return all(_has_text(f.dataType) for f in fields)
    return isinstance(kind, (t.BinaryType, t.StringType, t.NullType, *FLOATING)) or can_cast(kind, t.StringType())


def _part(array: pa.Array, kind: DataType) -> pa.Array:
    """Return values as texts with their lengths: `` 3:abc``, `` -`` for NULL."""
    text = _text(array, kind)
    length = pc.utf8_length(text).cast(pa.string())
    return pc.coalesce(pc.binary_join_element_wise(" ", length, ":", text, ""), pa.scalar(MISSING))


def _text(array: pa.Array, kind: DataType) -> pa.Array:
    """Return the texts of values, without lengths; NULL where a value is NULL. Parts of lists and structs have lengths."""
    match kind:
        case t.DoubleType() | t.FloatType():
            return pa.array([None if x is None else _hexadecimal(x) for x in array.to_pylist()], pa.string())
        case t.BinaryType():
            return pa.array([None if x is None else x.hex().upper() for x in array.to_pylist()], pa.string())
        case t.ArrayType(elementType=of):
            offsets, elements = list_members(array)
            lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _part(elements, of))
            return pc.if_else(array.is_valid(), pc.binary_join(lists, ""), None)
        case t.StructType(fields=fields):
            parts = [_part(column, f.dataType) for f, column in zip(fields, array.flatten(), strict=True)]
            return pc.if_else(array.is_valid(), pc.binary_join_element_wise(*parts, "", ""), None)
        case t.StringType() | t.NullType():
            return array.cast(pa.string())
    texts, _ = cast(array, kind, t.StringType())
    return texts


def _hexadecimal(number: float) -> str:
    """Return a float as Java's ``%a`` writes it: ``0x1.8p0``."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    mantissa, _, exponent = (number + 0.0).hex().partition("p")
    whole, _, digits = mantissa.partition(".")
    return f"{whole}.{digits.rstrip('0') or '0'}p{exponent.removeprefix('+')}"
