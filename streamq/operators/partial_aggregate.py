"""PartialAggregate: reduces the events of each basic window (each range of windows) to partial results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as t

from streamq.operators.batch_form import BatchForm, BatchForms, only_evaluated
from streamq.operators.grid_aggregation import basic_windows
from streamq.operators.lifetime_bound import batch_events
from streamq.operators.merging import choose_form, not_subtracted
from streamq.operators.operator import BatchRun, PassThrough
from streamq.plan.expr import Expr
from streamq.plan.footprint import Expected, ExpectedRates, Footprint
from streamq.plan.lowering import spark_expression
from streamq.plan.node import Node, Traits, node
from streamq.plan.own_names import show_keys
from streamq.plan.partial import Partial, SparkPartial, spark_partials
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, check_key, quote
from streamq.plan.tree import show
from streamq.windows import Window
from streamq.windows.batch_events import COUNT, HI, LO, grid_members

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@node
class PartialAggregate(PassThrough):
    """Groups the events of ``input`` by keys and range of windows (DataCell's basic window) into partial results.

    ``arguments`` are the columns, by name, that the partial results are computed from; several may share one.
    """

    input: Node
    keys: tuple[str, ...]
    window: Window
    arguments: tuple[tuple[str, Expr], ...]
    partials: tuple[Partial, ...]

    title = "partial"
    only_rewritten = True

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            final="none by itself: the merge that reads it says when",
            keeps="none; held by the merge",
            cost="a group by of what is new by keys and range of windows, before the shuffle",
        )

    def _schema(self) -> Schema:
        """Return the keys, the first and last window of the range, the number of events, and the partial results."""
        source = self.input.schema
        for key in self.keys:
            check_key(source.require(key, "group_by"), key)
        fields = [Field(k, source.type_of(k)) for k in self.keys]
        fields += [Field(name, t.LongType()) for name in (LO, HI, COUNT)]
        fields += partial_fields(self.partials)
        return source.with_fields(fields).with_shape(INTERVAL)

    def _traits(self) -> Traits:
        return self.input.traits

    def detail(self) -> str:
        shown = show_partials(self.arguments, self.partials)
        return f"{self.window.shown(self.schema.axis)}{show_keys(self.keys)}: {shown}"

    @property
    def module_notes(self) -> tuple[str, ...]:
        n = self.window.basic_grid().n
        notes = (partial.note(n) for partial in self.partials)
        return tuple(dict.fromkeys(note for note in notes if note is not None))

    def expected_rows(self, inputs: Sequence[float | None], expected: Expected) -> float | None:
        (rows,) = inputs
        if rows is None or self.input.schema.shape != POINT:
            return rows
        groups = expected.groups(self.input, self.keys)
        return None if groups is None else basic_windows(rows, groups, self.window.basic_grid())

    def copied_column(self, name: str) -> str | None:
        return name if name in self.keys else None

    def merge_forms(self, rates: ExpectedRates) -> BatchForms:
        """Return the forms in which a batch merges the partial results; DIRECT and EVALUATED read the events instead."""
        partials = spark_partials(self.partials)
        if partials is None:
            return only_evaluated("partial results that Arrow makes and merges")
        are_points = self.input.schema.shape == POINT
        refused = {BatchForm.SWEEP: "its windows are on a grid, and no snapshots"}
        if reason := not_subtracted(partials):
            refused[BatchForm.DIFFERENCE] = reason
        if not are_points:
            refused[BatchForm.BLOCKS] = "its events are no points"
        events, combined = rates.of(self.input), rates.of(self)
        per_event = combined / events if events and combined else None
        shape = POINT if are_points else INTERVAL
        cheapest = choose_form(shape, self.window.basic_grid().n, partials, per_event)
        return BatchForms(cheapest=cheapest, refused=refused)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Group by keys and range of windows; points on a grid whose hop divides its size need only the range's last window.

        Ranges of points go beyond the bound ``until``: the merge leaves out the windows there. If it reads the events themselves,
        they are returned unchanged.
        """
        from pyspark.sql import functions as F

        partials = spark_partials(self.partials)
        form = self.merge_forms(run.rates).choose(run.hint).form
        if partials is None or form in (BatchForm.DIRECT, BatchForm.EVALUATED):
            return inputs[0]
        source, grid = self.input.schema, self.window.basic_grid()
        events = grid_members(batch_events(self.input, inputs[0], run), grid, whole=source.shape == POINT)
        columns = [F.count(F.lit(1)).alias(COUNT), *partial_columns(self.arguments, partials, source)]
        single = source.shape == POINT and grid.divides
        ranges = [F.col(HI)] if single else [F.col(LO), F.col(HI)]
        rows = events.groupBy(*(F.col(quote(k)) for k in self.keys), *ranges).agg(*columns)
        if single:
            rows = rows.withColumn(LO, F.col(HI) - (grid.n - 1))
        return rows.select(*(quote(f.name) for f in self.schema.fields))


def partial_fields(partials: Iterable[Partial]) -> list[Field]:
    """Return the columns of partial results."""
    return [Field(name, kind) for partial in partials for name, kind in partial.fields]


def show_partials(arguments: Iterable[tuple[str, Expr]], partials: Iterable[Partial]) -> str:
    """Return the partial results as explain shows them: ``count(*), sum(fare)``."""
    shown = {name: show(expr) for name, expr in arguments}
    calls = (f"{partial.title}({', '.join(shown[arg] for arg in partial.shown_args)})" for partial in partials)
    return ", ".join(["count(*)", *calls])


def partial_columns(
    arguments: Iterable[tuple[str, Expr]], partials: Iterable[SparkPartial], schema: Schema
) -> list[Column]:
    """Return the columns of partial results as Spark aggregates."""
    values = {name: spark_expression(expr, schema) for name, expr in arguments}
    return [column for partial in partials for column in partial.on_spark(values)]


__all__ = ["PartialAggregate", "partial_columns", "partial_fields", "show_partials"]
