"""The types of arithmetic, by Spark's rules."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions.built_in import Result
from streamq.plan.function import Unfit
from streamq.plan.operand import Operand
from streamq.plan.spark_types import FLOATING, as_decimal, is_numeric, quotient_type, wider

_NO_NUMBERS = (t.StringType, t.BooleanType, t.BinaryType, t.ArrayType, t.MapType, t.StructType)


def arithmetic_type(sign: str) -> Result:
    """The type of ``a sign b``; raises Unfit where an operand is no number, no instant and no duration."""

    def result(operands: Sequence[Operand]) -> DataType | None:
        if len(operands) != 2 or operands[0].kind is None or operands[1].kind is None:
            return None
        a, b = operands[0].kind, operands[1].kind
        for kind in (a, b):
            if isinstance(kind, _NO_NUMBERS):
                raise Unfit(f"{sign} needs numbers", "Cast it.", kind)
        if isinstance(a, t.NullType) and isinstance(b, t.NullType):
            return None
        if isinstance(a, t.TimestampType) or isinstance(b, t.TimestampType):
            return _instant_type(sign, a, b)
        if isinstance(a, t.DayTimeIntervalType) and a == b and sign in ("+", "-"):
            return a
        if isinstance(a, t.DecimalType) or isinstance(b, t.DecimalType):
            return _decimal_type(sign, operands)
        if not all(is_numeric(k) or isinstance(k, t.NullType) for k in (a, b)):
            return None
        return t.DoubleType() if sign == "/" else wider(a, b)

    return result


def _instant_type(sign: str, a: DataType, b: DataType) -> DataType | None:
    whole = t.DayTimeIntervalType()
    if sign == "-" and isinstance(a, t.TimestampType) and isinstance(b, t.TimestampType):
        return whole
    if (sign in ("+", "-") and isinstance(a, t.TimestampType) and b == whole) or (sign == "+" and a == whole):
        return t.TimestampType()
    return None


def _decimal_type(sign: str, operands: Sequence[Operand]) -> DataType | None:
    if any(isinstance(o.kind, FLOATING) for o in operands):
        return t.DoubleType()
    left, right = (None if o.kind is None else as_decimal(o.kind, o.constant) for o in operands)
    if left is None or right is None:
        return None
    if sign == "/":
        return quotient_type(left, right)
    if sign in ("+", "-"):
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    elif sign == "*":
        precision, scale = left.precision + right.precision + 1, left.scale + right.scale
    else:
        return None
    # beyond 38 digits Spark gives up some of the fraction, and it may overflow: ask it
    return t.DecimalType(precision, scale) if precision <= 38 else None
