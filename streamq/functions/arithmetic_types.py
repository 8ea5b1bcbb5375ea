"""The types of arithmetic, by Spark's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions.built_in import Result
from streamq.plan.function import Operand, UnfitOperands
from streamq.plan.spark_types import FLOATING, as_decimal, is_numeric, quotient_type, wider

_NO_NUMBERS = (t.StringType, t.BooleanType, t.BinaryType, t.ArrayType, t.MapType, t.StructType)


OfTimes = Callable[[DataType, DataType], DataType | None]
"""The type of an operator of instants and durations; None where Spark has to be asked."""
OfDecimals = Callable[[t.DecimalType, t.DecimalType], t.DecimalType | None]
"""The type of an operator of decimals; None beyond 38 digits, where Spark shortens the fraction and may overflow."""

_DURATION = t.DayTimeIntervalType()


def _sum_of_times(a: DataType, b: DataType) -> DataType | None:
    """Return the type of the sum of two equal durations, or of an instant and a duration; None for other operands."""
    if isinstance(a, t.DayTimeIntervalType) and a == b:
        return a
    if isinstance(a, t.TimestampType) and b == _DURATION:
        return a
    return b if a == _DURATION and isinstance(b, t.TimestampType) else None


def _difference_of_times(a: DataType, b: DataType) -> DataType | None:
    """Return the type of a difference: a duration of two durations or instants, an instant less a duration; else None."""
    if isinstance(a, t.DayTimeIntervalType) and a == b:
        return a
    if isinstance(a, t.TimestampType) and isinstance(b, t.TimestampType):
        return _DURATION
    return a if isinstance(a, t.TimestampType) and b == _DURATION else None


def _unknown(a: DataType, b: DataType) -> None:
    return None


def sum_of_decimals(left: t.DecimalType, right: t.DecimalType) -> t.DecimalType | None:
    """Return the type of a sum or difference of decimals; None beyond 38 digits."""
    scale = max(left.scale, right.scale)
    return _within_38(max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale)


def product_of_decimals(left: t.DecimalType, right: t.DecimalType) -> t.DecimalType | None:
    """Return the type of a product of decimals; None beyond 38 digits."""
    return _within_38(left.precision + right.precision + 1, left.scale + right.scale)


def _within_38(precision: int, scale: int) -> t.DecimalType | None:
    return t.DecimalType(precision, scale) if precision <= 38 else None


def _operator(
    sign: str, of_times: OfTimes, of_decimals: OfDecimals, of_numbers: Callable[[DataType, DataType], DataType | None]
) -> Result:
    """Return a rule for the type of ``a sign b``; it raises UnfitOperands for text, booleans, bytes, arrays, maps and structs.

    A rule for each kind of operands computes the type: ``of_times`` with an instant or a duration, ``of_decimals`` with a decimal
    and without floats, ``of_numbers`` for other numbers. The type is None where Spark must be asked, as
    for dates, and where a type is unknown.
    """

    def result(operands: Sequence[Operand]) -> DataType | None:
        """Return the type over two operands; None for another number of them, or a type that is unknown."""
        if len(operands) != 2 or operands[0].kind is None or operands[1].kind is None:
            return None
        a, b = operands[0].kind, operands[1].kind
        for kind in (a, b):
            if isinstance(kind, _NO_NUMBERS):
                raise UnfitOperands(f"{sign} needs numbers", _instead(sign, a, b), kind)
        if isinstance(a, t.NullType) and isinstance(b, t.NullType):
            return None
        if isinstance(a, t.TimestampType) or isinstance(b, t.TimestampType) or isinstance(a, t.DayTimeIntervalType):
            return of_times(a, b)
        if isinstance(a, t.DecimalType) or isinstance(b, t.DecimalType):
            if isinstance(a, FLOATING) or isinstance(b, FLOATING):
                return t.DoubleType()
            left, right = as_decimal(a, operands[0].constant), as_decimal(b, operands[1].constant)
            return None if left is None or right is None else of_decimals(left, right)
        return of_numbers(a, b) if all(is_numeric(k) or isinstance(k, t.NullType) for k in (a, b)) else None

    return result


def _instead(sign: str, a: DataType, b: DataType) -> str:
    """Return the hint for ``a sign b``, of which one is no number."""
    is_text = [isinstance(kind, t.StringType) for kind in (a, b)]
    if all(is_text) and sign == "+":
        return "Texts are put together by sq.functions.concat(x, y)."
    if any(is_text) and any(isinstance(kind, t.TimestampType | t.DayTimeIntervalType) for kind in (a, b)):
        return "A duration is dt.timedelta(seconds=10), of the datetime module."
    return "Cast it."


SUM = _operator("+", _sum_of_times, sum_of_decimals, wider)
DIFFERENCE = _operator("-", _difference_of_times, sum_of_decimals, wider)
PRODUCT = _operator("*", _unknown, product_of_decimals, wider)
QUOTIENT = _operator("/", _unknown, quotient_type, lambda a, b: t.DoubleType())
REMAINDER = _operator("%", _unknown, _unknown, wider)
