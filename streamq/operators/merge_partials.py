"""MergePartials: windows on a grid, merged from partial results of ranges of windows.

The forms of a batch stand in docs/decisions/forms_of_windows_in_batch.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.choices import ClipInput, Stamp
from streamq.operators.evaluated_operator import EvaluatedOperator, batch_events
from streamq.operators.evaluation import EndMoves, Evaluation, PortColumns
from streamq.operators.grid_factory import GridFactory, ResultWindows, partial_columns, partial_fields, show_partials
from streamq.operators.member_operator import due_parts
from streamq.operators.operator import BatchForm, BatchForms, BatchRun, only_evaluated
from streamq.operators.window_forms import choose_form, merge_partials, not_subtracted
from streamq.plan.expr import Col, Expr
from streamq.plan.footprint import ExpectedRates, Footprint
from streamq.plan.node import Node, Traits, node
from streamq.plan.partial import Partial, SparkPartial, spark_partials
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, check_key, quote, show_keys
from streamq.runtime.evaluators.window_evaluator import WindowEvaluator
from streamq.runtime.kernels.windows_of_sizes import NUMBER
from streamq.runtime.time.endpoints import Bound
from streamq.windows import Hopping
from streamq.windows.batch_events import (
    COUNT,
    HI,
    INDEX,
    LO,
    grid_members,
    in_windows,
    stamped,
    starting_before,
    window_bounds,
)
from streamq.windows.window import result_traits, show_lengths


@node
class MergePartials(EvaluatedOperator):
    """Merges partial results of the events of ``input`` into one row for each window with members, by groups of ``keys``.

    A partial result is that of the events of one group and range of windows (DataCell's basic window). ``arguments`` are the
    columns, by name, that the partial results are computed from; several may share one. Rows live on their windows, or at their
    ends. ``results``: the windows that a stream merges them into, if they are not ``window``, but may be shorter; a row has the
    number of its window's size in ``__window``, and NULL for partial results that these windows do not show.
    """

    input: Node
    keys: tuple[str, ...]
    window: Hopping
    arguments: tuple[tuple[str, Expr], ...]
    partials: tuple[Partial, ...]
    stamp: Stamp = Stamp.ALIGN
    results: tuple[ResultWindows, ...] = ()

    @property
    def title(self) -> str:
        return self.window.name

    @property
    def footprint(self) -> Footprint:
        blocks, cost = (
            "",
            "a merge of the partial results in a window that is reported, over long ranges of log2 of them",
        )
        if self.factory.may_have_blocks:
            blocks = "; in a bucket with many rows of them also those of blocks of 8, 64, ... hops"
            cost = "a merge of O(log n) blocks of the n hops of a window that is reported and of what began before it, of a "
            cost += "bucket with few rows one by one"
        return Footprint(
            cti="start of the earliest window not final; at point_at_end c",
            final="windows that end at or before c; where a value reads an end that may still move, once their "
            "members are settled too",
            keeps=f"partial results of windows not final{blocks}; where events may be taken back, values with weights",
            opens=due_parts("partial results"),
            cost=cost,
        )

    def _schema(self) -> Schema:
        """Return the keys, the number of events and the partial results, with the stamp's lifetimes."""
        source = self.input.schema
        for key in self.keys:
            check_key(source.require(key, "group_by"), key)
        keys = (Field(k, source.type_of(k)) for k in self.keys)
        number = (Field(NUMBER, t.LongType()),) * bool(self.results)
        fields = (*keys, Field(COUNT, t.LongType()), *partial_fields(self.partials), *number)
        return source.with_fields(fields).with_shape(POINT if self.stamp == Stamp.POINT_AT_END else INTERVAL)

    def _traits(self) -> Traits:
        """Return the traits of rows on the windows; those of several windows are as long as the longest."""
        windows = [one.window for one in self.results] or [self.window]
        return reduce(or_, (result_traits(window, self.stamp, self.input.traits) for window in windows))

    def detail(self) -> str:
        windows = [one.window for one in self.results] or [self.window]
        sizes = "; ".join(show_lengths(window, ClipInput.FULL, self.stamp, self.schema.axis) for window in windows)
        return f"{sizes}{show_keys(self.keys)}: {show_partials(self.arguments, self.partials)}"

    @property
    def module_notes(self) -> tuple[str, ...]:
        n = self.window.grid.n
        notes = (partial.note(n) for partial in self.partials)
        return tuple(dict.fromkeys(note for note in notes if note is not None))

    @property
    def event_windows(self) -> Hopping | None:
        return None if self.results else self.window

    @property
    def factory(self) -> GridFactory:
        """The factory of the kernel."""
        return GridFactory(
            input=self.input,
            keys=self.keys,
            grid=self.window.grid,
            arguments=self.arguments,
            partials=self.partials,
            merges=True,
            stamp=self.stamp,
            results=self.results,
            columns=self.schema.fields if self.results else (),
        )

    def _evaluation(self) -> Evaluation:
        """Return the evaluator of windows over the events themselves, whose partial results Arrow makes and merges."""

        def evaluator(waits_for_members: bool) -> WindowEvaluator:
            return WindowEvaluator(
                self.window.assigner(()),
                self.keys,
                ClipInput.FULL,
                self.stamp,
                False,
                self.partials,
                waits_for_members=waits_for_members,
            )

        return Evaluation(
            evaluator=evaluator(False),
            waiting=evaluator(True),
            inputs=(PortColumns((*((k, Col(k)) for k in self.keys), *self.arguments), self.keys),),
            schema=self.schema,
            bound=Bound.ENDLESS,
            moves=EndMoves.NEVER,
            group_columns=self.keys,
            factory=self.factory,
        )

    def copied_column(self, name: str) -> str | None:
        return name if name in self.keys else None

    def batch_forms(self, rates: ExpectedRates) -> BatchForms | None:
        """Return the forms for the input's shape and its windows; the evaluator, if Spark cannot make some partial result."""
        partials = spark_partials(self.partials)
        if partials is None:
            return only_evaluated("partial results that Arrow makes and merges")
        shape = self.input.schema.shape
        reason = not_subtracted(partials)
        refused: dict[BatchForm, str] = {BatchForm.RUNNING: "its windows are no snapshots"}
        refused |= {BatchForm.DIFFERENCE: reason} if reason else {}
        if shape != POINT:
            refused[BatchForm.BLOCKS] = "its events are no points"
        per_event = self.factory.partials_an_event(rates)
        grid, longest = self.window.grid, self.input.traits.longest
        most = None if longest is None else (grid.size + longest - 2) // grid.hop + 1
        cheapest = choose_form(shape, grid.n, partials, per_event, most)
        return BatchForms(cheapest=cheapest, refused=refused)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Merge in the form that is chosen, on DataFrames or by the evaluator."""
        forms, partials = self.batch_forms(run.rates), spark_partials(self.partials)
        assert forms is not None and not self.results, "windows of several sizes are merged together in streams only"
        form = forms.choose(run.hint).form
        if partials is None or form == BatchForm.EVALUATED:
            return super().in_batch(inputs, run)
        if form == BatchForm.DIRECT:
            return self._stamped(self._direct(inputs[0], partials, run))
        grid, ranges = self.window.grid, self._ranges(inputs[0], partials, run)
        windows = merge_partials(ranges, list(self.keys), partials, grid.n, form)
        return self._stamped(starting_before(windows, grid, run.until))

    def _stamped(self, rows: DataFrame) -> DataFrame:
        """Return rows of windows, which have the windows' numbers, with the stamp's lifetimes."""
        return stamped(rows, self.stamp, self.schema, *window_bounds(self.window.grid))

    def _direct(self, df: DataFrame, partials: Sequence[SparkPartial], run: BatchRun) -> DataFrame:
        """Aggregate the events ``df``, copied into their windows, without partial results."""
        events = in_windows(batch_events(self.input, df, run), self.window.grid)
        return events.groupBy(*(quote(k) for k in self.keys), INDEX).agg(*self._columns(partials))

    def _ranges(self, df: DataFrame, partials: Sequence[SparkPartial], run: BatchRun) -> DataFrame:
        """Group the events ``df`` by keys and range of windows.

        Points on a grid whose hop divides its size need only the range's last window. Ranges of points go beyond the bound
        ``until``: the merge leaves out the windows there.
        """
        shape, grid = self.input.schema.shape, self.window.grid
        events = grid_members(batch_events(self.input, df, run), grid, whole=shape == POINT)
        single = shape == POINT and grid.divides
        ranges = [F.col(HI)] if single else [F.col(LO), F.col(HI)]
        rows = events.groupBy(*(F.col(quote(k)) for k in self.keys), *ranges).agg(*self._columns(partials))
        return rows.withColumn(LO, F.col(HI) - (grid.n - 1)) if single else rows

    def _columns(self, partials: Sequence[SparkPartial]) -> list[Column]:
        """Return the number of events and the partial results as Spark aggregates."""
        return [F.count(F.lit(1)).alias(COUNT), *partial_columns(self.arguments, partials, self.input.schema)]
