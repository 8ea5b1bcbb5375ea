"""The batch forms of windows that are not merged from partial results of a grid.

Snapshot aggregates are computed without copying members into windows: of events that do not end by merging them in order, of
others as running sums if these can be subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamq.operators.grid_factory import partial_fields
from streamq.operators.merging import NEXT, merge_stretches, not_subtracted, running_stretches
from streamq.operators.operator import BatchChoice, BatchForm, BatchForms
from streamq.plan.aggregation import Aggregates, Expansion, expand, not_merged
from streamq.plan.lowering import lifetime, spark_expression
from streamq.plan.partial import are_exact, spark_partials
from streamq.plan.schema import INTERVAL, Field, Schema, quote
from streamq.runtime.deltas import LE, RE
from streamq.time import INFINITY
from streamq.windows import Window
from streamq.windows.batch_events import COUNT, ENDS, HI, INDEX, LO, STARTS

MANY_WINDOWS = 4
"""The number of windows of an event from which on a batch costs less without copies of it."""


@dataclass(frozen=True, kw_only=True)
class WindowForms:
    """The choice of a batch form for ``aggregates`` of events of ``source``.

    ``is_grouped``: there are keys of groups. ``endless``: no event ends.
    """

    aggregates: Aggregates
    source: Schema
    window: Window
    is_grouped: bool
    endless: bool

    def forms(self) -> BatchForms:
        """Return the forms, one of which computes all aggregates.

        Snapshots of events that do not end are merged in their order; others are running sums if all aggregates are exact,
        else evaluated, as windows by numbers are: to copy their members their events would be read several times. Other windows
        copy their members, or are evaluated if Spark lacks one of the aggregates, or if the groups' events are in many windows
        each, of which no aggregate needs copies. But landmark windows with a period are copied if all aggregates merge: Spark
        adds up the copies before it sends them.
        """
        refused = {**self._refused_merging(), **self._refused_copies()}
        return BatchForms(cheapest=self._cheapest(refused), refused=refused)

    def _cheapest(self, refused: dict[BatchForm, str]) -> BatchChoice:
        """Return the form of the least cost; ``refused``: the forms that are not possible."""
        if self.window.is_piecewise and BatchForm.RUNNING not in refused:
            return BatchChoice(form=BatchForm.RUNNING, reason="no event ends: merged in the order of starts")
        if self.window.is_piecewise and BatchForm.DIFFERENCE not in refused:
            return BatchChoice(form=BatchForm.DIFFERENCE, reason="exact aggregates: added and taken off")
        if BatchForm.DIRECT in refused:
            return BatchChoice(form=BatchForm.EVALUATED, reason=refused[BatchForm.DIRECT])
        number = self.window.windows_of_a_point
        copies = any(aggregate.function.copies_members for _, aggregate in self.aggregates)
        are_added_first = not self._not_merged and number < INFINITY
        # without keys one task would have to evaluate all events
        if number >= MANY_WINDOWS and self.is_grouped and not copies and not are_added_first:
            windows = f"{number} windows" if number < INFINITY else "all later windows"
            return BatchChoice(
                form=BatchForm.EVALUATED, reason=f"each event is in {windows}, which costs less without copies"
            )
        return BatchChoice(form=BatchForm.DIRECT, reason="Spark aggregates copies of the members")

    @property
    def _not_merged(self) -> str:
        """The aggregates that do not merge, as text; "" if all do."""
        return not_merged(self.aggregates, self.source)

    def _refused_copies(self) -> dict[BatchForm, str]:
        """Return the reason against copies of members, if they take several readings, or Spark lacks one of the aggregates."""
        if not self.window.is_copied:
            return {BatchForm.DIRECT: f"to copy members of {self.window.name} windows, events are read several times"}
        functions = [aggregate.function for _, aggregate in self.aggregates]
        lacking = next((function for function in functions if not function.has_spark_form), None)
        return {} if lacking is None else {BatchForm.DIRECT: f"Spark has no aggregate for {lacking.name}"}

    def _refused_merging(self) -> dict[BatchForm, str]:
        """Return the reasons against the forms that merge partial results."""
        off_grid = "its windows are not on a grid"
        if self.window.is_piecewise:
            in_spark = None if self._not_merged else spark_partials(expand(self.aggregates, self.source).partials)
            unmerged = self._not_merged or ("partial results that Arrow makes and merges" if in_spark is None else "")
            ends = "" if self.endless else "its events may end"
            reasons = {
                **dict.fromkeys((BatchForm.EXPLODE, BatchForm.BLOCKS, BatchForm.DYADIC), off_grid),
                BatchForm.RUNNING: unmerged or ends,
                BatchForm.DIFFERENCE: unmerged or not_subtracted(in_spark or ()),
            }
            return {form: reason for form, reason in reasons.items() if reason}
        unsplit = (off_grid if self.window.grid is None else self._not_merged) or "its windows are not split"
        return {form: unsplit for form in BatchForm if form not in (BatchForm.DIRECT, BatchForm.EVALUATED)}


def snapshots(source: Schema, keys: tuple[str, ...], split: Expansion, df: DataFrame, form: BatchForm) -> DataFrame:
    """Return one row for each snapshot with members: the keys, the aggregates, ``__wle`` and ``__wre``.

    ``df`` has the events, of the schema ``source``; ``split`` the aggregates as partial results. Each event is a partial result
    over the instants of its lifetime; the stretches with the same members are the snapshots. ``form``: DIFFERENCE, of exact
    partial results, or RUNNING, of events that do not end.
    """
    quoted = [quote(k) for k in keys]
    df = df.select(*lifetime(source), *(quote(n) for n in source.names))
    partials = spark_partials(split.partials)
    assert partials is not None and (form is BatchForm.RUNNING or are_exact(partials))
    values = {name: spark_expression(expr, source) for name, expr in split.arguments}
    columns = [column for partial in partials for column in partial.of_event(values)]
    ranges = (F.col(LE).alias(LO), (F.col(RE) - 1).alias(HI), F.lit(1).cast("bigint").alias(COUNT))
    stretches = running_stretches if form is BatchForm.RUNNING else merge_stretches
    rows = stretches(df.select(*quoted, *ranges, *columns), keys, partials)
    rows = rows.withColumnsRenamed({INDEX: STARTS, NEXT: ENDS})
    rows = rows.withColumn(ENDS, F.coalesce(ENDS, F.lit(INFINITY)))
    fields = [Field(k, source.type_of(k)) for k in keys]
    fields += partial_fields(split.partials)
    inner = source.with_fields(fields).with_shape(INTERVAL)
    return rows.select(*quoted, STARTS, ENDS, *(spark_expression(e, inner).alias(name) for name, e in split.outputs))
