"""What an operator gives to those who host it: its evaluator, and what that takes of each input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from streamq.plan.expr import Cast, Col, Expr
from streamq.plan.passes import reads_end
from streamq.plan.schema import Schema, key_types
from streamq.runtime.endpoints import Bound
from streamq.runtime.evaluator import Evaluator
from streamq.runtime.evaluators.condition import Condition
from streamq.runtime.kernel import Kernel

Columns = tuple[tuple[str, Expr], ...]
"""Names and the expressions that they stand for."""


@dataclass(frozen=True)
class PortColumns:
    """What a kernel or evaluator takes of one input: columns as expressions over it.

    Events with equal values of the columns ``hashed`` come into one bucket (none: there is one bucket).
    """

    columns: Columns
    hashed: tuple[str, ...] = ()

    @property
    def reads_ends(self) -> bool:
        """Whether a column depends on the end of an event."""
        return any(reads_end(expr) for _, expr in self.columns)


AS_INPUTS = None
"""What ``Evaluation.moves`` is where ends in the result move if ends in an input do."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """An operator by its evaluator, as the kernel ``recompute`` runs it on a stream and :mod:`batch_host` in batch.

    ``schema`` is of the evaluator's rows; ``outputs`` are computed over them, if they are not the result yet. bound and
    pointwise as in that kernel; settled: whether it needs rows whose ends no longer move; moves: whether rows of its result that
    start before its CTI may still be given other ends, AS_INPUTS: if some of its inputs do; unmoved: the evaluator where the ends
    of the first input never move; kernel: another kernel instead, of the schemas of its ports and the columns of its result.
    """

    evaluator: Evaluator
    inputs: tuple[PortColumns, ...]
    schema: Schema
    outputs: Columns = ()
    bound: Bound = Bound.NONE
    pointwise: tuple[int, ...] = ()
    settled: bool = False
    moves: bool | None = True
    unmoved: Evaluator | None = None
    kernel: Callable[[tuple[pa.Schema, ...], tuple[str, ...]], Kernel] | None = None


def all_columns(schema: Schema) -> Columns:
    """A schema's columns under their own names."""
    return tuple((name, Col(name)) for name in schema.names)


@dataclass(frozen=True)
class KeyColumns:
    """The key columns of two inputs in a common type, under names of their own, and the pairs of those names."""

    left: Columns
    right: Columns
    on: tuple[tuple[str, str], ...]

    @property
    def hashed(self) -> tuple[str, ...]:
        """The names, which are those of both sides."""
        return tuple(name for name, _ in self.left)

    @staticmethod
    def of(left: Schema, right: Schema, on: tuple[tuple[str, str], ...]) -> KeyColumns:
        """Those of the pairs ``on`` (a left column, a right column)."""
        ours, theirs = [], []
        for i, ((a, b), common) in enumerate(zip(on, key_types(left, right, on), strict=True)):
            ours.append((f"__k{i}", Col(a) if left.type_of(a) == common else Cast(Col(a), common)))
            theirs.append((f"__k{i}", Col(b) if right.type_of(b) == common else Cast(Col(b), common)))
        return KeyColumns(tuple(ours), tuple(theirs), tuple((f"__k{i}", f"__k{i}") for i in range(len(on))))


def condition_of(where: Expr | None, pair: Schema) -> Condition | None:
    """A condition on pairs as evaluators take it."""
    return None if where is None else Condition(where, pair)


__all__ = ["AS_INPUTS", "Columns", "Evaluation", "KeyColumns", "PortColumns", "all_columns", "condition_of"]
