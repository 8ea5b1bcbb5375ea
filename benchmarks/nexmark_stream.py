"""NEXMark as streams: the auction house's queries by streamq and, where Structured Streaming can say them, by Spark.

    python -m benchmarks.nexmark_stream [--rows 200000] [--batches 6] [--only q3 q8] [--flink] [--json FILE]

Each micro-batch reads a Parquet file of persons, one of auctions and one of bids, ``rows`` events together, in the order of time;
the milliseconds of a micro-batch, and those of processors in it, are medians after the first two. streamq reads by ``sq.files``,
Spark by its own reader. Flink reads the same events as CSV files, and its rows go nowhere: its time is that of all events,
divided by the number of micro-batches.

Queries whose answer changes as events come write a changelog, others final rows. What Spark says (windows and sessions with a
watermark, joins of streams) must be rows of streamq, too; of Spark's, the last windows are open when the input ends. Spark has no
words for ranks, distinct counts, the latest of a key, and joins with what an event's end decides. Ratios above 1: streamq is
slower.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.listener import StreamingQueryListener

import streamq as sq
from benchmarks.nexmark import QUERIES, House, generate, streams
from benchmarks.nexmark_flink import FLINK, by_flink, write_csv
from benchmarks.processor_time import cpu_seconds

NAMES = ("person", "auction", "bid")


class Frames(NamedTuple):
    """The three streaming DataFrames of the auction house."""

    person: DataFrame
    auction: DataFrame
    bid: DataFrame


def by_sql(name: str) -> Callable[[Frames], DataFrame]:
    """Return the query without state that Spark SQL says over a stream as over a batch."""

    def said(frames: Frames) -> DataFrame:
        for table, frame in zip(NAMES, frames, strict=True):
            frame.createOrReplaceTempView(f"{table}_stream")
        sql = re.sub(r"\b(FROM|JOIN) (person|auction|bid)\b", r"\1 \2_stream", QUERIES[name][1])
        return frames.bid.sparkSession.sql(sql)

    return said


def q8(frames: Frames) -> DataFrame:
    """Who sells in the ten seconds of coming: a join of two windows, each row once."""
    new = frames.person.withWatermark("ts", "0 seconds").select("id", "name", F.window("ts", "10 seconds").alias("w"))
    sellers = frames.auction.withWatermark("ts", "0 seconds").select("seller", F.window("ts", "10 seconds").alias("v"))
    both = new.join(sellers, (F.col("id") == F.col("seller")) & (F.col("w") == F.col("v")))
    return both.select("id", "name", "w", F.col("w.start").alias("since")).dropDuplicates(["id", "w"]).drop("w")


def q11(frames: Frames) -> DataFrame:
    """The bids of each bidder's sessions."""
    session = F.session_window("ts", "9999999 microseconds")
    counts = frames.bid.withWatermark("ts", "0 seconds").groupBy("bidder", session).agg(F.count("*").alias("n"))
    return counts.select("bidder", "n", F.col("session_window.start").alias("since"))


def q17(frames: Frames) -> DataFrame:
    """Statistics of each auction and day."""
    days = frames.bid.withWatermark("ts", "0 seconds").groupBy("auction", F.window("ts", "1 day"))
    price = F.col("price")
    rows = days.agg(
        F.count("*").alias("n"),
        F.min(price).alias("low"),
        F.max(price).alias("high"),
        F.avg(price).alias("mean"),
        F.sum(price).alias("total"),
    )
    return rows.withColumn("since", F.col("window.start")).drop("window")


SPARK: dict[str, Callable[[Frames], DataFrame]] = {
    **{name: by_sql(name) for name in ("q1", "q2", "q3", "q14", "q20", "q21", "q22")},
    "q8": q8,
    "q11": q11,
    "q17": q17,
}
"""The queries that Structured Streaming can say, by name."""


class Ran(NamedTuple):
    """The milliseconds of a micro-batch in the middle, those of each, and those of all processors in the middle."""

    middle: float
    each: list[int]
    processor: float


class Processors(StreamingQueryListener):
    """Notes the processor time, in seconds, at the end of each micro-batch, by its run and number."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, int], float] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """Note the time."""
        self.seconds[str(event.progress.runId), event.progress.batchId] = cpu_seconds()

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing."""


def measure(query: Any, processors: Processors) -> Ran:
    """Return the times of an ended query's micro-batches with rows."""
    reports = [json.loads(report.json) for report in query.recentProgress]
    full = [report for report in reports if report["numInputRows"]]
    each = [report["durationMs"]["triggerExecution"] for report in full]
    places = [(report["runId"], report["batchId"]) for report in full]
    # the last one may be noted later
    at = [processors.seconds[place] for place in places if place in processors.seconds]
    spent = [1_000 * (end - begin) for begin, end in pairwise(at)]
    return Ran(statistics.median(each[2:] or each), each, statistics.median(spent[1:] or spent))


def by_streamq(folder: Path, name: str, sink: Path, checkpoint: Path, processors: Processors) -> Ran:
    """Run a query by streamq over all files into a folder."""
    of, _, changes = QUERIES[name]
    files = (sq.files(str(folder / table), maxFilesPerTrigger=1) for table in NAMES)
    house = House(*(sq.points(rows, time="ts", name=table) for table, rows in zip(NAMES, files, strict=True)))
    output = "changelog" if changes else "final"
    run = partial(of(house).run, sink=str(sink), checkpoint=str(checkpoint), trigger="available_now", output=output)
    ran = measure(run().query, processors)
    # what waits for the end of the input is written for the comparison alone
    run(finish=True)
    return ran


def by_spark(spark: SparkSession, folder: Path, name: str, sink: Path, checkpoint: Path, processors: Processors) -> Ran:
    """Run a query by Structured Streaming over all files into a folder."""
    schemas = [from_arrow_schema(pq.read_schema(folder / table / "0.parquet")) for table in NAMES]
    readers = [spark.readStream.schema(schema).option("maxFilesPerTrigger", 1) for schema in schemas]
    frames = Frames(*(reader.parquet(str(folder / table)) for reader, table in zip(readers, NAMES, strict=True)))
    writer = SPARK[name](frames).writeStream.format("parquet").outputMode("append")
    query = (
        writer.option("path", str(sink))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return measure(query, processors)


def check(spark: SparkSession, ours: Path, theirs: Path) -> int:
    """Return the number of Spark's rows, all of which streamq has as well; raise AssertionError if it lacks one."""

    def rows(folder: Path, columns: list[str] | None = None) -> DataFrame:
        frame = spark.read.parquet(str(folder))
        frame = frame.select(*columns) if columns else frame
        doubles = {n: F.format_string("%.9g", F.col(n)) for n, kind in frame.dtypes if kind == "double"}
        return frame.withColumns(doubles) if doubles else frame

    other = rows(theirs)
    assert other.exceptAll(rows(ours, other.columns)).isEmpty(), "an answer lacks rows that Spark has"
    return other.count()


def flink_times(spark: SparkSession, folder: Path, name: str, batches: int) -> tuple[float, float]:
    """Return the milliseconds that Flink takes for the events of a micro-batch, and those of processors, in its third run.

    Raises AssertionError if it has not as many rows as Spark has in a batch.
    """
    if not (folder / "csv").exists():
        write_csv(folder / "events", folder / "csv")
        streams(spark, folder / "events")
    ((rows,),) = by_flink(folder / "csv", name, 0)
    assert rows == spark.sql(QUERIES[name][1]).count(), "the answers have not as many rows"
    *_, (wall, processor) = by_flink(folder / "csv", name, 3)
    return wall / batches, processor / batches


def main() -> None:
    """Print a line a query: the milliseconds of a micro-batch by streamq and by Spark, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="events of a micro-batch")
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--only", nargs="*", choices=list(QUERIES), default=list(QUERIES))
    parser.add_argument("--flink", action="store_true", help="run Flink, too, over the same events as CSV files")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    config = {"spark.driver.memory": "5g", "spark.sql.shuffle.partitions": 2}
    spark = sq.session("nexmark", master="local[2]", config=config)
    processors = Processors()
    spark.streams.addListener(processors)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        generate(folder / "events", options.rows * options.batches, options.batches)
        for name in options.only:
            places = [(folder / name / way, folder / name / f"{way} checkpoint") for way in ("streamq", "spark")]
            ours = by_streamq(folder / "events", name, *places[0], processors)
            result: dict[str, Any] = {"query": name, "streamq": ours._asdict()}
            line = f"{name:4} {ours.middle:7.0f} ms {ours.processor:7.0f} ms of processors"
            if name in SPARK:
                theirs = by_spark(spark, folder / "events", name, *places[1], processors)
                rows = check(spark, places[0][0], places[1][0])
                result |= {"spark": theirs._asdict(), "rows": rows, "ratio": ours.middle / theirs.middle}
                processor = ours.processor / theirs.processor
                line += f" {theirs.middle:7.0f} ms {result['ratio']:6.2f} {processor:6.2f} {rows:9,} rows"
            if options.flink and name in FLINK:
                result["flink"] = flink_times(spark, folder, name, options.batches)
                line += f" Flink {result['flink'][0]:7.0f} ms {result['flink'][1]:7.0f} ms of processors"
            results.append(result)
            shutil.rmtree(folder / name)
            print(line, flush=True)
    spark.stop()
    ratios = [result["ratio"] for result in results if "ratio" in result]
    print(f"median of {len(ratios)} ratios: {statistics.median(ratios):.2f}" if ratios else "")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
