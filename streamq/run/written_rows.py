"""The rows of a result that hold, read back from the files that a run has written: a batch over what the run says so far."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.choices import OutputForm
from streamq.errors import PlanError
from streamq.plan.schema import MICRO_BATCH, quote
from streamq.run.run_options import RunOptions
from streamq.run.sinks import DataSourceSink, DividedFolder
from streamq.run.storage.checkpoint import Checkpoint
from streamq.run.storage.files import path_exists
from streamq.runtime.deltas import INSERT, RETRACT
from streamq.time import TIMESTAMP


def rows_that_hold(spark: SparkSession, options: RunOptions, number: int, checkpoint: Checkpoint) -> DataFrame:
    """Return the rows of result ``number`` that hold after the last micro-batch that is done: payload, ``start``, ``end``.

    Raises PlanError if its sink is no folder of Parquet files, and for rows that replace others: files have no order.
    """
    request, sink = options.results[number], options.sinks[number]
    if not isinstance(sink, DividedFolder) and not (isinstance(sink, DataSourceSink) and sink.format == "parquet"):
        observed = f"its sink is {request.sink!r}"
        hint = "Write it into a folder of Parquet files, sink='a path', or publish it."
        raise PlanError("table", "the rows of the result cannot be read back", observed, hint)
    if request.output not in (OutputForm.FINAL, OutputForm.CHANGELOG):
        reason = "files do not have the order in which rows replace each other"
        wrong, hint = (
            f"rows of output={str(request.output)!r} cannot be read back",
            "Write a changelog: output='changelog'.",
        )
        raise PlanError("table", wrong, reason, hint)
    schema = request.query.plan.schema
    time = t.TimestampType() if schema.axis == TIMESTAMP else t.LongType()
    columns = t.StructType([t.StructField(field.name, field.type) for field in schema.fields])
    is_changelog = request.output == OutputForm.CHANGELOG
    for name, kind in (("kind", t.StringType()), ("start", time), ("end", time), ("new_end", time)):
        if is_changelog or name in ("start", "end"):
            columns = columns.add(name, kind)
    columns = columns.add(MICRO_BATCH, t.LongType())
    if isinstance(sink, DividedFolder):
        columns = columns.add("result", t.StringType())
    (folder,) = sink.folders
    if not path_exists(spark, folder):
        rows = spark.createDataFrame([], columns)
    else:
        rows = spark.read.schema(columns).parquet(folder)
    # the folder of a micro-batch that is being written has some of its rows
    rows = rows.where(F.col(MICRO_BATCH).isNull() | (F.col(MICRO_BATCH) <= checkpoint.last_commit()))
    if isinstance(sink, DividedFolder):
        rows = rows.where(F.col("result") == F.lit(request.division))
    payload = [quote(name) for name in schema.names]
    return _folded(rows, payload) if is_changelog else rows.select(*payload, "start", "end")


def _folded(rows: DataFrame, payload: list[str]) -> DataFrame:
    """Return the history of a changelog's rows."""
    inserted = F.array(F.struct(F.col("end"), F.lit(1).alias("__w")))
    moved = F.array(
        F.struct(F.col("end"), F.lit(-1).alias("__w")), F.struct(F.col("new_end").alias("end"), F.lit(1).alias("__w"))
    )
    deltas = F.when(F.col("kind") == INSERT, inserted).otherwise(moved)
    rows = rows.where(F.col("kind").isin(INSERT, RETRACT)).select(*payload, "start", F.inline(deltas))
    rows = rows.where("end IS NULL OR end > start").groupBy(*payload, "start", "end").agg(F.sum("__w").alias("__w"))
    copies = F.explode(F.sequence(F.lit(1), F.col("__w").cast("int"))).alias("__copy")
    return rows.where("__w > 0").select(*payload, "start", "end", copies).drop("__copy")
