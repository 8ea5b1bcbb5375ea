"""Many results of one stream in one run, against one result: each into a folder of its own, and all into one folder.

    python -m benchmarks.many_results [--results 1 10 40] [--sinks own one] [--rows 2000] [--batches 10] [--json FILE]

Each result counts the events above a constant of its own, by group and tumbling window. Prints, for each number of results and
kind of sink, the median time of a micro-batch after the first ones, that of processors in it, and the ratio of each to that of
the first number; writes JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import streamq as sq
from benchmarks.processor_time import cpu_seconds

SPAN = 1_000
"""The instants of a file."""

MOST = 1_000
"""The values are below it; result n counts those above 2 n."""

WARM_UP = 4
"""The number of micro-batches that do not count."""


def write(folder: Path, number: int, rows: int) -> None:
    """Write the file of a micro-batch, at once."""
    rng = np.random.default_rng(number)
    at = np.sort(rng.integers(number * SPAN, (number + 1) * SPAN, rows))
    table = pa.table({"at": at, "k": rng.integers(0, 5, rows), "v": rng.integers(0, MOST, rows)})
    hidden = folder / f".{number:04d}.parquet"
    pq.write_table(table, hidden)
    hidden.rename(folder / f"{number:04d}.parquet")


OWN, ONE = "own", "one"
"""The kinds of sinks: a folder for each result, one folder for all."""


def seconds_a_batch(spark: SparkSession, rows: int, batches: int, results: int, sinks: str) -> tuple[float, float]:
    """Run so many results over a file a micro-batch; return the median time of a micro-batch, and of processors in it."""
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "files"
        files.mkdir()
        reader = spark.readStream.schema("at long, k long, v long")
        points = sq.points(reader.parquet(str(files)), time="at", name="points")
        asked = []
        for number in range(results):
            above = points.where(sq.col("v") > 2 * number)
            counts = above.group_by("k").tumbling_window(100).select(n=sq.count())
            sink = f"{folder}/result{number}" if sinks == OWN else None
            asked.append(sq.result(counts, name=f"result {number}", sink=sink))
        shared = None if sinks == OWN else f"{folder}/results"
        run = sq.run_all(asked, folder=shared, checkpoint=f"{folder}/checkpoint")
        seconds, processor = [], []
        for number in range(batches):
            before, started = cpu_seconds(), time.perf_counter()
            write(files, number, rows)
            run.process_all_available()
            seconds.append(time.perf_counter() - started)
            processor.append(cpu_seconds() - before)
        run.stop()
        return statistics.median(seconds[WARM_UP:]), statistics.median(processor[WARM_UP:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, nargs="+", default=[1, 10, 40])
    parser.add_argument("--sinks", nargs="+", choices=(OWN, ONE), default=[OWN, ONE])
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    spark = sq.session("many results", master="local[2]", config={"spark.sql.shuffle.partitions": 2})
    medians: dict[str, dict[int, tuple[float, float]]] = {sinks: {} for sinks in arguments.sinks}
    for sinks, of_kind in medians.items():
        for results in arguments.results:
            own = of_kind[results] = seconds_a_batch(spark, arguments.rows, arguments.batches, results, sinks)
            ratios = [time / first for time, first in zip(own, of_kind[arguments.results[0]], strict=True)]
            shown = " ".join(f"{time:7.2f} s {ratio:6.2f}" for time, ratio in zip(own, ratios, strict=True))
            print(f"{sinks} {results:4} results {shown}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(medians, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
