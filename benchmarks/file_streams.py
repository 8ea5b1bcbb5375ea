"""Streams over files of each format: one query, its rows read by workers, by Spark's reader, and the same query in Spark alone.

    python -m benchmarks.file_streams [--rows 2000000] [--batches 6] [--formats parquet csv json orc]

A micro-batch is a file of ``rows`` rows: an instant, a zone of 200, a fare, a text that nobody reads. The query counts and sums
by zone and minute. Each line shows the median time of a micro-batch after the first two, and the processor time of the run;
ratios above 1: workers are faster. Answers of the three are compared in a batch before, over the first file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamq as sq
from benchmarks.processor_time import cpu_seconds

SCHEMA = "at timestamp_ntz, zone string, fare double, note string"
ZONES, MINUTES = 200, 10
"""The zones, and the minutes of event time in a file."""


def write(spark: SparkSession, folder: Path, kind: str, batches: int, rows: int) -> None:
    """Write a file for each micro-batch, in time order."""
    random = np.random.default_rng(7)
    for batch in range(batches):
        at = np.sort(random.integers(0, MINUTES * 60_000, rows)) * 1000 + batch * MINUTES * 60_000_000
        columns = {
            "at": pa.array(at + 1_700_000_000_000_000, pa.timestamp("us")),
            "zone": pa.array([f"zone-{n:03}" for n in range(ZONES)]).take(pa.array(random.integers(0, ZONES, rows))),
            "fare": random.integers(0, 10_000, rows) / 100,
            "note": pa.array(["a text", "another text, with a comma"]).take(pa.array(random.integers(0, 2, rows))),
        }
        frame = spark.createDataFrame(pa.table(columns), SCHEMA).coalesce(1).sortWithinPartitions("at")
        frame.write.format(kind).mode("append").save(str(folder))


def by_streamq(files: Any) -> sq.Stream:
    """Return the query over files."""
    trips = sq.points(files, time="at", progress=sq.generate("1 minute"))
    return trips.group_by("zone").tumbling_window("1 minute").select(n=sq.count(), total=sq.sum("fare"))


def by_spark(rows: DataFrame) -> DataFrame:
    """Return the query over a DataFrame, by Spark's own windows."""
    rows = rows.withColumn("at", F.col("at").cast("timestamp"))
    windows = rows.withWatermark("at", "1 minute").groupBy("zone", F.window("at", "1 minute"))
    return windows.agg(F.count("*").alias("n"), F.sum("fare").alias("total"))


class Cost(NamedTuple):
    """The median milliseconds of a micro-batch, and the processor seconds of the run."""

    batch: float
    processors: float


def measured(run: Callable[[], Any]) -> Cost:
    """Run a query to its end, and return what its micro-batches cost."""
    before = cpu_seconds()
    query = run()
    reports = [json.loads(report.json) for report in query.recentProgress]
    times = [report["durationMs"]["triggerExecution"] for report in reports if report["numInputRows"]]
    return Cost(statistics.median(times[2:] or times), cpu_seconds() - before)


def main() -> None:
    """Print a line for each format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--formats", nargs="+", default=["parquet", "csv", "json", "orc"])
    options = parser.parse_args()
    config = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": 2, "spark.sql.session.timeZone": "UTC"}
    spark = sq.session("file streams", master="local[2]", config=config)
    for kind in options.formats:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "in"
            write(spark, path, kind, options.batches, options.rows)
            first = str(next(path.glob(f"*.{kind}*")))
            ours, theirs, alone = (
                by_streamq(sq.files(first, format=kind, schema=SCHEMA)).to_df().selectExpr("zone", "start", "n"),
                by_streamq(sq.files(first, format=kind, schema=SCHEMA, reader="spark"))
                .to_df()
                .selectExpr("zone", "start", "n"),
                by_spark(spark.read.format(kind).schema(SCHEMA).load(first)).selectExpr("zone", "window.start", "n"),
            )
            for other in (theirs, alone):
                assert ours.exceptAll(other).isEmpty() and other.exceptAll(ours).isEmpty(), (
                    f"{kind}: the answers differ"
                )
            costs = [measured(run) for run in runs(spark, kind, path, folder)]
            names = ("by workers", "by Spark's reader", "Spark alone")
            each = "; ".join(
                f"{name} {cost.batch:.0f} ms, {cost.processors:.1f} s" for name, cost in zip(names, costs, strict=True)
            )
            ratios = ", ".join(f"{cost.batch / costs[0].batch:.1f}" for cost in costs[1:])
            print(f"{kind}: {each}; a micro-batch {ratios} times as fast", flush=True)
    spark.stop()


def runs(spark: SparkSession, kind: str, path: Path, folder: str) -> list[Callable[[], Any]]:
    """Return the three runs over files, a file a micro-batch."""

    def workers(name: str, **reader: Any) -> Any:
        files = sq.files(path, format=kind, schema=SCHEMA, maxFilesPerTrigger=1, **reader)
        return by_streamq(files).run(sink="noop", checkpoint=f"{folder}/{name}", trigger="available_now").query

    def alone() -> Any:
        rows = by_spark(spark.readStream.format(kind).schema(SCHEMA).option("maxFilesPerTrigger", 1).load(str(path)))
        writer = rows.writeStream.format("noop").option("checkpointLocation", f"{folder}/alone")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    return [lambda: workers("ours"), lambda: workers("theirs", reader="spark"), alone]


if __name__ == "__main__":
    main()
