"""Snapshot aggregates in batch, without copying members into windows: by a sweep if sums can be subtracted, else by merges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from streamq.operators.batch_form import BatchForm
from streamq.operators.merging import merge_partials
from streamq.operators.split_aggregates import partial_columns, partial_fields
from streamq.plan.aggregation import Expansion
from streamq.plan.lowering import lifetime, spark_expression
from streamq.plan.partial import SparkPartial, SummablePartial, spark_partials
from streamq.plan.schema import INTERVAL, Field, Schema, quote
from streamq.runtime.event import LE, RE
from streamq.windows.batch_events import COUNT, ENDS, INDEX, NUMBER, STARTS, same_keys
from streamq.windows.snapshot import snapshot_members, snapshot_windows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def snapshots(source: Schema, keys: tuple[str, ...], split: Expansion, form: BatchForm, df: DataFrame) -> DataFrame:
    """Return one row for each snapshot with members: the keys, the aggregates, ``__wle`` and ``__wre``.

    ``df`` has the events, of the schema ``source``; ``split`` has the aggregates as partial results. ``form`` is SWEEP, for exact
    partial results, or DYADIC, for any partial results that Spark can make and merge.
    """
    quoted = [quote(k) for k in keys]
    df = df.select(*lifetime(source), *(quote(n) for n in source.names))
    if form == BatchForm.SWEEP:
        summed = [partial for partial in split.partials if isinstance(partial, SummablePartial) and partial.exact]
        assert len(summed) == len(split.partials)
        rows = _swept(source, df, split, summed, quoted)
    else:
        partials = spark_partials(split.partials)
        assert partials is not None
        rows = _merged(source, df, split, partials, keys)
    fields = [Field(k, source.type_of(k)) for k in keys]
    fields += partial_fields(split.partials)
    inner = source.with_fields(fields).with_shape(INTERVAL)
    return rows.select(*quoted, STARTS, ENDS, *(spark_expression(e, inner).alias(name) for name, e in split.outputs))


def _swept(
    source: Schema, df: DataFrame, split: Expansion, summed: Sequence[SummablePartial], keys: list[str]
) -> DataFrame:
    """Return one row for each snapshot with members: keys, bounds, the number of members, and ``summed``, NULL over no values.

    Each event is added at its start and subtracted at its end: a running sum over the endpoints of a group, O(n log n).
    ``keys`` are quoted.
    """
    values = {name: spark_expression(expr, source) for name, expr in split.arguments}
    columns = [column for partial in summed for column in partial.swept(values[partial.arg])]
    names = [name for partial in summed for name in partial.columns]
    df = df.select(LE, RE, *keys, *columns)

    def change(at: str, sign: int) -> Column:
        signed = [(F.col(n) if sign > 0 else -F.col(n)).alias(n) for n in names]
        return F.struct(F.col(at).alias(STARTS), F.lit(sign).cast("bigint").alias(COUNT), *signed)

    # the last change at an instant has the sums there, and the next instant
    order = Over.partitionBy(*keys).orderBy(STARTS)
    running = order.rowsBetween(Over.unboundedPreceding, Over.currentRow)
    changes = df.select(*keys, F.inline(F.array(change(LE, 1), change(RE, -1))))
    changes = changes.select(
        *keys,
        STARTS,
        F.lead(STARTS).over(order).alias(ENDS),
        *(F.sum(n).over(running).alias(n) for n in (COUNT, *names)),
    )
    changes = changes.where(F.col(STARTS) < F.col(ENDS))
    changes = changes.where(F.col(COUNT) > 0)
    for partial in summed:
        for name, kind in partial.fields:
            if (count := partial.null_over_none.get(name)) is not None:
                changes = changes.withColumn(name, F.when(F.col(count) > 0, F.col(name).cast(kind)))
    return changes


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
