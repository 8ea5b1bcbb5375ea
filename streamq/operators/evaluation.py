"""How an operator is hosted: its evaluator, the columns that it reads of each input, and what it asks of its kernel."""

from __future__ import annotations

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
"""Names and the expressions that they stand for."""


@dataclass(frozen=True)
class PortColumns:
    """The columns that a kernel or evaluator reads of one input, as expressions over that input.

    Events with equal values of the columns ``hashed`` are processed in the same bucket; without such columns all events are.
    The order of the columns ``ordered`` decides, beside those, which events are taken together.
    """

    columns: Columns
    hashed: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()

    @property
    def reads_ends(self) -> bool:
        """Whether a column depends on the end of an event."""
        return any(reads_end(expr) for _, expr in self.columns)


class EndMoves(Enum):
    """Whether the end of a row in the result may still move once the result's CTI has passed the row's start."""

    NEVER = auto()
    """It has its last end by then."""
    AS_INPUTS = auto()
    """It moves if ends in some input do."""
    ALWAYS = auto()
    """It may move, whatever the inputs do."""

    def over(self, is_input_moving: bool) -> bool:
        """Whether ends move over inputs of which some do, or none does."""
        return is_input_moving if self is EndMoves.AS_INPUTS else self is EndMoves.ALWAYS


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The way in which an operator is run: on a stream by the kernel that its factory makes, in batch by :mod:`batch_host`."""

    evaluator: Evaluator
    inputs: tuple[PortColumns, ...]

    schema: Schema
    """The columns of the evaluator's rows."""

    outputs: Columns = ()
    """The columns of the result, computed from the evaluator's rows; empty: those rows are the result."""

    bound: Bound = Bound.NONE
    """Which windows (or pieces) of lifetimes without an end the result has once the input has ended."""

    pointwise: tuple[int, ...] = ()
    """The inputs, by number, whose events the evaluator sees as points at their starts."""

    reads_ends: bool = False
    """Whether rows depend on the ends of events, not only on who is alive when."""

    waiting: Evaluator | None = None
    """The evaluator of an operator that reads ends which may still move: its rows wait for the events that they are made of.

    None: such events wait before the operator until they are settled.
    """

    moves: EndMoves = EndMoves.ALWAYS
    """Whether ends in the result move."""

    unmoved: Evaluator | None = None
    """A cheaper evaluator for a first input in which no end ever moves."""

    sets_aside: bool = False
    """True if a module of a user's sets aside what it fails for; then ``rows`` of the evaluator takes ``QuarantineRows``, too."""

    factory: KernelFactory = field(default_factory=RecomputeFactory)
    """Makes the kernel that runs the operator on a stream."""


def all_columns(schema: Schema) -> Columns:
    """Return each column of a schema as an expression, under its own name."""
    return tuple((name, Col(name)) for name in schema.names)


@dataclass(frozen=True)
class KeyColumns:
    """The key columns of two inputs, cast to a common type and renamed ``__k0``, ``__k1``, ... on both sides.

    ``on`` are the pairs of those names (left, right), as evaluators take them.
    """

    left: Columns
    right: Columns
    on: tuple[tuple[str, str], ...]

    @property
    def hashed(self) -> tuple[str, ...]:
        """The names of the key columns, which are the same on both sides."""
        return tuple(name for name, _ in self.left)

    @staticmethod
    def from_pairs(left: Schema, right: Schema, on: tuple[tuple[str, str], ...]) -> KeyColumns:
        """Return the key columns for the pairs ``on``: a column of the left input, a column of the right one."""
        left_keys, right_keys = [], []
        for i, ((a, b), common) in enumerate(zip(on, key_types(left, right, on), strict=True)):
            left_keys.append((f"__k{i}", Col(a) if left.type_of(a) == common else Cast(Col(a), common)))
            right_keys.append((f"__k{i}", Col(b) if right.type_of(b) == common else Cast(Col(b), common)))
        return KeyColumns(tuple(left_keys), tuple(right_keys), tuple((f"__k{i}", f"__k{i}") for i in range(len(on))))


def condition_of(where: Expr | None, pair: Schema) -> PairCondition | None:
    """Return the predicate of a join as evaluators take it; ``pair`` has the columns of both sides. None stays None."""
    return None if where is None else PairCondition(where, pair)


__all__ = ["Columns", "Evaluation", "KeyColumns", "EndMoves", "PortColumns", "all_columns", "condition_of"]
