"""The factory of kernels of windows on a grid, which combine partial results, values or the best events of basic windows.

The aggregates of a window are split: each into partial results that merge, or into a reduction of its values or members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column

from streamq.choices import ClipInput, Stamp
from streamq.operators.evaluation import Columns, Evaluation, KernelFactory, KernelSite, PortColumns, RecomputeFactory
from streamq.operators.operator import Operator
from streamq.plan.aggregate import Aggregate
from streamq.plan.aggregation import Aggregates, application, expand, filter_in_argument, is_mergeable
from streamq.plan.expr import Case, Col, Expr, Lit, show
from streamq.plan.footprint import Expected, ExpectedRates
from streamq.plan.function import VersionedCode
from streamq.plan.lowering import spark_expression
from streamq.plan.node import Node
from streamq.plan.partial import COUNT, Partial, ReducedColumn, Reduction, SparkPartial, are_exact
from streamq.plan.passes import columns, functions, reads_end
from streamq.plan.schema import POINT, Field, Schema
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.evaluators.window_evaluator import Ranking, value_columns
from streamq.runtime.kernel import Kernel
from streamq.runtime.kernels.condensing import WindowsKernel
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.kernels.windows_of_sizes import NumberedWindowsKernel, RankedWindowsKernel, WindowsOfSizesKernel
from streamq.runtime.state.window_bins import block_sizes
from streamq.time import Grid
from streamq.windows import Hopping


class EventColumns:
    """The columns that are computed of events, by name; an expression that is asked for twice has one column."""

    def __init__(self, columns: Iterable[tuple[str, Expr]]):
        self.columns = dict(columns)

    def column(self, expr: Expr) -> str:
        """Return the name of the column that holds an expression; it is added if there is none yet."""
        name = next((name for name, held in self.columns.items() if held.digest == expr.digest), None)
        if name is None:
            name = f"__arg{len(self.columns)}"
            self.columns[name] = expr
        return name


@dataclass(frozen=True)
class SplitAggregates:
    """A window's aggregates as ``partials`` and ``reductions`` of the columns ``events``.

    ``reduced``: the result columns of the reductions; ``outputs``: the aggregates, as expressions over all results.
    """

    events: EventColumns
    partials: tuple[Partial, ...]
    reductions: tuple[Reduction, ...]
    reduced: tuple[Field, ...]
    outputs: Columns


def split_aggregates(aggregates: Aggregates, source: Schema, result: Schema, payload: Iterable[str]) -> SplitAggregates:
    """Split aggregates over events of the schema ``source`` into columns of ``result``; ``payload`` are columns read beside.

    Equal expressions share a column, also with the payload.
    """
    merging = tuple((name, a) for name, a in aggregates if is_mergeable(a, source))
    merged = {name for name, _ in merging}
    reducing = [(name, filter_in_argument(a)) for name, a in aggregates if name not in merged]
    expansion = expand(merging, source)
    events = EventColumns((*expansion.arguments, *((name, Col(name)) for name in payload)))
    values = dict(expansion.outputs) | {name: Col(name) for name, _ in reducing}
    return SplitAggregates(
        events=events,
        partials=expansion.partials,
        reductions=tuple(_reduction(name, a, source, events.column) for name, a in reducing),
        reduced=tuple(Field(name, result.type_of(name)) for name, _ in reducing),
        outputs=tuple((name, values[name]) for name, _ in aggregates),
    )


def _reduction(name: str, aggregate: Aggregate, source: Schema, column: Callable[[Expr], str]) -> Reduction:
    """Return the reduction of all members to the result column ``name``.

    ``column`` returns the name of the column that holds an expression, and adds the column if there is none yet.
    """
    of = application(aggregate, source)
    args, where = aggregate.function.operands(of), None
    if aggregate.where is not None:
        # an argument is evaluated only where the filter is true
        where, args = column(aggregate.where), tuple(Case((aggregate.where, e, Lit(None))) for e in args)
    kind = arrow_type(aggregate.function.result(of))
    axis = arrow_type(source.axis_type)
    reduced = ReducedColumn(name, tuple(column(e) for e in args), kind, where, aggregate.options, axis)
    reduction = aggregate.function.reduction(reduced)
    assert reduction is not None, f"{aggregate} has neither partial results nor a reduction"
    return reduction


def partial_fields(partials: Iterable[Partial]) -> list[Field]:
    """Return the columns of partial results."""
    return [Field(name, kind) for partial in partials for name, kind in partial.fields]


def show_partials(arguments: Iterable[tuple[str, Expr]], partials: Iterable[Partial]) -> str:
    """Return the partial results as explain shows them: ``count(*), sum(fare)``."""
    named = tuple(arguments)
    return ", ".join(["count(*)", *(show_partial(named, partial) for partial in partials)])


def show_partial(arguments: Iterable[tuple[str, Expr]], partial: Partial) -> str:
    """Return a partial result as explain shows it: ``sum(fare)``."""
    shown = {name: show(expr) for name, expr in arguments}
    return f"{partial.title}({', '.join(shown[arg] for arg in partial.shown_args)})"


def partial_columns(
    arguments: Iterable[tuple[str, Expr]], partials: Iterable[SparkPartial], schema: Schema
) -> list[Column]:
    """Return the columns of partial results as Spark aggregates."""
    values = {name: spark_expression(expr, schema) for name, expr in arguments}
    return [column for partial in partials for column in partial.on_spark(values)]


def basic_windows(rows: float, groups: float, grid: Grid) -> float:
    """Return the basic windows a tick that have points, at most, where ``rows`` points of so many groups come a tick."""
    panes = 1 if grid.divides else 2
    return min(rows, panes * groups / grid.hop)


@dataclass(frozen=True)
class ResultWindows:
    """Windows on a grid that are merged from the basic windows of longer ones: they show the partial results of these names."""

    window: Hopping
    partials: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GridFactory(KernelFactory):
    """A factory for an aggregation of the events of ``input``, by ``keys`` and windows on a ``grid``, to ``partials``.

    These are of the columns ``arguments``. ``merges``: partial results of events that nobody takes back are merged for good; else
    they are values with weights.
    ``reductions`` are computed from values of the members; some read lifetimes, as ``clip`` cuts them, or order members of one
    start by the columns ``order``. ``ranking``: the result has the best members of windows instead; their columns are
    ``arguments``, but for the keys. Rows live on their windows, or are points at their ends, as the ``stamp`` says. ``results``:
    the windows whose rows are the result, with the columns ``columns``, each with the number of its window; (): those on
    ``grid`` are.
    """

    run_by = "partial results of ranges of windows, merged"
    kind = "window"
    combines = True
    corrects = True
    always_holds = True
    aligns = None

    input: Node
    keys: tuple[str, ...]
    grid: Grid
    arguments: tuple[tuple[str, Expr], ...]
    partials: tuple[Partial, ...]
    merges: bool
    reductions: tuple[Reduction, ...] = ()
    ranking: Ranking | None = None
    clip: ClipInput = ClipInput.FULL
    order: tuple[str, ...] = ()
    stamp: Stamp = Stamp.ALIGN
    results: tuple[ResultWindows, ...] = ()
    columns: tuple[Field, ...] = ()

    @property
    def may_have_blocks(self) -> bool:
        """True if a stream merges many partial results into blocks of hops: see :attr:`WindowAggregateKernel.may_have_blocks`."""
        retracts = self.input.traits.retracts
        merge = (self.merges and not retracts) or are_exact(self.partials)
        are_partial = self.ranking is None and not self.reductions
        reads_moving = retracts and any(reads_end(expr) for _, expr in self.arguments)
        return merge and not self.by_window and are_partial and not reads_moving and bool(block_sizes(self.grid))

    def expected_rows(self, rows: float | None, expected: Expected) -> float | None:
        """Return the windows a tick with members, at most, over ``rows`` events a tick; None if unknown."""
        groups = expected.groups(self.input, self.keys)
        if groups is None:
            return None
        grids = [result.window.grid for result in self.results] or [self.grid]
        if rows is None or self.input.schema.shape != POINT:
            return sum(groups / grid.hop for grid in grids)
        return sum(min(rows * grid.n, groups / grid.hop) for grid in grids)

    def expected_state(self, lag: int, rates: ExpectedRates, expected: Expected) -> tuple[float, float] | None:
        """Return the rows of state: partial results, also of blocks of 8, 64, ... hops, or values with their numbers.

        They are those in micro-batches of a hop or longer, and at most: a shorter one adds partial results of its own, and values
        that no window needs any more stay until half of a bin are. Blocks are counted also of so few rows that there are none
        (``basic_window_blocks``), as bins are wider then, and rows stay for longer. None if they cannot be estimated; ``lag`` as
        in ``estimates.py``.
        """
        grid, are_points, rows = self.grid, self.input.schema.shape == POINT, rates.rate(self.input)
        longest = 0 if are_points else self.input.traits.longest
        if rows is None or longest is None:
            return None
        every = rows * (grid.size + grid.hop + longest + lag)
        is_insert_only = are_points and not self.input.traits.retracts
        if is_insert_only and (self.reductions or self.ranking):
            values = self._values(expected)
            span = grid.size + grid.hop + lag
            return every if values is None else min(every, basic_windows(rows, values, grid) * span), 2 * every
        groups = expected.groups(self.input, self.keys)
        sizes = (0, *block_sizes(grid)) if self.may_have_blocks else (0,)
        spans = [replace(grid, hop=grid.hop << logarithm) for logarithm in sizes]
        each = [(span.size + span.hop + lag) * rows for span in spans]
        usual = [
            (span.size + span.hop + lag) * (rows if groups is None else basic_windows(rows, groups, span))
            for span in spans
        ]
        if is_insert_only:
            return sum(usual), sum(each)
        # with blocks, a range is one of a basic window and up to two others
        return every + sum(usual[1:]), (3 if len(spans) > 1 else 2) * every + sum(each[1:])

    def partials_an_event(self, rates: ExpectedRates) -> float | None:
        """Return the rows sent by that of events, at most, in micro-batches of a hop or longer; None if it is not known."""
        rows, expected = rates.rate(self.input), rates.expected
        if rows is None or expected is None or self.input.schema.shape != POINT:
            return None if rows is None else 1.0
        if self.ranking is not None and self.input.traits.retracts:
            return 1.0
        groups = self._values(expected) if self.reductions or self.ranking else expected.groups(self.input, self.keys)
        return None if groups is None else basic_windows(rows, groups, self.grid) / rows

    def _values(self, expected: Expected) -> float | None:
        """Return the number of rows that are held of a basic window, at most; None if it is unknown.

        These are the best of each group, or the different values that the reductions read, with their groups.
        """
        if self.ranking is not None:
            groups = expected.groups(self.input, self.keys)
            return None if groups is None else groups * self.ranking.k
        if any(reduction.reads_lifetimes for reduction in self.reductions):
            return None
        arguments = dict(self.arguments)
        read = {column for name in value_columns(self.reductions) for column in columns(arguments[name])}
        return expected.groups(self.input, (*self.keys, *sorted(read.difference(self.keys))))

    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        kernel = WindowAggregateKernel(
            self.keys,
            self.grid,
            self.partials,
            site.points,
            merges=self.merges and (not site.retracts or self._subtracts(evaluation)),
            infinite=self.input.traits.infinite,
            reads_end=evaluation.waits,
            final=site.final,
            early=site.early and not site.final,
            reductions=self.reductions,
            clip=self.clip,
            order=self.order,
            at_ends=self.stamp == Stamp.POINT_AT_END,
            retracts=site.retracts,
        )
        if self.ranking is not None:
            return RankedWindowsKernel(**vars(kernel), ranking=self.ranking)
        return self._of_sizes(kernel) if self.results else kernel

    def _subtracts(self, evaluation: Evaluation) -> bool:
        """True if events may be taken out of merged results; sums alone, that are exact, are kept with weights."""
        if evaluation.waits or are_exact(self.partials):
            return False
        return all(partial.subtracts for partial in self.partials)

    @property
    def by_window(self) -> bool:
        """True if a partial result is of a single window."""
        return any(partial.by_window for partial in self.partials)

    def state(self, node: Node, evaluation: Evaluation, kernel: Kernel) -> Any:
        assert isinstance(kernel, WindowAggregateKernel)
        held: Any = (*self.reductions, *filter(None, [self.ranking]), *self.order)
        if self._has_columns:
            held = [kernel.may_have_blocks, *sorted(module.name for module in self.modules)]
        else:
            held = (*self.partials, *held)
        return [self.grid, self.keys, self.stamp, held, kernel.merges, kernel.infinite, kernel.reads_end]

    def columns_of_state(self, columns: PortColumns) -> PortColumns:
        if not self._has_columns:
            return columns
        return replace(columns, columns=tuple((name, expr) for name, expr in columns.columns if name in self.keys))

    def partials_of_state(self) -> tuple[tuple[str, str], ...]:
        if not self._has_columns:
            return ()
        shown = ((partial.name, show_partial(self.arguments, partial)) for partial in self.partials)
        return (COUNT, "count(*)"), *shown

    @property
    def _has_columns(self) -> bool:
        """True if its state is partial results alone, each a column, so that a query that has fewer of them goes on."""
        return self.merges and self.ranking is None and not self.by_window

    @property
    def modules(self) -> set[VersionedCode]:
        """The modules of the user's own that its partial results and arguments call."""
        called = [function for _, expr in self.arguments for function in functions(expr)]
        return {m for m in (*called, *(m for p in self.partials for m in p.modules)) if isinstance(m, VersionedCode)}

    def lines(self, node: Operator, kernel: Kernel) -> tuple[str, ...]:
        assert isinstance(kernel, WindowAggregateKernel)
        keeps = "windows not final" + ", and members not settled" * kernel.reads_end
        footprint = replace(
            node.footprint,
            final=kernel.progress_rule.final_rows,
            keeps=keeps + "; rows reported and not final" * (not kernel.final),
            for_good="",
        )
        held = f"{kernel.held_form}, combined before the shuffle"
        return node.line, f"run by: {self.run_by}", held, *footprint.lines(kernel.progress_rule.cti.shown())

    def _of_sizes(self, longest: WindowAggregateKernel) -> WindowsOfSizesKernel:
        """Return the kernel of all windows with results, on the state of the longest ones."""
        kernels = [
            replace(
                longest,
                window=result.window.grid,
                partials=tuple(partial for partial in self.partials if partial.name in result.partials),
            )
            for result in self.results
        ]
        columns = tuple((field.name, arrow_type(field.type)) for field in self.columns)
        return WindowsOfSizesKernel(**vars(longest), results=tuple(kernels), columns=columns)


@dataclass(frozen=True)
class NumberedFactory(RecomputeFactory):
    """A factory for windows of rows, by the numbers of rows: ``windows`` makes the kernel of windows on the axis of numbers.

    Where rows may be taken back, or their ends move, others get other numbers, and windows are computed from their members.
    """

    run_by = "the numbers of rows, and partial results of steps, merged"
    also_keeps = ""

    windows: GridFactory

    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        parameters = self.parameters(evaluation, site)
        if site.retracts or site.ends_move:
            return WindowsKernel(**parameters)
        windows = self.windows.make(evaluation, replace(site, final=True, early=False, points=True))
        assert isinstance(windows, WindowAggregateKernel)
        return NumberedWindowsKernel(**parameters, windows=replace(windows, infinite=False))

    def state(self, node: Node, evaluation: Evaluation, kernel: Kernel) -> Any:
        return [super().state(node, evaluation, kernel), isinstance(kernel, NumberedWindowsKernel)]
