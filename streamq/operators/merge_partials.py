"""MergePartials: merges partial results of window ranges into windows, by one of five strategies (docs/architecture.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as t

from streamq.choices import ClipInput, Stamp
from streamq.operators.batch_form import BatchForm, BatchForms
from streamq.operators.batch_host import evaluate_in_buckets
from streamq.operators.evaluation import Evaluation, PortColumns
from streamq.operators.grid_aggregation import GridAggregation, ShownWindows
from streamq.operators.lifetime_bound import batch_events
from streamq.operators.merging import merge_partials
from streamq.operators.operator import BatchRun, Operator
from streamq.operators.partial_aggregate import PartialAggregate, partial_columns, show_partials
from streamq.plan.expr import Col
from streamq.plan.footprint import ExpectedRates, Footprint
from streamq.plan.node import Traits, node
from streamq.plan.own_names import show_keys
from streamq.plan.partial import SparkPartial, spark_partials
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, quote
from streamq.runtime.endpoints import Bound
from streamq.runtime.evaluators.window_evaluator import WindowEvaluator
from streamq.runtime.kernels.windows_of_sizes import NUMBER
from streamq.runtime.progress_rule import Cti
from streamq.windows import Window
from streamq.windows.batch_events import COUNT, INDEX, in_windows, stamped, starting_before, window_bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@node
class MergePartials(Operator):
    """Merges the partial results of ``input`` into one row for each window with members, on its interval or at its end.

    ``shown``: the windows that a stream merges them into, if they are not those of ``input``, but may be shorter; a row has the
    number of its window's size in ``__window``, and NULL for partial results that these windows do not show.
    """

    input: PartialAggregate
    stamp: Stamp = Stamp.ALIGN
    shown: tuple[ShownWindows, ...] = ()

    title = "merge"
    only_rewritten = True

    @property
    def footprint(self) -> Footprint:
        return self.grid_windows().footprint

    def _schema(self) -> Schema:
        """Return the columns of the partial results without their ranges of windows, with the stamp's lifetimes."""
        fields = [f for f in self.input.schema.fields if f.name not in ("__lo", "__hi")]
        fields += [Field(NUMBER, t.LongType())] * bool(self.shown)
        shape = POINT if self.stamp == Stamp.POINT_AT_END else INTERVAL
        return self.input.schema.with_fields(fields).with_shape(shape)

    def _traits(self) -> Traits:
        return Traits()

    def detail(self) -> str:
        part = self.input
        shown = show_partials(part.arguments, part.partials)
        windows = [one.window for one in self.shown] or [part.window]
        sizes = "; ".join(window.shown_with(ClipInput.FULL, self.stamp, self.schema.axis) for window in windows)
        return f"{sizes}{show_keys(part.keys)}: {shown}"

    @property
    def progress(self) -> str:
        return (Cti.INPUT if self.stamp == Stamp.POINT_AT_END else Cti.EARLIEST_WINDOW).shown()

    @property
    def keeps_state(self) -> bool:
        return True

    @property
    def event_windows(self) -> Window | None:
        return None if self.shown else self.input.window

    @property
    def reads_judged_rows(self) -> bool:
        return bool(self.shown)

    def grid_windows(self) -> GridAggregation:
        """Return the windows as a grid whose partial results are made before the shuffle."""
        part = self.input
        return GridAggregation(
            input=part.input,
            keys=part.keys,
            window=part.window,
            arguments=part.arguments,
            partials=part.partials,
            merges=True,
            stamp=self.stamp,
            shown=self.shown,
            columns=self.schema.fields if self.shown else (),
        )

    def batch_forms(self, rates: ExpectedRates) -> BatchForms | None:
        """Return the forms for the input's shape and its windows; the evaluator, if Spark cannot make some partial result.

        A batch does not merge windows of several sizes together.
        """
        return None if self.shown else self.input.merge_forms(rates)

    def copied_column(self, name: str) -> str | None:
        return name if name in self.input.keys else None

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Merge in the form that is chosen, on DataFrames or by the evaluator."""
        assert not self.shown, "windows of several sizes are merged together in streams only"
        part, form = self.input, self.input.merge_forms(run.rates).choose(run.hint).form
        partials = spark_partials(part.partials)
        if partials is None or form == BatchForm.EVALUATED:
            return evaluate_in_buckets(self._evaluation(), [part.input], inputs, run)
        if form == BatchForm.DIRECT:
            return self._direct(inputs[0], partials, run)
        grid = part.window.basic_grid()
        windows = merge_partials(inputs[0], list(part.keys), partials, grid.n, form, divides=grid.divides)
        return self._stamped(starting_before(windows, grid, run.until))

    def _stamped(self, rows: DataFrame) -> DataFrame:
        """Return rows of windows, which have the windows' numbers, with the stamp's lifetimes."""
        return stamped(rows, self.stamp, self.schema, *window_bounds(self.input.window.basic_grid()))

    def _direct(self, df: DataFrame, partials: Sequence[SparkPartial], run: BatchRun) -> DataFrame:
        """Aggregate the events ``df``, copied into their windows, without partial results."""
        from pyspark.sql import functions as F

        part, grid = self.input, self.input.window.basic_grid()
        events = in_windows(batch_events(part.input, df, run), grid)
        columns = [F.count(F.lit(1)).alias(COUNT), *partial_columns(part.arguments, partials, part.input.schema)]
        rows = events.groupBy(*(quote(k) for k in part.keys), INDEX).agg(*columns)
        return self._stamped(rows)

    def _evaluation(self) -> Evaluation:
        """Return the evaluator of windows over the events themselves, whose partial results Arrow makes and merges."""
        part = self.input
        columns = (*((k, Col(k)) for k in part.keys), *part.arguments)
        return Evaluation(
            evaluator=WindowEvaluator(
                part.window.assigner(()), part.keys, ClipInput.FULL, self.stamp, False, part.partials
            ),
            inputs=(PortColumns(columns, part.keys),),
            schema=self.schema,
            bound=Bound.ENDLESS,
            group_columns=part.keys,
        )
