"""Snapshot aggregates in batch without a copy a window.

A sweep where sums can be taken off again; merged partial results where there are some; else the evaluator of streams, over
buckets of groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Window as Over
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from streamq.compiler.lowering import as_key, lifetime, ship_runtime, spark_expression
from streamq.compiler.merging import PartialSlot, merge_partials
from streamq.compiler.operators.partial_aggregate import Slot, expand, partial_columns
from streamq.compiler.operators.window_aggregate import COUNT, INDEX, WindowAggregate
from streamq.compiler.window_members import ENDS, NUMBER, STARTS, numbered, same_keys, snapshot_windows
from streamq.expr import Col
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.evaluator import evaluation
from streamq.runtime.event import LE, RE
from streamq.schema import Field, infer, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKETS = 4
"""Buckets of groups a shuffle partition: each is evaluated as a whole, in a worker's memory."""


def snapshots(node: WindowAggregate, df: DataFrame) -> DataFrame:
    """One row a window with members: the keys, the aggregates, ``__wle`` and ``__wre``."""
    source = node.input.schema
    slots, outputs = expand(node.aggregates, source)
    keys = [quote(k) for k in node.keys]
    df = df.select(*lifetime(source), *(quote(n) for n in source.names))
    swept = all(s.exact for s in slots)
    made = _swept(node, df, slots, keys) if swept else _merged(node, df, slots, keys)
    fields = [Field(k, source.type_of(k)) for k in node.keys]
    fields += [f for s in slots for f in s.fields]
    inner = node.schema.with_fields(fields)
    return made.select(*keys, STARTS, ENDS, *(spark_expression(e, inner).alias(name) for name, e in outputs))


def evaluated(node: WindowAggregate, df: DataFrame) -> DataFrame:
    """Result rows with their lifetimes, by the operator's evaluator: one call a bucket of groups, by Arrow."""
    from streamq.compiler.hosting import HOSTED

    source, hosting = node.input.schema, HOSTED[WindowAggregate](node)
    (taken,) = hosting.inputs
    types = [(name, infer(expr, source, "select")) for name, expr in taken.columns]
    hashed = [as_key(spark_expression(Col(k), source), source.type_of(k)) for k in node.keys]
    several = BUCKETS * int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1) if hashed else 1
    bucket = F.pmod(F.xxhash64(*hashed), F.lit(several)) if hashed else F.lit(0)
    columns = [spark_expression(expr, source).alias(name) for name, expr in taken.columns]
    df = df.select(bucket.alias("__bucket"), *lifetime(source), *columns)
    times = [(LE, pa.int64()), (RE, pa.int64())]
    taken_as = pa.schema([*times, *((name, arrow_type(kind)) for name, kind in types)])
    made_as = pa.schema([*times, *((f.name, arrow_type(f.type)) for f in hosting.schema.fields)])
    ship_runtime()
    made = df.groupBy("__bucket").applyInArrow(
        evaluation(hosting.evaluator, taken_as, made_as), from_arrow_schema(made_as)
    )
    return made.select(LE, RE, *(spark_expression(e, hosting.schema).alias(name) for name, e in hosting.outputs))


def _swept(node: WindowAggregate, df: DataFrame, slots: tuple[Slot, ...], keys: list[str]) -> DataFrame:
    """What starts is added, what ends is taken off: a running sum over the endpoints of a group, O(n log n)."""
    source = node.input.schema
    values: list[Column] = []
    names: list[str] = []
    for slot in slots:
        assert slot.arg is not None
        arg = spark_expression(slot.arg, source)
        there = F.when(arg.isNotNull(), 1).otherwise(0).cast("bigint")
        if slot.kind == "sum":
            values += [F.coalesce(arg, F.lit(0).cast(slot.type)), there]
            names += [slot.name, f"{slot.name}__n"]
        else:
            values.append(there)
            names.append(slot.name)
    df = df.select(LE, RE, *keys, *(v.alias(n) for v, n in zip(values, names, strict=True)))

    def change(at: str, sign: int) -> Column:
        signed = [(F.col(n) if sign > 0 else -F.col(n)).alias(n) for n in names]
        return F.struct(F.col(at).alias(STARTS), F.lit(sign).cast("bigint").alias(COUNT), *signed)

    # the last change of an instant knows the sums there, and what comes next
    order = Over.partitionBy(*keys).orderBy(STARTS)
    running = order.rowsBetween(Over.unboundedPreceding, Over.currentRow)
    made = df.select(*keys, F.inline(F.array(change(LE, 1), change(RE, -1))))
    made = made.select(
        *keys,
        STARTS,
        F.lead(STARTS).over(order).alias(ENDS),
        *(F.sum(n).over(running).alias(n) for n in (COUNT, *names)),
    )
    made = made.where(F.col(STARTS) < F.col(ENDS))
    made = made.where(F.col(COUNT) > 0)
    for slot in slots:
        if slot.kind == "sum":
            value = F.when(F.col(f"{slot.name}__n") > 0, F.col(slot.name).cast(slot.type))
            made = made.withColumn(slot.name, value)
    return made


def _merged(node: WindowAggregate, df: DataFrame, slots: tuple[Slot, ...], keys: list[str]) -> DataFrame:
    """Partial results of events with the same range of windows, merged over dyadic nodes: no member is copied a window."""
    windows = snapshot_windows(df, keys)
    events = numbered(df, windows, keys)
    made = [F.count(F.lit(1)).alias(COUNT), *(c for s in slots for c in partial_columns(s, node.input.schema))]
    partials = events.groupBy(*keys, "__lo", "__hi").agg(*made)
    described = [PartialSlot("__n", "count", True), *(PartialSlot(s.name, s.kind, s.exact) for s in slots)]
    merged = merge_partials(partials, list(node.keys), described, 1, "dyadic")
    found, on = same_keys(merged, windows, keys, [NUMBER, STARTS, ENDS])
    return merged.join(found, on & (F.col(INDEX) == F.col(NUMBER)))
