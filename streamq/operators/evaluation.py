"""Evaluations: an operator's evaluator, the columns that it reads from each input, and the kernel that runs it on a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from streamq.operators.kernel_factory import KernelFactory, RecomputeFactory
from streamq.plan.expr import Cast, Col, Expr
from streamq.plan.passes import reads_end
from streamq.plan.schema import Schema, key_types
from streamq.runtime.endpoints import Bound
from streamq.runtime.evaluator import Evaluator
from streamq.runtime.evaluators.pair_condition import PairCondition

Columns = tuple[tuple[str, Expr], ...]
"""Pairs of a column's name and the expression that computes it."""


@dataclass(frozen=True)
class PortColumns:
    """The columns that a kernel or evaluator reads of one input, as expressions over that input.

    Events with equal values in the columns ``hashed`` go to the same bucket; without such columns all events go to one.
    In windows that count events, the order by the columns ``ordered`` decides which events share a window.
    """

    columns: Columns
    hashed: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()

    @property
    def reads_ends(self) -> bool:
        """True if a column depends on the end of an event."""
        return any(reads_end(expr) for _, expr in self.columns)


class EndMoves(Enum):
    """The cases in which a result row's end may still move after the result's CTI has passed the row's start."""

    NEVER = auto()
    """The end is final by then."""
    AS_INPUTS = auto()
    """The end may move if ends in some input may."""
    ALWAYS = auto()
    """The end may move even if no end in an input does."""

    def over(self, is_input_moving: bool) -> bool:
        """Return True if ends in the result may move; ``is_input_moving``: ends in some input may."""
        return is_input_moving if self is EndMoves.AS_INPUTS else self is EndMoves.ALWAYS


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The description of how to run an operator: ``factory`` makes the kernel for a stream, :mod:`batch_host` runs a batch."""

    evaluator: Evaluator
    inputs: tuple[PortColumns, ...]

    schema: Schema
    """The columns of the evaluator's rows."""

    outputs: Columns = ()
    """The columns of the result, computed from the evaluator's rows; empty: those rows are the result."""

    bound: Bound = Bound.NONE
    """The rule that bounds windows (or pieces) once the input has ended; a user's ``until`` bounds those of all lifetimes."""

    pointwise: tuple[int, ...] = ()
    """The inputs, by number, whose events the evaluator sees as points at their starts."""

    reads_ends: bool = False
    """True if rows depend on the ends of events themselves, not only on which events are alive at each instant."""

    waiting: Evaluator | None = None
    """The evaluator to use if the operator reads ends that may still move: a row waits until its own events are settled.

    None: a settle kernel in front of the operator lets the CTI, and where only final rows are read the events, wait.
    """

    moves: EndMoves = EndMoves.ALWAYS
    """The cases in which ends in the result move."""

    sets_aside: bool = False
    """True if a module of the user's quarantines its failures; the evaluator's ``rows`` then takes a ``SetAside``, too."""

    factory: KernelFactory = field(default_factory=RecomputeFactory)
    """The factory of the kernel that runs the operator on a stream."""

    group_columns: tuple[str, ...] | None = None
    """The columns of the evaluator's rows that hold the columns ``hashed`` of the events behind them, in their order.

    None: there are no such columns, or nobody has promised it."""

    @property
    def waits(self) -> bool:
        """True if the evaluator waits until the ends of a row's own events are settled."""
        return self.evaluator is self.waiting

    @property
    def bucket_columns(self) -> tuple[str, ...] | None:
        """The columns by whose values a row of the evaluator's is in the bucket of its events; None: no columns tell.

        () if all events are in one bucket.
        """
        return self.group_columns if any(port.hashed for port in self.inputs) else ()


def all_columns(schema: Schema) -> Columns:
    """Return each column of a schema as an expression, under its own name."""
    return tuple((name, Col(name)) for name in schema.names)


@dataclass(frozen=True)
class KeyColumns:
    """The key columns of two inputs, cast to a common type and renamed ``__k0``, ``__k1``, ... on both sides.

    ``on`` are the pairs (left, right) of those names, in the form that evaluators take.
    """

    left: Columns
    right: Columns
    on: tuple[tuple[str, str], ...]

    @property
    def hashed(self) -> tuple[str, ...]:
        """The names of the key columns, which are the same on both sides."""
        return tuple(name for name, _ in self.left)

    def left_columns(self, names: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return the result's columns that hold the left keys; None if one is cast. ``names``: result columns by left ones."""
        copied = [expr.copied_column for _, expr in self.left]
        columns = [names[name] for name in copied if name is not None and name in names]
        return tuple(columns) if len(columns) == len(self.left) else None

    @staticmethod
    def from_pairs(left: Schema, right: Schema, on: tuple[tuple[str, str], ...]) -> KeyColumns:
        """Return the key columns for the pairs ``on``: a column of the left input, a column of the right one."""
        left_keys, right_keys = [], []
        for i, ((a, b), common) in enumerate(zip(on, key_types(left, right, on), strict=True)):
            left_keys.append((f"__k{i}", Col(a) if left.type_of(a) == common else Cast(Col(a), common)))
            right_keys.append((f"__k{i}", Col(b) if right.type_of(b) == common else Cast(Col(b), common)))
        return KeyColumns(tuple(left_keys), tuple(right_keys), tuple((f"__k{i}", f"__k{i}") for i in range(len(on))))


def condition_of(where: Expr | None, pair: Schema) -> PairCondition | None:
    """Return a join's condition in the form that evaluators take, None for None; ``pair`` has the columns of both sides."""
    return None if where is None else PairCondition(where, pair)


__all__ = ["Columns", "Evaluation", "KeyColumns", "EndMoves", "PortColumns", "all_columns", "condition_of"]
