"""Operands of Arrow forms: the types that are accepted, their common type, and the rows on which Spark evaluates them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.plan.function import OperandCheck, Value
from streamq.plan.spark_types import FLOATING, INTEGRAL, as_decimal, wider
from streamq.runtime.arrow_casts import can_cast, cast
from streamq.runtime.arrow_types import is_null, is_valid

if TYPE_CHECKING:
    from streamq.plan.function import Mask

Group = tuple[type[DataType], ...]
BOOLEAN: Group = (t.BooleanType,)
STRING: Group = (t.StringType,)
BYTES: Group = (t.StringType, t.BinaryType)
WHOLE: Group = (t.IntegerType, t.ShortType, t.ByteType)
INSTANT: Group = (t.TimestampType,)
DAYS: Group = (t.DateType, t.TimestampType)
DOUBLE: Group = (t.DoubleType, t.FloatType, *INTEGRAL)
ANY: Group = (DataType,)
NUMBER: Group = (*DOUBLE, t.DecimalType)


def is_in_group(kind: DataType, group: Group) -> bool:
    """True if a type is one of the group, or the type of NULL; strings with a collation are not."""
    return isinstance(kind, (*group, t.NullType)) and (not isinstance(kind, t.StringType) or kind == t.StringType())


def types_accepted(*groups: Group, optional: int = 0, repeated: bool = False) -> OperandCheck:
    """Return a check that accepts an operand of each group of types, or NULL.

    ``repeated``: operands beyond the groups are accepted if they are of the last one. ``optional``: how many may be missing at
    the end.
    """

    def takes(operands: Sequence[Value]) -> bool:
        if len(operands) < len(groups) - optional or (len(operands) > len(groups) and not repeated):
            return False
        wanted = [*groups, *[groups[-1]] * (len(operands) - len(groups))]
        return all(is_in_group(o.kind, g) for o, g in zip(operands, wanted, strict=False))

    return takes


def with_constant(takes: OperandCheck, at: int, kind: type) -> OperandCheck:
    """Return a check that accepts what ``takes`` does, if the operand ``at`` is missing or a constant of type ``kind``."""
    return lambda operands: takes(operands) and (len(operands) <= at or type(operands[at].constant) is kind)


def common_type(operands: Sequence[Value]) -> DataType | None:
    """Return the type in which operands are compared or selected; None where only Spark knows it, or compares otherwise.

    Spark must be asked for lists, maps and structs, and for decimals that need more than 38 digits.
    """

    def both(a: DataType | None, b: DataType) -> DataType | None:
        """Return the common type of two types; None if ``a`` is None, or if Spark must be asked."""
        if a is None:
            return None
        if plain := wider(a, b):
            return plain
        if (isinstance(a, t.DecimalType) and isinstance(b, FLOATING)) or (
            isinstance(b, t.DecimalType) and isinstance(a, FLOATING)
        ):
            return t.DoubleType()
        left, right = as_decimal(a), as_decimal(b)
        if left is None or right is None:
            return None
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale
        return t.DecimalType(precision, scale) if precision <= 38 else None

    start: DataType | None = t.NullType()
    kind = reduce(both, (o.kind for o in operands), start)
    if kind is None or isinstance(kind, t.ArrayType | t.MapType | t.StructType):
        return None
    return kind if all(can_cast(o.kind, kind) for o in operands) else None


def have_common_type(operands: Sequence[Value]) -> bool:
    """True if the operands have a common type."""
    return len(operands) > 0 and common_type(operands) is not None


def have_unwidened_type(operands: Sequence[Value]) -> bool:
    """True if the operands have a common type without widening a decimal."""
    return have_common_type(operands) and reduce(lambda a, b: a and wider(a, b), (o.kind for o in operands)) is not None  # type: ignore[arg-type, return-value]


def cast_operand(operand: Value, to: DataType) -> pa.Array:
    """Return the operand's array in another type, to which every value of its type can be cast."""
    return cast(operand.array, operand.kind, to)[0]


# the rows on which an operand is evaluated


def divisor_rows(operands: Sequence[Value]) -> list[Mask | None]:
    """Reach of operators that evaluate the right operand first, then the left where the right is not NULL."""
    return [is_valid(operands[1].array), None]


def all_rows(operands: Sequence[Value]) -> list[Mask | None]:
    """Reach of functions that evaluate every operand on every row."""
    return [None] * len(operands)


def rows_until_valid(operands: Sequence[Value]) -> list[Mask | None]:
    """Reach of functions that evaluate each operand on the rows where all operands before it are NULL; None: on all rows."""
    reached: list[Mask | None] = [None]
    for operand in operands[:-1]:
        missing = is_null(operand.array)
        reached.append(missing if reached[-1] is None else reached[-1] & missing)
    return reached
