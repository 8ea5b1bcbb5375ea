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

from streamq.operators.grid import COUNT, INDEX
from streamq.operators.merging import merge_partials
from streamq.operators.partial_aggregate import Expansion, expand, partial_columns, partial_fields
from streamq.operators.window_aggregate import WindowAggregate
from streamq.operators.window_members import ENDS, NUMBER, STARTS, numbered, same_keys, snapshot_windows
from streamq.plan.expr import Col
from streamq.plan.inference import infer
from streamq.plan.lowering import as_key, lifetime, ship_runtime, spark_expression
from streamq.plan.schema import Field, quote
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.evaluator import evaluation
from streamq.runtime.event import LE, RE
from streamq.runtime.partial import Summed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKETS = 4
"""Buckets of groups a shuffle partition: each is evaluated as a whole, in a worker's memory."""


def snapshots(node: WindowAggregate, df: DataFrame) -> DataFrame:
    """One row a window with members: the keys, the aggregates, ``__wle`` and ``__wre``."""
    source = node.input.schema
    split = expand(node.aggregates, source)
    keys = [quote(k) for k in node.keys]
    df = df.select(*lifetime(source), *(quote(n) for n in source.names))
    exact = all(partial.exact for partial in split.partials)
    made = _swept(node, df, split, keys) if exact else _merged(node, df, split, keys)
    fields = [Field(k, source.type_of(k)) for k in node.keys]
    fields += partial_fields(split.partials)
    inner = node.schema.with_fields(fields)
    return made.select(*keys, STARTS, ENDS, *(spark_expression(e, inner).alias(name) for name, e in split.outputs))


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


def _swept(node: WindowAggregate, df: DataFrame, split: Expansion, keys: list[str]) -> DataFrame:
    """What starts is added, what ends is taken off: a running sum over the endpoints of a group, O(n log n)."""
    source = node.input.schema
    values = {name: spark_expression(expr, source) for name, expr in split.arguments}
    summed = [partial for partial in split.partials if isinstance(partial, Summed)]
    columns = [column for partial in summed for column in partial.swept(values[partial.arg])]
    names = [name for partial in split.partials for name in partial.columns]
    df = df.select(LE, RE, *keys, *columns)

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
    for partial in split.partials:
        for name, kind in partial.fields:
            if (count := partial.null_over_none.get(name)) is not None:
                made = made.withColumn(name, F.when(F.col(count) > 0, F.col(name).cast(kind)))
    return made


def _merged(node: WindowAggregate, df: DataFrame, split: Expansion, keys: list[str]) -> DataFrame:
    """Partial results of events with the same range of windows, merged over dyadic nodes: no member is copied a window."""
    windows = snapshot_windows(df, keys)
    events = numbered(df, windows, keys)
    columns = [F.count(F.lit(1)).alias(COUNT), *partial_columns(split.arguments, split.partials, node.input.schema)]
    partials = events.groupBy(*keys, "__lo", "__hi").agg(*columns)
    merged = merge_partials(partials, list(node.keys), split.partials, 1, "dyadic")
    found, on = same_keys(merged, windows, keys, [NUMBER, STARTS, ENDS])
    return merged.join(found, on & (F.col(INDEX) == F.col(NUMBER)))
