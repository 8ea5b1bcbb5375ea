"""Comparisons, AND, OR and NOT in three-valued logic, choices among operands, and tests for NULL and NaN.

Comparisons never fail; conditions are split at AND, and joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions.built_in import (
    ANY,
    BOOLEAN,
    COMMON,
    FIRST,
    FLOATS,
    NUMBER,
    BuiltIn,
    Result,
    all_rows,
    cast_operand,
    common_type,
    compared_type,
    have_common_type,
    have_unwidened_type,
    in_arrow,
    infix,
    logical_type,
    rows_until_valid,
    types_accepted,
)
from streamq.plan.expr import Call, Expr, Lit
from streamq.plan.function import ArrowForm, Compute, Infix, Method, Notation, Operand, OperandRows, Prefix, Text, Value
from streamq.plan.spark_types import FLOATING, wider
from streamq.runtime.arrow.arrow_types import arrow_type, is_null, is_true, is_valid, to_numpy

if TYPE_CHECKING:
    from streamq.plan.function import Mask


_KERNELS = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compare(sign: str, *operands: Value) -> pa.Array:
    """Return the truth values of a comparison of two operands in their common type, NULL where one is NULL.

    NaN equals NaN and is greater than any number.
    """
    kind = common_type(operands)
    assert kind is not None
    left, right = (cast_operand(o, kind) for o in operands)
    if isinstance(kind, t.NullType):
        return pa.nulls(len(left), pa.bool_())
    if not isinstance(kind, FLOATING):
        return _KERNELS[sign](left, right)
    a, b = to_numpy(left), to_numpy(right)
    with np.errstate(invalid="ignore"):
        nan_a, nan_b = np.isnan(a), np.isnan(b)
        equal, less = (a == b) | (nan_a & nan_b), (a < b) | (nan_b & ~nan_a)
    holds = {"==": equal, "!=": ~equal, "<": less, "<=": less | equal, ">": ~(less | equal), ">=": ~less}[sign]
    return pa.array(holds, pa.bool_(), mask=is_null(left) | is_null(right))


def _null_safe(operands: Sequence[Value], kind: DataType) -> pa.Array:
    """Return ``<=>``: NULL equals NULL and differs from any value, so the result is never NULL."""
    left, right = (is_null(o.array) for o in operands)
    return pa.array(np.where(left | right, left & right, is_true(compare("==", *operands))), pa.bool_())


def _isin(operands: Sequence[Value], kind: DataType) -> pa.Array:
    """Return where the first operand equals one of the others; NULL where none is equal and an operand is NULL.

    Without others it is false on every row.
    """
    first, *rest = operands
    if not rest:
        return pa.repeat(pa.scalar(False), len(first.array))
    to = common_type(operands)
    assert to is not None
    if all(o.constant is not ... for o in rest) and not isinstance(to, (*FLOATING, t.NullType)):
        values = pa.concat_arrays([cast_operand(o, to)[:1] for o in rest]).drop_null()
        array = cast_operand(first, to)
        is_member = pc.is_in(array, value_set=values).to_numpy(zero_copy_only=False)
        is_unknown = is_null(array) | (~is_member & any(o.constant is None for o in rest))
        return pa.array(is_member, pa.bool_(), mask=is_unknown)
    among = pa.repeat(pa.scalar(False), len(first.array))
    for operand in rest:
        among = pc.or_kleene(among, compare("==", first, operand))
    return among


def _until_equal(operands: Sequence[Value]) -> list[Mask | None]:
    """Operand rows of ``isin``: a member is evaluated where the first operand is not NULL and equals no member before it.

    For the first operand there is None: it is evaluated on all rows.
    """
    first = operands[0]
    rest = is_valid(first.array)
    reached: list[Mask | None] = [None]
    for operand in operands[1:]:
        reached.append(rest)
        rest = rest & ~is_true(compare("==", first, operand))
    return reached


def _condition(
    name: str,
    spark: Callable[..., Column],
    result: Result,
    arrow: ArrowForm,
    shown: Callable[[Sequence[Text]], Text],
    notation: Notation,
) -> BuiltIn:
    """Return an operator of conditions from its forms; it never fails."""
    return BuiltIn(
        name, spark, result, arrow, total=True, cheap=True, selects=True, exact=True, shown=shown, notation=notation
    )


def _ordered(sign: str, spark: Callable[[Any, Any], Column]) -> BuiltIn:
    """Return the comparison ``sign`` of two operands that have a common type."""
    arrow = ArrowForm(lambda o: len(o) == 2 and have_common_type(o), lambda o, _: compare(sign, *o))
    return _condition(sign, spark, compared_type, arrow, infix(sign, 4), Infix(sign, 1))


def _among(arguments: Sequence[Text]) -> Text:
    return Text(f"{arguments[0].as_operand(5)} in ({', '.join(a.text for a in arguments[1:])})", 4)


_NULL_SAFE = ArrowForm(lambda o: len(o) == 2 and have_common_type(o), _null_safe, all_rows)

EQUAL = _ordered("==", lambda a, b: a == b)
DIFFERENT = _ordered("!=", lambda a, b: a != b)
LESS = _ordered("<", lambda a, b: a < b)
LESS_OR_EQUAL = _ordered("<=", lambda a, b: a <= b)
GREATER = _ordered(">", lambda a, b: a > b)
GREATER_OR_EQUAL = _ordered(">=", lambda a, b: a >= b)
EQUAL_NULL_SAFE = _condition(
    "<=>", lambda a, b: a.eqNullSafe(b), compared_type, _NULL_SAFE, infix("<=>", 4), Method("eq_null_safe")
)
EQUAL_NULL = BuiltIn("equal_null", result=t.BooleanType(), arrow=_NULL_SAFE, total=True)
ISIN = BuiltIn(
    "isin",
    lambda value, *members: value.isin(*members),
    compared_type,
    ArrowForm(have_common_type, _isin, _until_equal),
    total=True,
    selects=True,
    exact=True,
    shown=_among,
    notation=Method("isin", None),
)


def _kleene(function: Callable[..., pa.Array]) -> Compute:
    """Return the computation of an operator by an Arrow function of three-valued logic; operands are cast to boolean."""

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array:
        return function(*(cast_operand(o, t.BooleanType()) for o in operands))

    return compute


def _short_circuit(stop: bool) -> OperandRows:
    """Return the operand rows of AND or OR: the right operand is evaluated on the rows where the left one is not ``stop``."""

    def operand_rows(operands: Sequence[Value]) -> list[Mask | None]:
        left = operands[0].array
        return [None, ~is_true(pc.invert(left) if not stop and not pa.types.is_null(left.type) else left)]

    return operand_rows


_BOTH = types_accepted(BOOLEAN, BOOLEAN)
_AND_FORM = ArrowForm(_BOTH, _kleene(pc.and_kleene), _short_circuit(False))
_OR_FORM = ArrowForm(_BOTH, _kleene(pc.or_kleene), _short_circuit(True))

AND = _condition("and", lambda a, b: a & b, logical_type("and"), _AND_FORM, infix("and", 2), Infix("&", 4))
OR = _condition("or", lambda a, b: a | b, logical_type("or"), _OR_FORM, infix("or", 1), Infix("|", 2))
NOT = _condition(
    "not",
    lambda a: ~a,
    logical_type("not"),
    ArrowForm(types_accepted(BOOLEAN), _kleene(pc.invert)),
    lambda arguments: Text(f"not {arguments[0].as_operand(5)}", 3),
    Prefix("~"),
)


def conjuncts(root: Expr) -> list[Expr]:
    """Return the parts that AND connects at the top of an expression, in order; a single one if it is no AND."""
    parts: list[Expr] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Call) and node.function == AND:
            stack.extend(reversed(node.children))
        else:
            parts.append(node)
    return parts


def conjunction(parts: Iterable[Expr]) -> Expr:
    """Return ``p and q and ...``; true if there are no parts."""
    result: Expr | None = None
    for part in parts:
        result = part if result is None else Call(AND, (result, part))
    return Lit(True) if result is None else result


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
    """Operand rows of ``nvl2``: the second operand is evaluated where the first is not NULL, the third where it is."""
    return [None, is_valid(operands[0].array), is_null(operands[0].array)]


def _by_nan(operands: Sequence[Value]) -> list[Mask | None]:
    """Operand rows of ``nanvl``: the second operand is evaluated where the first is NaN."""
    return [None, np.isnan(to_numpy(operands[0].array))]


def _nvl2_type(operands: Sequence[Operand]) -> DataType | None:
    """Return the common type of the second and the third operand; None unless there are three of known types."""
    kinds = [o.kind for o in operands]
    if len(kinds) != 3 or kinds[0] is None or kinds[1] is None or kinds[2] is None:
        return None
    return wider(kinds[1], kinds[2])


def _is_nan(operands: Sequence[Value], kind: DataType) -> pa.Array:
    return pa.array(np.isnan(to_numpy(cast_operand(operands[0], t.DoubleType()))))


COALESCE = in_arrow(
    "coalesce", COMMON, have_unwidened_type, _coalesce, rows_until_valid, total=True, selects=True, exact=True
)
IFNULL = replace(COALESCE, name="ifnull")
NVL = replace(COALESCE, name="nvl")
NVL2 = in_arrow("nvl2", _nvl2_type, lambda o: len(o) == 3 and have_unwidened_type(o[1:]), _nvl2, _by_null, selects=True)
NULLIF = in_arrow("nullif", FIRST, lambda o: len(o) == 2 and have_common_type(o), _nullif, total=True, selects=True)
NANVL = in_arrow(
    "nanvl", FLOATS, lambda o: len(o) == 2 and all(isinstance(v.kind, FLOATING) for v in o), _nanvl, _by_nan
)
GREATEST = in_arrow("greatest", COMMON, lambda o: len(o) > 1 and have_unwidened_type(o), _extreme(">"), all_rows)
LEAST = in_arrow("least", COMMON, lambda o: len(o) > 1 and have_unwidened_type(o), _extreme("<"), all_rows)
ISNULL = in_arrow(
    "isnull",
    t.BooleanType(),
    types_accepted(ANY),
    lambda o, _: o[0].array.is_null(),
    all_rows,
    total=True,
    cheap=True,
    selects=True,
    exact=True,
    shown=lambda arguments: Text(f"{arguments[0].as_operand(5)} is null", 4),
    notation=Method("is_null", 1),
)
ISNOTNULL = in_arrow(
    "isnotnull",
    t.BooleanType(),
    types_accepted(ANY),
    lambda o, _: o[0].array.is_valid(),
    all_rows,
    total=True,
    selects=True,
    exact=True,
)
ISNAN = in_arrow("isnan", t.BooleanType(), types_accepted(NUMBER), _is_nan, all_rows, total=True, selects=True)
