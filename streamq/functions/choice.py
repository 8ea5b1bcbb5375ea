"""Functions that return one of their operands, or test it for NULL or NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions.built_in import (
    ANY,
    COMMON,
    FIRST,
    FLOATS,
    NUMBER,
    BuiltIn,
    all_rows,
    cast_operand,
    have_common_type,
    have_unwidened_type,
    rows_until_valid,
    types_accepted,
)
from streamq.functions.logic import compare
from streamq.plan.function import ArrowForm, Compute, Method, Operand, Text, Value
from streamq.plan.spark_types import FLOATING, wider
from streamq.runtime.arrow.arrow_types import arrow_type, is_null, is_true, is_valid, to_numpy

if TYPE_CHECKING:
    from streamq.plan.function import Mask


def _coalesce(operands: Sequence[Value], kind: DataType) -> pa.Array:
    """Return the first operand of each row that is not NULL; NULL if all are."""
    if isinstance(kind, t.NullType):
        return operands[0].array
    return pc.coalesce(*(cast_operand(o, kind) for o in operands))


def _nvl2(operands: Sequence[Value], kind: DataType) -> pa.Array:
    return pc.if_else(operands[0].array.is_valid(), cast_operand(operands[1], kind), cast_operand(operands[2], kind))


def _nullif(operands: Sequence[Value], kind: DataType) -> pa.Array:
    """Return the first operand, NULL where it equals the second."""
    same = is_true(compare("==", *operands))
    return pc.if_else(pa.array(same), pa.nulls(len(same), arrow_type(kind)), operands[0].array)


def _nanvl(operands: Sequence[Value], kind: DataType) -> pa.Array:
    first = cast_operand(operands[0], kind)
    return pc.if_else(pa.array(np.isnan(to_numpy(first))), cast_operand(operands[1], kind), first)


def _extreme(sign: str) -> Compute:
    """Return the Arrow form of ``greatest`` (``>``) or ``least`` (``<``), which ignore NULL."""

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array:
        best = Value(cast_operand(operands[0], kind), kind)
        for operand in operands[1:]:
            other = Value(cast_operand(operand, kind), kind)
            better = is_true(compare(sign, other, best)) | is_null(best.array)
            if not isinstance(kind, t.NullType):
                best = Value(pc.if_else(pa.array(better), other.array, best.array), kind)
        return best.array

    return compute


def _by_null(operands: Sequence[Value]) -> list[Mask | None]:
    """Reach of ``nvl2``: the second operand is evaluated where the first is not NULL, the third where it is."""
    return [None, is_valid(operands[0].array), is_null(operands[0].array)]


def _by_nan(operands: Sequence[Value]) -> list[Mask | None]:
    """Reach of ``nanvl``: the second operand is evaluated where the first is NaN."""
    return [None, np.isnan(to_numpy(operands[0].array))]


def _nvl2_type(operands: Sequence[Operand]) -> DataType | None:
    """Return the common type of the second and the third operand; None unless there are three of known types."""
    kinds = [o.kind for o in operands]
    if len(kinds) != 3 or kinds[0] is None or kinds[1] is None or kinds[2] is None:
        return None
    return wider(kinds[1], kinds[2])


def _is_nan(operands: Sequence[Value], kind: DataType) -> pa.Array:
    return pa.array(np.isnan(to_numpy(cast_operand(operands[0], t.DoubleType()))))


COALESCE = BuiltIn(
    "coalesce",
    result=COMMON,
    arrow=ArrowForm(have_unwidened_type, _coalesce, rows_until_valid),
    total=True,
    selects=True,
    exact=True,
)
IFNULL = replace(COALESCE, name="ifnull")
NVL = replace(COALESCE, name="nvl")
NVL2 = BuiltIn(
    "nvl2",
    result=_nvl2_type,
    arrow=ArrowForm(lambda o: len(o) == 3 and have_unwidened_type(o[1:]), _nvl2, _by_null),
    selects=True,
)
NULLIF = BuiltIn(
    "nullif",
    result=FIRST,
    arrow=ArrowForm(lambda o: len(o) == 2 and have_common_type(o), _nullif),
    total=True,
    selects=True,
)
NANVL = BuiltIn(
    "nanvl",
    result=FLOATS,
    arrow=ArrowForm(lambda o: len(o) == 2 and all(isinstance(v.kind, FLOATING) for v in o), _nanvl, _by_nan),
)
GREATEST = BuiltIn(
    "greatest",
    result=COMMON,
    arrow=ArrowForm(lambda o: len(o) > 1 and have_unwidened_type(o), _extreme(">"), all_rows),
)
LEAST = BuiltIn(
    "least",
    result=COMMON,
    arrow=ArrowForm(lambda o: len(o) > 1 and have_unwidened_type(o), _extreme("<"), all_rows),
)
ISNULL = BuiltIn(
    "isnull",
    result=t.BooleanType(),
    arrow=ArrowForm(types_accepted(ANY), lambda o, _: o[0].array.is_null(), all_rows),
    total=True,
    cheap=True,
    selects=True,
    exact=True,
    shown=lambda arguments: Text(f"{arguments[0].as_operand(5)} is null", 4),
    notation=Method("is_null", 1),
)
ISNOTNULL = BuiltIn(
    "isnotnull",
    result=t.BooleanType(),
    arrow=ArrowForm(types_accepted(ANY), lambda o, _: o[0].array.is_valid(), all_rows),
    total=True,
    selects=True,
    exact=True,
)
ISNAN = BuiltIn(
    "isnan",
    result=t.BooleanType(),
    arrow=ArrowForm(types_accepted(NUMBER), _is_nan, all_rows),
    total=True,
    selects=True,
)
