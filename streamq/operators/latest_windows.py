"""LatestWindows and LatestPairs: aggregates over the last rows of one stream, or over the pairs of those of two, by groups.

Both are what the rewriter makes of snapshots over ``last_rows``, for input that is never taken back. A batch computes these
snapshots themselves.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.choices import JoinKind, Stamp
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import (
    CorrectingKernelFactory,
    EndMoves,
    Evaluation,
    KernelSite,
    KeyColumns,
    PortColumns,
    condition_of,
)
from streamq.operators.grid_factory import SplitAggregates, partial_fields, split_aggregates
from streamq.operators.join import Join
from streamq.operators.join_arguments import Pairs
from streamq.operators.operator import BatchForms, BatchRun
from streamq.operators.select import Where
from streamq.operators.spans import LastRows
from streamq.operators.window_aggregate import WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col, Expr, show
from streamq.plan.footprint import ExpectedRates, Footprint, Retention
from streamq.plan.node import Node, Traits, node
from streamq.plan.partial import COUNT
from streamq.plan.passes import columns, substitute
from streamq.plan.schema import Field, Schema, lazy, quote, show_keys, shown_name
from streamq.runtime.evaluators.joins import JoinEvaluator
from streamq.runtime.kernel import Kernel
from streamq.runtime.kernels.latest_windows import LASTS, LatestPairsKernel, LatestWindowsKernel
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.kernels.windows_of_sizes import RowNumbers
from streamq.windows import Rows, Snapshot


class LatestAggregate(EvaluatedOperator):
    """Aggregates the members of the latest windows of rows; a row lives until a member of its group comes or goes."""

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]

    @lazy
    def snapshots(self) -> WindowAggregate:
        """The same as snapshots of the lifetimes of last rows."""
        return WindowAggregate(self._last_rows(), self.keys, Snapshot(), self.aggregates)

    @abstractmethod
    def _last_rows(self) -> Node:
        """Return the members with their lifetimes."""

    @abstractmethod
    def _last_rows_in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Return the same in a batch."""

    def _schema(self) -> Schema:
        return self.snapshots.schema

    def _traits(self) -> Traits:
        return self.snapshots.traits

    def copied_column(self, name: str) -> str | None:
        return None

    def batch_forms(self, rates: ExpectedRates) -> BatchForms:
        return self.snapshots.batch_forms(rates)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        return self.snapshots.in_batch([self._last_rows_in_batch(inputs, run)], run)


@node
class LatestWindows(LatestAggregate):
    """Aggregates the last rows of ``input``, by groups; ``window`` has the condition on members, and the inner keys."""

    input: Node
    keys: tuple[str, ...]
    window: Rows
    aggregates: tuple[tuple[str, Aggregate], ...]

    title = "latest windows"

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            cti="c",
            final="settled rows",
            keeps="rows that start at c or later; partial results of steps, and blocks of them; the windows to come at which a "
            "group changes; the rows that live",
            opens="parts, the partial results in a window that is due, the rows that live, and the rows from c on where rows are "
            "sent before they are final",
            cost="a sort of the rows that c passes, and a merge of the partial results of the groups that change in a window",
            bounds=(Retention(0, self.window.n + self.window.step),),
        )

    def detail(self) -> str:
        return self._counted.detail()

    @lazy
    def _counted(self) -> WindowAggregate:
        """The windows that last rows are the latest of."""
        return WindowAggregate(self.input, self.keys, self.window, self.aggregates, stamp=Stamp.POINT_AT_END)

    def _last_rows(self) -> Node:
        rows = LastRows(self.input, (), self.window)
        return Where(rows, Col(self.window.where)) if self.window.where else rows

    def _last_rows_in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        rows = LastRows(self.input, (), self.window).in_batch(inputs, run)
        return rows.where(F.col(quote(self.window.where))) if self.window.where else rows

    def _evaluation(self) -> Evaluation:
        """Return the evaluation of the windows by numbers, with the kernel that tells the latest of them."""
        windows = self._counted.evaluation
        counting = self.window.assigner(self.input.schema.names).traits.counting
        numbers = RowNumbers(counting.n, counting.step, counting.order_by, counting.where)

        def kernel(site: KernelSite) -> Kernel:
            partials = self._counted.numbered_grid.make(windows, replace(site, final=True, early=False, points=True))
            assert isinstance(partials, WindowAggregateKernel) and not site.retracts
            return LatestWindowsKernel(
                (numbers,),
                site.inputs,
                self.keys,
                site.result,
                partials.partials,
                site.final,
                site.early,
                windows=partials,
            )

        return replace(windows, moves=EndMoves.ALWAYS, group_columns=(), factory=CorrectingKernelFactory(kernel))


@node
class LatestPairs(LatestAggregate):
    """Aggregates the pairs of the last rows of two streams, as an inner join of these has them, by groups."""

    left: Node
    right: Node
    windows: tuple[Rows, Rows]
    on: Pairs
    where: Expr | None
    left_names: Pairs
    right_names: Pairs
    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]

    title = "latest pairs"

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            cti="c, the least over the inputs",
            final="settled rows",
            keeps="rows that start at c or later, those of the latest windows; partial results of pairs of steps; the rows that "
            "live",
            opens="parts, the rows of a side's latest window where the other has new ones, and all partial results for a "
            "window",
            cost="the pairs of new rows, and a merge of the partial results of the groups that change in a window",
            bounds=tuple(Retention(0, 2 * (window.n + window.step)) for window in self.windows),
        )

    def detail(self) -> str:
        left, right = (window.shown(self.schema.axis) for window in self.windows)
        rows = left if left == right else f"{left}; {right}"
        shown = ", ".join(f"{shown_name(name)} = {show(a)}" for name, a in self.aggregates)
        return f"{rows}, {self._join.detail()}{show_keys(self.keys)}: {shown}"

    @lazy
    def _join(self) -> Join:
        left, right = LastRows(self.left, (), self.windows[0]), LastRows(self.right, (), self.windows[1])
        return Join(left, right, self.on, self.where, JoinKind.INNER, self.left_names, self.right_names)

    def _last_rows(self) -> Node:
        return self._join

    def _last_rows_in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        sides = zip((self._join.left, self._join.right), inputs, strict=True)
        return self._join.in_batch([rows.in_batch([df], run) for rows, df in sides if isinstance(rows, LastRows)], run)

    @property
    def split(self) -> SplitAggregates:
        return split_aggregates(self.aggregates, self._join.schema, self.schema, ())

    def _evaluation(self) -> Evaluation:
        """Return the evaluator of pairs; the columns that partial results read are computed on the side that has them."""
        pair, split = self._join.schema, self.split
        read = dict.fromkeys(self.keys) | dict.fromkeys(() if self.where is None else sorted(columns(self.where)))
        arguments = {**{name: Col(name) for name in read}, **split.events.columns}
        ports, numbers, named = list[PortColumns](), list[RowNumbers](), list[tuple[str, ...]]()
        keys = KeyColumns.from_pairs(self.left.schema, self.right.schema, self.on)
        sides = (self.left, self.left_names, keys.left), (self.right, self.right_names, keys.right)
        for (side, names, on), window in zip(sides, self.windows, strict=True):
            own = {to: Col(n) for n, to in names}
            mine = {name: expr for name, expr in arguments.items() if columns(expr) <= own.keys()}
            arguments = {name: expr for name, expr in arguments.items() if name not in mine}
            order = tuple((f"__order{i}", Col(n)) for i, n in enumerate(window.order(side.schema.names)))
            arguments_here = tuple((name, substitute(expr, own)) for name, expr in mine.items())
            ports.append(PortColumns((*arguments_here, *on, *order), ordered=tuple(name for name, _ in order)))
            numbers.append(RowNumbers(window.n, window.step, tuple(name for name, _ in order)))
            named.append((*mine, LASTS[len(named)]))
        assert not arguments, "each argument reads one side, as the rewriter has checked"
        read_pair = pair.with_fields([field for field in pair.fields if field.name in read])
        evaluator = JoinEvaluator(JoinKind.INNER, keys.on, condition_of(self.where, read_pair), named[0], named[1], ())
        fields = [Field(key, pair.type_of(key)) for key in self.keys]
        fields += [Field(COUNT, t.LongType()), *partial_fields(split.partials)]

        def kernel(site: KernelSite) -> Kernel:
            assert not site.retracts
            return LatestPairsKernel(
                tuple(numbers),
                site.inputs,
                self.keys,
                site.result,
                split.partials,
                final=site.final,
                early=site.early,
                evaluator=evaluator,
            )

        return Evaluation(
            evaluator=evaluator,
            inputs=tuple(ports),
            schema=self.schema.with_fields(fields),
            outputs=(*((key, Col(key)) for key in self.keys), *split.outputs),
            pointwise=(0, 1),
            moves=EndMoves.ALWAYS,
            group_columns=(),
            factory=CorrectingKernelFactory(kernel),
        )
