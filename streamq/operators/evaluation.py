"""Evaluations: an operator's evaluator, the columns that it reads from each input, and the kernel that runs it on a stream.

A kernel factory of the operator chooses the kernel; the compiler describes the site to run it at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, ClassVar

import pyarrow as pa

from streamq.operators.operator import Operator
from streamq.operators.step import Step
from streamq.plan.expr import Cast, Col, Expr
from streamq.plan.footprint import Expected
from streamq.plan.node import Node
from streamq.plan.passes import reads_end
from streamq.plan.schema import Schema, key_types
from streamq.runtime.deltas import LE
from streamq.runtime.evaluator import Evaluator
from streamq.runtime.evaluators.joins import PairCondition
from streamq.runtime.kernel import Kernel
from streamq.runtime.kernels.recompute import RecomputeKernel
from streamq.runtime.time.consistency import AlignAt
from streamq.runtime.time.endpoints import Bound


@dataclass(frozen=True, kw_only=True)
class KernelSite:
    """The compiler's choices for a kernel.

    ``inputs``: the payload columns of each port. ``result``: the payload columns of the rows that the kernel sends. ``final``:
    rows wait until they are final. ``early``: a row is sent as soon as it exists, before it is final. ``late_output``: the run
    has a late output. ``ends_move``: ends of the first input's events may still move; ``retracts``: they may be taken back;
    ``points``: they are declared points. ``blocks``: the level of consistency holds events back one by one.
    """

    inputs: tuple[pa.Schema, ...]
    result: tuple[str, ...]
    final: bool = False
    early: bool = False
    late_output: bool = False
    ends_move: bool = False
    retracts: bool = False
    points: bool = False
    blocks: bool = False


class KernelFactory(ABC):
    """A factory of the kernel that runs an operator on a stream, from the operator's :class:`Evaluation` and a site."""

    run_by: ClassVar[str]
    """The way to run an operator with state, in the words of explain."""

    kind: ClassVar[str] = ""
    """The kind with which the names of its kernels begin; "": the operator's title."""

    corrects: ClassVar[bool]
    """True if the kernel retracts rows that it has sent, if they change."""

    also_keeps: ClassVar[str] = ""
    """The rows that the kernel keeps beside what the operator states."""

    combines: ClassVar[bool] = False
    """True if rows are combined before they are sent to the kernel."""

    condenses: ClassVar[bool] = False
    """True if the kernel replaces settled events by partial results of several."""

    always_holds: ClassVar[bool] = False
    """True if the kernel waits for final rows wherever only these are read; else only where a result reads it, if it can hold."""

    aligns: ClassVar[AlignAt | None] = AlignAt.INPUT
    """The point at which a level of consistency holds rows back; None: the kernel reports at the watermark by itself."""

    @abstractmethod
    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        """Return a new kernel for the operator of ``evaluation``."""

    @property
    def can_hold(self) -> bool:
        """True if the kernel can hold its rows back until they are final, as ``site.final`` asks."""
        return self.corrects

    def state(self, node: Node, evaluation: Evaluation, kernel: Kernel) -> Any:
        """Return, as values that plans hold, what makes the kernel's state beside its input, for the state's name."""
        return [node, evaluation.waits]

    def columns_of_state(self, columns: PortColumns) -> PortColumns:
        """Return the columns of an input by which the state is named."""
        return columns

    def partials_of_state(self) -> tuple[tuple[str, str], ...]:
        """Return the columns of the state of which a query may have fewer to go on, each with its text for people."""
        return ()

    def lines(self, node: Operator, kernel: Kernel) -> tuple[str, ...]:
        """Return explain's lines on the kernel: the operator, what runs it, its state and its cost, and when rows are final."""
        footprint = node.footprint
        if self.also_keeps:
            footprint = replace(footprint, keeps=f"{footprint.keeps}; {self.also_keeps}")
        cti = kernel.progress_rule.cti.shown(len(node.children))
        return node.line, f"run by: {self.run_by}", *footprint.lines(cti)

    def expected_rows(self, rows: float | None, expected: Expected) -> float | None:
        """Return the rows a tick of the result, at most, over ``rows`` a tick of the first input; None if unknown."""
        return None


class OwnKernelFactory(KernelFactory):
    """A factory for an operator with a kernel of its own instead of its evaluator; ``kernel`` makes it."""

    run_by = "a kernel of its own"
    corrects = False

    def __init__(self, kernel: Callable[[KernelSite], Kernel]):
        self._kernel = kernel

    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        return self._kernel(site)


class CorrectingKernelFactory(OwnKernelFactory):
    """A factory of a kernel of an operator's own that sends rows which it may have to take back, and can hold them back."""

    corrects = True


class RecomputeFactory(KernelFactory):
    """A factory of the kernel ``recompute`` over the operator's evaluator; subclasses make kernels that keep more than events."""

    run_by = "its evaluator"
    corrects = True
    also_keeps = "rows reported that may change"

    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        return RecomputeKernel(**self.parameters(evaluation, site))

    def parameters(self, evaluation: Evaluation, site: KernelSite) -> dict[str, Any]:
        """Return the keyword arguments that every kernel over an evaluator takes."""
        return {
            "evaluator": evaluation.evaluator,
            "inputs": site.inputs,
            "result": site.result,
            "final": site.final,
            "early": site.early,
            "bound": evaluation.bound,
            "pointwise": evaluation.pointwise,
        }


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
    def meet_none(self) -> bool:
        """True if the events of an operator meet no others: they are spread by start, only so that no bucket has all of them."""
        return self.hashed == (LE,)

    def hashed_before(self, steps: Sequence[Step]) -> tuple[str, ...] | None:
        """Return the columns of the rows before ``steps`` that the columns ``hashed`` copy, in order; None if one is computed."""
        exprs = dict(self.columns)
        copied = [copied_before(steps, exprs.get(name)) for name in self.hashed]
        names = tuple(name for name in copied if name is not None)
        return names if len(names) == len(copied) else None

    @property
    def reads_ends(self) -> bool:
        """True if a column depends on the end of an event."""
        return any(reads_end(expr) for _, expr in self.columns)


def copied_before(steps: Sequence[Step], expr: Expr | None) -> str | None:
    """Return the column of the rows before ``steps`` that an expression over the rows behind them copies; None if none does."""
    name = None if expr is None else expr.copied_column
    for step in reversed(steps):
        name = None if name is None else step.copied_column(name)
    return name


class EndMoves(Enum):
    """The cases in which a result row's end may still move after the result's CTI has passed the row's start."""

    NEVER = auto()
    """The end is final by then."""
    AS_INPUTS = auto()
    """The end may move if ends in some input may."""
    ALWAYS = auto()
    """The end may move even if no end in an input does."""

    def may_move(self, is_input_moving: bool) -> bool:
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
    """True if a module of the user's quarantines its failures; the evaluator's ``rows`` then takes a ``QuarantineRows``, too."""

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
