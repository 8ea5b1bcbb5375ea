"""Evaluators in batch: the operator's result over whole histories, one call a bucket of groups, by Arrow in Spark's workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from streamq.plan.expr import Col, Expr
from streamq.plan.inference import infer
from streamq.plan.lowering import as_key, lifetime, ship_runtime, spark_expression
from streamq.plan.schema import Field, Schema
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.evaluator import UNTIL, Evaluator, evaluation
from streamq.runtime.event import LE, RE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS = 4
"""Buckets of groups a shuffle partition: each is evaluated as a whole, in a worker's memory."""


def evaluated(
    df: DataFrame,
    evaluator: Evaluator,
    *,
    source: Schema,
    columns: Sequence[tuple[str, Expr]],
    keys: Sequence[str],
    fields: Sequence[Field],
) -> DataFrame:
    """The rows that an evaluator of one input makes: ``__le``, ``__re`` and ``fields``.

    ``df`` has deltas of ``source``, of which the evaluator takes ``columns``; maybe also ``__until``, before which windows
    start. What has equal ``keys`` is evaluated together.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    types = [(name, infer(expr, source, "select")) for name, expr in columns]
    hashed = [as_key(spark_expression(Col(k), source), source.type_of(k)) for k in keys]
    several = BUCKETS * int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1) if hashed else 1
    bucket = F.pmod(F.xxhash64(*hashed), F.lit(several)) if hashed else F.lit(0)
    times = [(LE, pa.int64()), (RE, pa.int64())]
    bound = [(UNTIL, pa.int64())] if UNTIL in df.columns else []
    values = [spark_expression(expr, source).alias(name) for name, expr in columns]
    df = df.select(bucket.alias("__bucket"), *lifetime(source), *(F.col(name) for name, _ in bound), *values)
    read = pa.schema([*times, *bound, *((name, arrow_type(kind)) for name, kind in types)])
    made = pa.schema([*times, *((f.name, arrow_type(f.type)) for f in fields)])
    ship_runtime()
    return df.groupBy("__bucket").applyInArrow(evaluation(evaluator, read, made), from_arrow_schema(made))
