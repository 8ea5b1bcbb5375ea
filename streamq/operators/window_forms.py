"""The batch forms of windows that are not merged from partial results of a grid.

Snapshot aggregates are computed without copying members into windows: as running sums if these can be subtracted, else by merges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from streamq.operators.merging import NEXT, merge_partials, merge_stretches, not_subtracted
from streamq.operators.operator import BatchChoice, BatchForm, BatchForms
from streamq.operators.split_aggregates import partial_columns, partial_fields
from streamq.plan.aggregation import Aggregates, Expansion, expand, not_merged
from streamq.plan.lowering import lifetime, spark_expression
from streamq.plan.partial import SparkPartial, SummablePartial, spark_partials
from streamq.plan.schema import INTERVAL, Field, Schema, quote
from streamq.runtime.event import LE, RE
from streamq.time import INFINITY
from streamq.windows import Window
from streamq.windows.batch_events import COUNT, ENDS, HI, INDEX, LO, NUMBER, STARTS, same_keys
from streamq.windows.snapshot import snapshot_members, snapshot_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


MANY_WINDOWS = 4
"""The number of windows of an event from which on a batch costs less without copies of it."""


@dataclass(frozen=True, kw_only=True)
class WindowForms:
    """The choice of a batch form for ``aggregates`` of events of ``source``; ``is_grouped``: there are keys of groups."""

    aggregates: Aggregates
    source: Schema
    window: Window
    is_grouped: bool

    def forms(self) -> BatchForms:
        """Return the forms, one of which computes all aggregates.

        Snapshots are running sums if all aggregates are exact, merged if Spark has all partial results. Else they are evaluated,
        unless one aggregate does not merge and one copies its members. Those, and other windows, copy their members, or are
        evaluated if Spark lacks one of the aggregates, or if the groups' events are in many windows each, of which no aggregate
        needs copies. But landmark windows with a period are copied if all aggregates merge: Spark adds up the copies before it
        sends them.
        """
        refused = {**self._refused_merging(), **self._refused_copies()}
        return BatchForms(cheapest=self._cheapest(refused), refused=refused)

    def _cheapest(self, refused: dict[BatchForm, str]) -> BatchChoice:
        """Return the form of the least cost; ``refused``: the forms that are not possible."""
        merges, copies = (
            not self._not_merged,
            any(aggregate.function.copies_members for _, aggregate in self.aggregates),
        )
        if self.window.is_piecewise:
            if BatchForm.DIFFERENCE not in refused:
                return BatchChoice(form=BatchForm.DIFFERENCE, reason="exact aggregates: added and taken off")
            if BatchForm.DYADIC not in refused:
                return BatchChoice(form=BatchForm.DYADIC, reason="partial results of ranges of snapshots")
            if merges or not copies:
                return BatchChoice(
                    form=BatchForm.EVALUATED, reason="snapshots of what Spark would copy each member for"
                )
        if BatchForm.DIRECT in refused:
            return BatchChoice(form=BatchForm.EVALUATED, reason=refused[BatchForm.DIRECT])
        number = self.window.windows_of_a_point
        are_added_first = merges and not self.window.by_numbers and number < INFINITY
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
        """Return the reason against copies of members, if Spark lacks one of the aggregates."""
        functions = [aggregate.function for _, aggregate in self.aggregates]
        lacking = next((function for function in functions if not function.has_spark_form), None)
        return {} if lacking is None else {BatchForm.DIRECT: f"Spark has no aggregate for {lacking.name}"}

    def _refused_merging(self) -> dict[BatchForm, str]:
        """Return the reasons against the forms that merge partial results."""
        off_grid = "its windows are not on a grid"
        if self.window.is_piecewise:
            return {**dict.fromkeys((BatchForm.EXPLODE, BatchForm.BLOCKS), off_grid), **self._refused_snapshots()}
        unsplit = (off_grid if self.window.grid is None else self._not_merged) or "its windows are not split"
        return dict.fromkeys((BatchForm.EXPLODE, BatchForm.DIFFERENCE, BatchForm.BLOCKS, BatchForm.DYADIC), unsplit)

    def _refused_snapshots(self) -> dict[BatchForm, str]:
        """Return the reasons against merging partial results of snapshots."""
        either = (BatchForm.DYADIC, BatchForm.DIFFERENCE)
        if self._not_merged:
            return dict.fromkeys(either, self._not_merged)
        partials = spark_partials(expand(self.aggregates, self.source).partials)
        if partials is None:
            return dict.fromkeys(either, "partial results that Arrow makes and merges")
        inexact = [p for p in partials if not (isinstance(p, SummablePartial) and p.exact)]
        return {BatchForm.DIFFERENCE: not_subtracted(inexact)} if inexact else {}


def snapshots(source: Schema, keys: tuple[str, ...], split: Expansion, form: BatchForm, df: DataFrame) -> DataFrame:
    """Return one row for each snapshot with members: the keys, the aggregates, ``__wle`` and ``__wre``.

    ``df`` has the events, of the schema ``source``; ``split`` has the aggregates as partial results. ``form`` is DIFFERENCE, for
    exact partial results, or DYADIC, for any partial results that Spark can make and merge.
    """
    quoted = [quote(k) for k in keys]
    df = df.select(*lifetime(source), *(quote(n) for n in source.names))
    if form == BatchForm.DIFFERENCE:
        summed = [partial for partial in split.partials if isinstance(partial, SummablePartial) and partial.exact]
        assert len(summed) == len(split.partials)
        rows = _added_and_taken_off(source, df, split, summed, keys)
    else:
        partials = spark_partials(split.partials)
        assert partials is not None
        rows = _merged(source, df, split, partials, keys)
    fields = [Field(k, source.type_of(k)) for k in keys]
    fields += partial_fields(split.partials)
    inner = source.with_fields(fields).with_shape(INTERVAL)
    return rows.select(*quoted, STARTS, ENDS, *(spark_expression(e, inner).alias(name) for name, e in split.outputs))


def _added_and_taken_off(
    source: Schema, df: DataFrame, split: Expansion, summed: Sequence[SummablePartial], keys: tuple[str, ...]
) -> DataFrame:
    """Return one row for each snapshot with members: keys, bounds, the number of members, and ``summed``, NULL over no values.

    Each event is a partial result over the instants of its lifetime; the stretches with the same members are the snapshots.
    """
    values = {name: spark_expression(expr, source) for name, expr in split.arguments}
    columns = [column for partial in summed for column in partial.swept(values[partial.arg])]
    lifetimes = (F.col(LE).alias(LO), (F.col(RE) - 1).alias(HI), F.lit(1).cast("bigint").alias(COUNT))
    events = df.select(*(quote(k) for k in keys), *lifetimes, *columns)
    return merge_stretches(events, keys, summed).withColumnsRenamed({INDEX: STARTS, NEXT: ENDS})


def _merged(
    source: Schema, df: DataFrame, split: Expansion, partials: Sequence[SparkPartial], keys: tuple[str, ...]
) -> DataFrame:
    """Return one row for each snapshot with members: keys, bounds, the number of members, and ``partials``.

    One partial result, for all events with the same range of snapshots, is merged over dyadic nodes. ``keys`` are not
    quoted.
    """
    quoted = [quote(k) for k in keys]
    windows = snapshot_windows(df, quoted)
    events = snapshot_members(df, windows, quoted)
    columns = [F.count(F.lit(1)).alias(COUNT), *partial_columns(split.arguments, partials, source)]
    ranges = events.groupBy(*quoted, "__lo", "__hi").agg(*columns)
    merged = merge_partials(ranges, keys, partials, 1, BatchForm.DYADIC)
    intervals, on = same_keys(windows, quoted, [NUMBER, STARTS, ENDS])
    return merged.join(intervals, on & (F.col(INDEX) == F.col(NUMBER)))
