"""Arrival of events: disorder against order, in one run.

8 M events as a changelog at the middle level, in order of time, and with one event in ten out of order, within the delay.

Prints a table and writes JSON. ``python -m benchmarks.arrival --help``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import streamq as sq
from benchmarks.streaming_hopping import AXIS, source

SCHEMA = pa.schema([("ts", AXIS), ("k", pa.int64()), ("v", pa.int64())])
SECOND = 1_000_000
DELAY = 30
"""The number of seconds that an event may be out of order."""
START = 1_700_000_000 * SECOND


def write(folder: Path, batches: int, rows: int, seconds: int, late: float) -> None:
    """Write a file per micro-batch, each of this many seconds.

    A share of the events lies up to the delay before its file's span.
    """
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True)
    for i in range(batches):
        at = np.sort(rng.integers(i * seconds * SECOND, (i + 1) * seconds * SECOND, rows))
        moved = rng.random(rows) < late
        at = at - moved * rng.integers(0, (DELAY - 1) * SECOND, rows)
        columns = [pa.array(START + at, AXIS), rng.integers(0, 1_000, rows), rng.integers(0, 100, rows)]
        pq.write_table(pa.table(columns, schema=SCHEMA), folder / f"{i:04d}.parquet", row_group_size=max(1, rows // 8))


def reports(query: Any) -> list[int]:
    """Return the milliseconds of each micro-batch with input."""
    progress = [json.loads(p.json) for p in query.recentProgress]
    return [p["durationMs"]["triggerExecution"] for p in progress if p["numInputRows"]]


def disorder(spark: SparkSession, folder: Path) -> list[int]:
    """Run a count by streamq; return the milliseconds of its micro-batches."""
    points = sq.points(source(spark, folder), time="ts", name="points", progress=sq.generate(f"{DELAY} seconds"))
    query = points.group_by("k").tumbling_window("1 minute").select(n=sq.count())
    run = query.run(sink="noop", trigger="available_now", output="changelog")
    shutil.rmtree(run.checkpoint, ignore_errors=True)
    return reports(run.query)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="how often each is run, in turn")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--json", default="arrival.json")
    args = parser.parse_args()
    spark = sq.session(
        "benchmark", master="local[2]", config={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "6g"}
    )
    folder = Path(tempfile.mkdtemp(prefix="streamq-bench-"))
    times_by_name: dict[str, list[int]] = {"in order": [], "out of order": []}
    try:
        for name, late in (("in order", 0.0), ("out of order", 0.1)):
            write(folder / name, 8, int(1_000_000 * args.scale), 120, late)
        for _ in range(args.rounds):
            for name, times in times_by_name.items():
                times += disorder(spark, folder / name)[1:]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        spark.stop()
    medians = {name: statistics.median(times) for name, times in times_by_name.items()}
    for name, times in times_by_name.items():
        print(f"{name:18} {medians[name]:8.0f} ms a micro-batch   {times}")
    ratio = medians["in order"] / medians["out of order"]
    print(f"out of order / in order rate {ratio:6.2f}")
    Path(args.json).write_text(json.dumps({"milliseconds": times_by_name, "ratio": ratio}, indent=2))


if __name__ == "__main__":
    main()
