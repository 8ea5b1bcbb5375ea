"""AND, OR and NOT in three-valued logic, which never fail; splitting conditions at AND, and joining them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions import result_types
from streamq.functions.built_in import BuiltIn
from streamq.functions.infix import infix
from streamq.functions.operands import BOOLEAN, cast_operand, types_accepted
from streamq.plan.expr import Call, Expr, Lit
from streamq.plan.function import ArrowForm, Compute, Infix, Prefix, Reach, Text, Value
from streamq.runtime.arrow_types import is_true

if TYPE_CHECKING:
    from streamq.plan.function import Mask


def _kleene(function: Callable[..., pa.Array]) -> Compute:
    """Return the computation of an operator by an Arrow function of three-valued logic; operands are cast to boolean."""

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array:
        return function(*(cast_operand(o, t.BooleanType()) for o in operands))

    return compute


def _short_circuit(stop: bool) -> Reach:
    """Return the reach of AND or OR: the right operand is evaluated on the rows where the left one is not ``stop``."""

    def reach(operands: Sequence[Value]) -> list[Mask | None]:
        left = operands[0].array
        return [None, ~is_true(pc.invert(left) if not stop and not pa.types.is_null(left.type) else left)]

    return reach


AND = BuiltIn(
    "and",
    lambda a, b: a & b,
    result_types.logical_type("and"),
    ArrowForm(types_accepted(BOOLEAN, BOOLEAN), _kleene(pc.and_kleene), _short_circuit(False)),
    total=True,
    cheap=True,
    selects=True,
    exact=True,
    shown=infix("and", 2),
    notation=Infix("&", 4),
)
OR = BuiltIn(
    "or",
    lambda a, b: a | b,
    result_types.logical_type("or"),
    ArrowForm(types_accepted(BOOLEAN, BOOLEAN), _kleene(pc.or_kleene), _short_circuit(True)),
    total=True,
    cheap=True,
    selects=True,
    exact=True,
    shown=infix("or", 1),
    notation=Infix("|", 2),
)
NOT = BuiltIn(
    "not",
    lambda a: ~a,
    result_types.logical_type("not"),
    ArrowForm(types_accepted(BOOLEAN), _kleene(pc.invert)),
    total=True,
    cheap=True,
    selects=True,
    exact=True,
    shown=lambda arguments: Text(f"not {arguments[0].within(5)}", 3),
    notation=Prefix("~"),
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
