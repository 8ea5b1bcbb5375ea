"""Functions of numbers: rounding, roots, logarithms and the like; and those whose value differs from call to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions.built_in import (
    DOUBLE,
    NUMBER,
    BuiltIn,
    cast_operand,
    overflow_message,
    typed_by,
    types_accepted,
    with_constant,
)
from streamq.plan.function import ArrowForm, Compute, Value
from streamq.plan.spark_types import INTEGRAL, is_numeric
from streamq.runtime.arrow import fdlibm
from streamq.runtime.arrow.arrow_casts import saturated
from streamq.runtime.arrow.arrow_types import (
    BITS,
    Outcome,
    RowError,
    fault_list,
    from_numpy,
    is_null,
    rowwise,
    to_numpy,
)

if TYPE_CHECKING:
    from streamq.plan.function import Mask


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
ROUND = BuiltIn("round", result=_ROUNDED, arrow=ArrowForm(_PLACES, _round))
RINT = BuiltIn("rint", result=t.DoubleType(), arrow=_of_doubles(np.rint))
FLOOR = BuiltIn("floor", result=_WHOLE, arrow=ArrowForm(types_accepted(DOUBLE), _whole(np.floor)))
CEIL = BuiltIn("ceil", result=_WHOLE, arrow=ArrowForm(types_accepted(DOUBLE), _whole(np.ceil)))
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
