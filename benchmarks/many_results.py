"""Many results of one stream in one run, against one result: each into a folder of its own, and all into one folder.

    python -m benchmarks.many_results [--results 1 10 40] [--sinks own one] [--rows 2000] [--batches 8] [--json FILE]

Each result counts the events above a constant of its own, by group and tumbling window. Prints, for each number of results and
kind of sink, the median time of a micro-batch after the first two, and its ratio to that of the first number; writes JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import streamq as sq

SPAN = 1_000
"""The instants of a file."""

WARM_UP = 2
"""The number of micro-batches that do not count."""


def write(folder: Path, rows: int, batches: int) -> None:
    """Write a file a micro-batch."""
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True)
    for number in range(batches):
        at = np.sort(rng.integers(number * SPAN, (number + 1) * SPAN, rows))
        table = pa.table({"at": at, "k": rng.integers(0, 5, rows), "v": rng.integers(0, 1_000, rows)})
        path = folder / f"{number:04d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (number + 1, number + 1))


OWN, ONE = "own", "one"
"""The kinds of sinks: a folder for each result, one folder for all."""


def seconds_a_batch(spark: SparkSession, files: Path, results: int, sinks: str) -> float:
    """Run so many results over the files; return the median time of a micro-batch."""
    with tempfile.TemporaryDirectory() as folder:
        reader = spark.readStream.schema("at long, k long, v long").option("maxFilesPerTrigger", 1)
        points = sq.points(reader.parquet(str(files)), time="at", name="points")
        asked = []
        for number in range(results):
            above = points.where(sq.col("v") > 10 * number)
            counts = above.group_by("k").tumbling_window(100).select(n=sq.count())
            sink = f"{folder}/result{number}" if sinks == OWN else None
            asked.append(sq.result(counts, name=f"above {10 * number}", sink=sink))
        shared = None if sinks == OWN else f"{folder}/results"
        run = sq.run_all(asked, folder=shared, checkpoint=f"{folder}/checkpoint", trigger="available_now")
        run.await_termination()
        progress = run.query.recentProgress
        took = [one["durationMs"]["triggerExecution"] for one in progress if one["numInputRows"]]
        return statistics.median(took[WARM_UP:]) / 1_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, nargs="+", default=[1, 10, 40])
    parser.add_argument("--sinks", nargs="+", choices=(OWN, ONE), default=[OWN, ONE])
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    spark = sq.session("many results", master="local[2]", config={"spark.sql.shuffle.partitions": 2})
    medians: dict[str, dict[int, float]] = {sinks: {} for sinks in arguments.sinks}
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "files"
        write(files, arguments.rows, arguments.batches)
        for sinks, of_kind in medians.items():
            for results in arguments.results:
                of_kind[results] = seconds_a_batch(spark, files, results, sinks)
                ratio = of_kind[results] / of_kind[arguments.results[0]]
                print(f"{sinks} {results:4} results {of_kind[results]:7.2f} s {ratio:6.2f}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(medians, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
