"""Arithmetic on numbers, instants and durations, by Spark's rules for types; functions of numbers: rounding, roots, logarithms.

Functions whose value differs from call to call are here, too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions.built_in import (
    DOUBLE,
    NUMBER,
    SAME_NUMBER,
    BuiltIn,
    Result,
    cast_operand,
    divisor_rows,
    in_arrow,
    infix,
    is_in_group,
    overflow_checked,
    overflow_message,
    typed_by,
    types_accepted,
    with_constant,
)
from streamq.plan.function import ArrowForm, Compute, Infix, Operand, OperandCheck, Prefix, Text, UnfitOperands, Value
from streamq.plan.spark_types import FLOATING, INTEGRAL, as_decimal, is_numeric, quotient_type, wider
from streamq.runtime.arrow import fdlibm
from streamq.runtime.arrow.arrow_casts import quotient, saturated
from streamq.runtime.arrow.arrow_types import (
    BITS,
    DIVIDED,
    OUT_OF_RANGE,
    REMAINDER,
    Outcome,
    RowError,
    arrow_type,
    fault_list,
    from_numpy,
    is_null,
    rowwise,
    to_numpy,
)

if TYPE_CHECKING:
    from streamq.plan.function import Mask


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


SUM_TYPE = _operator("+", _sum_of_times, sum_of_decimals, wider)
DIFFERENCE_TYPE = _operator("-", _difference_of_times, sum_of_decimals, wider)
PRODUCT_TYPE = _operator("*", _unknown, product_of_decimals, wider)
QUOTIENT_TYPE = _operator("/", _unknown, quotient_type, lambda a, b: t.DoubleType())
REMAINDER_TYPE = _operator("%", _unknown, _unknown, wider)


def _ticks(array: pa.Array) -> pa.Array:
    return array.view(pa.int64()) if pa.types.is_temporal(array.type) else array


def _computed(
    strict: Callable[..., pa.Array], plain: Callable[..., pa.Array], exact: Callable[[Any, Any], Any]
) -> Compute:
    """Return the Arrow form of ``+``, ``-`` or ``*`` for all types of operands.

    ``strict``, Arrow's function that checks for overflow, computes integers, instants and durations; rows that overflow, by the
    Python operator ``exact``, are faults. ``plain``, without the check, computes floats and decimals.
    """

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array | Outcome:
        """Return the results, of type ``kind``: ticks and integers with faults, decimals and floats without."""
        if isinstance(kind, t.TimestampType | t.DayTimeIntervalType):
            arrays = [
                _ticks(o.array) if not isinstance(o.kind, t.NullType) else o.array.cast(pa.int64()) for o in operands
            ]
            ticks, faults = overflow_checked(strict, exact, kind, *arrays)
            return ticks.view(arrow_type(kind)), faults
        if isinstance(kind, t.DecimalType):
            # exact in Arrow and in Spark; their result types agree where no digit is lost
            left, right = (cast_operand(o, as_decimal(o.kind) or kind) for o in operands)
            return plain(left, right).cast(arrow_type(kind))
        left, right = (cast_operand(o, kind) for o in operands)
        return plain(left, right) if isinstance(kind, FLOATING) else overflow_checked(strict, exact, kind, left, right)

    return compute


def _arithmetic(sign: str, rank: int, spark: Callable[[Any, Any], Column], result: Result, arrow: ArrowForm) -> BuiltIn:
    """Return the operator ``sign`` from its forms; it never fails on floats. ``rank`` is how tightly it binds."""
    return BuiltIn(
        sign,
        spark,
        result,
        arrow,
        total=lambda _, kind: isinstance(kind, FLOATING),
        cheap=True,
        shown=infix(sign, rank),
        notation=Infix(sign, rank),
        exact=True,
    )


def _takes(of_decimals: OfDecimals) -> OperandCheck:
    """Return a check that accepts two numbers, instants or durations; decimals only if the result has at most 38 digits.

    A decimal beside a float is accepted, beside NULL it is not. ``of_decimals`` returns the type of the result, None if that has
    more digits. Integers become decimals of their type's full width here, so a result may need 39 digits where Spark's has fewer.
    """

    def takes(operands: Sequence[Value]) -> bool:
        kinds = [o.kind for o in operands]
        if not any(isinstance(k, t.DecimalType) for k in kinds):
            return all(is_in_group(k, (*DOUBLE, t.TimestampType, t.DayTimeIntervalType)) for k in kinds)
        if any(isinstance(k, FLOATING) for k in kinds):
            return not any(isinstance(k, t.NullType) for k in kinds)
        left, right = (as_decimal(k) for k in kinds)
        return left is not None and right is not None and of_decimals(left, right) is not None

    return takes


def _without_decimals(operands: Sequence[Value]) -> bool:
    """True for two numbers without a decimal, or with one beside a float: their quotient is a double or an integer."""
    decimals = any(isinstance(o.kind, t.DecimalType) for o in operands)
    return types_accepted(NUMBER, NUMBER)(operands) and (
        not decimals or any(isinstance(o.kind, FLOATING) for o in operands)
    )


def _divides(operands: Sequence[Value]) -> bool:
    """True for two numbers that can be divided in-process: no decimals, a decimal with a float, an integer or a decimal."""
    return _without_decimals(operands) or (
        len(operands) == 2 and not any(isinstance(o.kind, t.NullType) or as_decimal(o.kind) is None for o in operands)
    )


def _divide(operands: Sequence[Value], kind: DataType) -> Outcome:
    """Return quotients, as doubles or, if ``kind`` is one, as decimals; a row with divisor 0 is NULL and a fault."""
    if isinstance(kind, t.DecimalType):
        return _decimal_quotient(operands, kind)
    left, right = (cast_operand(o, t.DoubleType()) for o in operands)
    a, b, empty = to_numpy(left), to_numpy(right), is_null(left) | is_null(right)
    bad = (b == 0) & ~empty
    with np.errstate(all="ignore"):
        return from_numpy(a / np.where(b == 0, 1.0, b), empty | bad, kind), fault_list(bad, DIVIDED)


def _decimal_quotient(operands: Sequence[Value], kind: DataType) -> Outcome:
    """Return quotients rounded to the decimal type ``kind``; a row with divisor 0 or out of range is NULL and a fault."""
    left, right = (cast_operand(o, as_decimal(o.kind) or kind) for o in operands)
    empty = is_null(left) | is_null(right)
    zero = pc.fill_null(pc.equal(right, pa.scalar(0, right.type)), False).to_numpy(zero_copy_only=False) & ~empty
    divisor = pc.if_else(pa.array(zero), pa.scalar(None, right.type), right)
    quotients, faults = rowwise(
        lambda a, b: quotient(a, b, kind), kind, OUT_OF_RANGE.format(to=kind.simpleString()), left, divisor
    )
    return quotients, [*fault_list(zero, DIVIDED), *faults]


def _remainder(operands: Sequence[Value], kind: DataType) -> Outcome:
    """Return remainders, which have the sign of the dividend; a row with divisor 0 is NULL and a fault."""
    left, right = (cast_operand(o, kind) for o in operands)
    a, b, empty = to_numpy(left), to_numpy(right), is_null(left) | is_null(right)
    bad = (b == 0) & ~empty
    # the remainder by -1 is 0, as by 1, and dividing the least integer by 1 does not overflow
    safe = np.where((b == 0) | ((b == -1) & isinstance(kind, INTEGRAL)), np.ones(1, b.dtype), b)
    with np.errstate(all="ignore"):
        return from_numpy(np.fmod(a, safe), empty | bad, kind), fault_list(bad, REMAINDER)


def _signed(strict: Callable[..., pa.Array], plain: Callable[..., pa.Array], exact: Callable[[Any], Any]) -> Compute:
    """Return the Arrow form of negation or ``abs``; the least integer, which has no positive counterpart, is a fault.

    ``strict`` checks integers for overflow, ``exact`` finds the rows that do, ``plain`` computes floats and decimals.
    """

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array | Outcome:
        array = operands[0].array
        return overflow_checked(strict, exact, kind, array) if isinstance(kind, INTEGRAL) else plain(array)

    return compute


def _has_safe_divisor(operands: Sequence[Operand], kind: DataType | None) -> bool:
    """True if the divisor is a constant other than 0 and the result is no decimal, which could overflow."""
    divisor = operands[1].constant
    return isinstance(divisor, int | float) and divisor != 0 and not isinstance(kind, t.DecimalType)


ADD = _arithmetic(
    "+",
    6,
    lambda a, b: a + b,
    SUM_TYPE,
    ArrowForm(_takes(sum_of_decimals), _computed(pc.add_checked, pc.add, operator.add)),
)
SUBTRACT = _arithmetic(
    "-",
    6,
    lambda a, b: a - b,
    DIFFERENCE_TYPE,
    ArrowForm(_takes(sum_of_decimals), _computed(pc.subtract_checked, pc.subtract, operator.sub)),
)
MULTIPLY = _arithmetic(
    "*",
    7,
    lambda a, b: a * b,
    PRODUCT_TYPE,
    ArrowForm(_takes(product_of_decimals), _computed(pc.multiply_checked, pc.multiply, operator.mul)),
)
DIVIDE = replace(
    _arithmetic("/", 7, lambda a, b: a / b, QUOTIENT_TYPE, ArrowForm(_divides, _divide, divisor_rows)),
    total=_has_safe_divisor,
)
REMAIN = replace(
    _arithmetic("%", 7, lambda a, b: a % b, REMAINDER_TYPE, ArrowForm(_without_decimals, _remainder, divisor_rows)),
    total=_has_safe_divisor,
)
NEGATIVE = in_arrow(
    "negative",
    SAME_NUMBER,
    types_accepted(NUMBER),
    _signed(pc.negate_checked, pc.negate, operator.neg),
    cheap=True,
    shown=lambda arguments: Text(f"-{arguments[0].as_operand(8)}", 8),
    notation=Prefix("-"),
)
POSITIVE = in_arrow("positive", SAME_NUMBER, types_accepted(NUMBER), lambda o, _: o[0].array)
ABS = in_arrow("abs", SAME_NUMBER, types_accepted(NUMBER), _signed(pc.abs_checked, pc.abs, abs))


def _of_doubles(function: Callable[[Any], Any], is_empty: Callable[[Any], Mask] | None = None) -> ArrowForm:
    """Return the Arrow form of a numpy function of doubles, which is NULL where an operand is NULL or ``is_empty``."""

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array:
        array = cast_operand(operands[0], t.DoubleType())
        values = np.array(to_numpy(array))
        with np.errstate(all="ignore"):
            return from_numpy(
                function(values), is_null(array) if is_empty is None else is_null(array) | is_empty(values), kind
            )

    return ArrowForm(types_accepted(NUMBER), compute)


def _not_positive(values: Any) -> Mask:
    return values <= 0


def _sign(values: Any) -> Any:
    return np.where((values == 0) | np.isnan(values), values, np.copysign(1.0, values))


def _whole(function: Callable[[Any], Any]) -> Compute:
    """Return the Arrow form of rounding to bigint by ``function``: floor or ceil.

    NaN becomes 0; a number beyond bigint is NULL and a fault; integers stay.
    """

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array | Outcome:
        operand = operands[0]
        if isinstance(operand.kind, INTEGRAL):
            return cast_operand(operand, kind)
        values, empty = function(to_numpy(cast_operand(operand, t.DoubleType()))), is_null(operand.array)
        bad = ((values >= 2.0**63) | (values < -(2.0**63))) & ~empty
        return from_numpy(saturated(values, 64), empty | bad, kind), fault_list(bad, overflow_message(kind))

    return compute


_WIDE = Context(prec=1500)


def _round(operands: Sequence[Value], kind: DataType) -> pa.Array | Outcome:
    """Round to the digits of the second operand, a constant, by default to whole numbers; halves go away from zero.

    Negative digits round to tens, hundreds, ...; an integer that overflows by it is NULL and a fault. NaN and infinities stay.
    """
    array = operands[0].array
    places = operands[1].constant if len(operands) > 1 else 0
    if isinstance(kind, INTEGRAL):
        if places >= 0:
            return array
        unit, half = 10 ** min(-places, 40), 5 * 10 ** (min(-places, 40) - 1)

        def whole(value: int) -> int:
            rounded = (abs(value) + half) // unit * unit * (1 if value >= 0 else -1)
            if not -(1 << BITS[type(kind)] - 1) <= rounded < 1 << BITS[type(kind)] - 1:
                raise RowError
            return rounded

        return rowwise(whole, kind, overflow_message(kind), array)
    unit_place = Decimal(1).scaleb(-max(-330, min(places, 1100)))

    def real(value: float) -> float:
        # round the shortest decimal that reads as this double, like Java's BigDecimal.valueOf
        return (
            float(Decimal(repr(value)).quantize(unit_place, ROUND_HALF_UP, _WIDE)) + 0.0
            if np.isfinite(value)
            else value
        )

    return rowwise(real, kind, "", array)


def _is_plain(kind: DataType) -> bool:
    """True for number types other than decimals; rounding changes the type of decimals."""
    return is_numeric(kind) and not isinstance(kind, t.DecimalType)


_ROUNDED = typed_by(lambda first, *rest: first if _is_plain(first) else None)
_WHOLE = typed_by(lambda *kinds: t.LongType() if len(kinds) == 1 and _is_plain(kinds[0]) else None)
_SIGN = typed_by(lambda first, *rest: t.DoubleType() if is_numeric(first) else None)
_PLACES = with_constant(types_accepted((t.DoubleType, *INTEGRAL), (t.IntegerType,), optional=1), 1, int)

SIGN = BuiltIn("sign", result=_SIGN, arrow=_of_doubles(_sign))
SIGNUM = replace(SIGN, name="signum")
ROUND = in_arrow("round", _ROUNDED, _PLACES, _round)
RINT = BuiltIn("rint", result=t.DoubleType(), arrow=_of_doubles(np.rint))
FLOOR = in_arrow("floor", _WHOLE, types_accepted(DOUBLE), _whole(np.floor))
CEIL = in_arrow("ceil", _WHOLE, types_accepted(DOUBLE), _whole(np.ceil))
CEILING = replace(CEIL, name="ceiling")
SQRT = BuiltIn("sqrt", result=t.DoubleType(), arrow=_of_doubles(np.sqrt))
EXP = BuiltIn("exp", result=t.DoubleType(), arrow=_of_doubles(fdlibm.exp))
LN = BuiltIn("ln", result=t.DoubleType(), arrow=_of_doubles(fdlibm.log, _not_positive))
LOG = replace(LN, name="log")
LOG10 = BuiltIn("log10", result=t.DoubleType(), arrow=_of_doubles(fdlibm.log10, _not_positive))
LOG2 = BuiltIn("log2", result=t.DoubleType(), arrow=_of_doubles(fdlibm.log2, _not_positive))
SIN = BuiltIn("sin", result=t.DoubleType())
COS = BuiltIn("cos", result=t.DoubleType())
TAN = BuiltIn("tan", result=t.DoubleType())
POW = BuiltIn("pow", result=t.DoubleType())
POWER = BuiltIn("power", result=t.DoubleType())


RAND = BuiltIn("rand", deterministic=False)
RANDN = BuiltIn("randn", deterministic=False)
RANDOM = BuiltIn("random", deterministic=False)
RANDSTR = BuiltIn("randstr", deterministic=False)
UNIFORM = BuiltIn("uniform", deterministic=False)
UUID = BuiltIn("uuid", deterministic=False)
SHUFFLE = BuiltIn("shuffle", deterministic=False)
MONOTONICALLY_INCREASING_ID = BuiltIn("monotonically_increasing_id", deterministic=False)
SPARK_PARTITION_ID = BuiltIn("spark_partition_id", deterministic=False)
INPUT_FILE_NAME = BuiltIn("input_file_name", deterministic=False)
