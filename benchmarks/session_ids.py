"""Sessions of events with ids, out of order and with repetitions, against Spark's deduplication and session windows.

    python -m benchmarks.session_ids [--rows 10000] [--batches 20] [--rounds 2] [--json FILE]

200,000 events of 2,000 keys, each up to half a minute late, one in ten twice; a micro-batch a file. Spark's query drops
repetitions by ``dropDuplicatesWithinWatermark`` and groups by ``session_window``; both send final rows. Over the same rows the
numbers of sessions that both have sent, and of their events, are compared. Prints the time of all micro-batches, the two in turn,
and writes JSON; a ratio above 1: streamq takes longer.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq
from benchmarks.arrival import reports
from benchmarks.streaming_hopping import AXIS

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
DELAY, GAP = 30, 20
"""The seconds by which an event may be late, and the gap of a session."""

KEYS = 2_000
SPAN = 60
"""The seconds of a file."""

SCHEMA = pa.schema([("id", pa.int64()), ("at", AXIS), ("k", pa.int64()), ("v", pa.int64())])


def write(folder: Path, rows: int, batches: int) -> None:
    """Write a file a micro-batch, and one of a single event far ahead, which lets all other sessions end."""
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True)
    for i in range(batches):
        at = START + rng.integers(i * SPAN * SECOND, (i + 1) * SPAN * SECOND, rows)
        at -= rng.integers(0, (DELAY - 1) * SECOND, rows) * (rng.random(rows) < 0.5)
        columns = [np.arange(rows) + i * rows, at, rng.integers(0, KEYS, rows), rng.integers(0, 100, rows)]
        repeated = np.concatenate([np.arange(rows), rng.choice(rows, rows // 10)])
        rng.shuffle(repeated)
        _put(folder, i, [column[repeated] for column in columns])
    far = np.array([START + 10 * batches * SPAN * SECOND])
    for i in (batches, batches + 1):
        # Spark goes by the watermark of the micro-batch before
        _put(folder, i, [np.array([-i]), far, np.array([-1]), np.array([0])])


def _put(folder: Path, number: int, columns: list[Any]) -> None:
    """Write a file, later than those before it: Spark reads files in this order."""
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    path = folder / f"{number:04d}.parquet"
    pq.write_table(table, path)
    os.utime(path, (START // SECOND + number, START // SECOND + number))


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    """Return a streaming DataFrame that reads one file a micro-batch."""
    reader = spark.readStream.schema(from_arrow_schema(SCHEMA)).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def ours(spark: SparkSession, folder: Path, sink: str, checkpoint: str) -> Any:
    """Run streamq; return the ended query."""
    points = sq.points(
        stream_of(spark, folder), time="at", id="id", name="points", progress=sq.generate(f"{DELAY} seconds")
    )
    query = points.group_by("k").session_window(f"{GAP} seconds").select(n=sq.count(), s=sq.sum("v"))
    return query.run(sink=sink, output="final", trigger="available_now", checkpoint=checkpoint).query


def theirs(spark: SparkSession, folder: Path, sink: str, checkpoint: str) -> Any:
    """Run Spark's operators; return the ended query."""
    once = stream_of(spark, folder).withWatermark("at", f"{DELAY} seconds").dropDuplicatesWithinWatermark(["id"])
    rows = once.groupBy(F.session_window("at", f"{GAP} seconds"), "k").agg(
        F.count("*").alias("n"), F.sum("v").alias("s")
    )
    writer = rows.select("k", "n", "s").writeStream.outputMode("append").option("checkpointLocation", checkpoint)
    sinked = writer.format("noop") if sink == "noop" else writer.format("parquet").option("path", sink)
    query = sinked.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


Run = Callable[[SparkSession, Path, str, str], Any]
SIDES: dict[str, Run] = {"streamq": ours, "Spark": theirs}


def seconds(run: Run, spark: SparkSession, folder: Path, sink: str) -> float:
    """Return the time of all micro-batches with rows."""
    checkpoint = tempfile.mkdtemp()
    try:
        return sum(reports(run(spark, folder, sink, checkpoint))) / 1_000
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def check(spark: SparkSession, folder: Path) -> None:
    """Raise AssertionError if the sessions over few rows differ."""
    answers = []
    for name, run in SIDES.items():
        out = str(folder / name)
        seconds(run, spark, folder / "few", out)
        rows = spark.read.parquet(out).where("k >= 0").select("k", "n", "s").collect()
        answers.append(Counter(tuple(row) for row in rows))
    assert answers[0], "no session has ended"
    assert answers[0] == answers[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000, help="of a micro-batch, repetitions not counted")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2, help="how often each is run, in turn")
    parser.add_argument("--json", type=Path, default=Path("session_ids.json"))
    options = parser.parse_args()
    config = {"spark.sql.shuffle.partitions": 2, "spark.driver.memory": "6g"}
    spark = sq.session("sessions", master="local[2]", config=config)
    folder = Path(tempfile.mkdtemp(prefix="streamq-bench-"))
    times: dict[str, list[float]] = {name: [] for name in SIDES}
    try:
        write(folder / "few", 500, 4)
        check(spark, folder)
        write(folder / "all", options.rows, options.batches)
        for _ in range(options.rounds):
            for name, run in SIDES.items():
                times[name].append(seconds(run, spark, folder / "all", "noop"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        spark.stop()
    medians = {name: statistics.median(each) for name, each in times.items()}
    ratio = medians["streamq"] / medians["Spark"]
    for name, each in times.items():
        print(f"{name:8} {medians[name]:8.1f} s   {[round(one, 1) for one in each]}")
    print(f"streamq / Spark {ratio:6.2f}")
    options.json.write_text(json.dumps({"seconds": times, "ratio": ratio}, indent=2))


if __name__ == "__main__":
    main()
