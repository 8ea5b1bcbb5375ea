"""The fixed costs of a stream against Spark's own, in one process, in turn.

* trickle: 1,000 events a micro-batch through one stateful stage, against Spark's tumbling count;
* chained: the same through three windows over windows, against three chained aggregations;
* finish: a new checkpoint, one file of 20,000 events, the trigger "available_now" and the end of the input, against Spark's own
  run with that trigger, each in a warm process.

A ratio is the median of the pairs' ratios: in time, and in processor time of this process and all those below it, which other
work on the machine moves less. Prints a table and writes JSON. ``python -m benchmarks.fixed_costs --help``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamq as sq
from benchmarks.arrival import DELAY, reports, write
from benchmarks.processor_time import cpu_seconds
from benchmarks.streaming_hopping import source

WARM_UP = 2
"""The number of micro-batches at the start of a query that do not count."""


@dataclass(frozen=True)
class Setting:
    """A query of so many stages, run in micro-batches or to the end of the input; ``target`` is the greatest ratio."""

    stages: int
    finish: bool
    target: float


SETTINGS = {"trickle": Setting(1, False, 1.2), "chained": Setting(3, False, 1.5), "finish": Setting(1, True, 1.5)}


@dataclass
class Cost:
    """The cost of a run, or of one of its micro-batches: milliseconds by the clock, and seconds of processor time."""

    milliseconds: float
    cpu_seconds: float


def windows(events: sq.Stream, stages: int) -> sq.Stream:
    """Return counts per key and minute; with more stages, their sums over windows that are twice as long each time."""
    query = events.group_by("k").tumbling_window("1 minute").select(n=sq.count())
    for stage in range(1, stages):
        query = query.group_by("k").tumbling_window(f"{2**stage} minutes").select(n=sq.sum("n"))
    return query


def native(rows: DataFrame, stages: int) -> DataFrame:
    """Return the same by Spark."""
    counts = rows.withWatermark("ts", f"{DELAY} seconds").groupBy(F.window("ts", "1 minute"), "k")
    frame = counts.agg(F.count("*").alias("n"))
    for stage in range(1, stages):
        frame = frame.groupBy(F.window("window", f"{2**stage} minutes"), "k").agg(F.sum("n").alias("n"))
    return frame


def ours(spark: SparkSession, folder: Path, places: Path, setting: Setting) -> Any:
    """Run the windows by streamq to the end of what is available; return Spark's handle of the query."""
    rows = source(spark, folder, all_at_once=setting.finish)
    events = sq.points(rows, time="ts", name="points", progress=sq.generate(f"{DELAY} seconds"))
    run = windows(events, setting.stages).run(
        sink=f"{places}/out" if setting.finish else "noop",
        checkpoint=f"{places}/checkpoint",
        trigger="available_now",
        finish=setting.finish,
    )
    return run.query


def theirs(spark: SparkSession, folder: Path, places: Path, setting: Setting) -> Any:
    """Run the windows by Spark to the end of what is available; return the handle of the query."""
    rows = native(source(spark, folder, all_at_once=setting.finish), setting.stages)
    writer = rows.writeStream.option("checkpointLocation", f"{places}/checkpoint").trigger(availableNow=True)
    query = writer.start(f"{places}/out") if setting.finish else writer.format("noop").start()
    query.awaitTermination()
    return query


Runner = Callable[[SparkSession, Path, Path, Setting], Any]


def cost(run: Runner, spark: SparkSession, folder: Path, setting: Setting) -> Cost:
    """Return the cost of a run over a folder of files; of a micro-batch, a file each, unless the setting has an end."""
    places = Path(tempfile.mkdtemp(prefix="streamq-bench-"))
    try:
        cpu, begun = cpu_seconds(), time.perf_counter()
        query = run(spark, folder, places, setting)
        seconds, cpu = time.perf_counter() - begun, cpu_seconds() - cpu
    finally:
        shutil.rmtree(places, ignore_errors=True)
    if setting.finish:
        return Cost(1_000 * seconds, cpu)
    return Cost(statistics.median(reports(query)[WARM_UP:]), cpu / len(list(folder.iterdir())))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how many pairs count; one more warms up")
    parser.add_argument("--batches", type=int, default=14, help="micro-batches of trickle and chained")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--json", default="fixed_costs.json")
    args = parser.parse_args()
    spark = sq.session(
        "benchmark", master="local[2]", config={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "4g"}
    )
    folder = Path(tempfile.mkdtemp(prefix="streamq-bench-"))
    write(folder / "many", args.batches, 1_000, 60, 0.0)
    write(folder / "one", 1, 20_000, 60, 0.0)
    results: dict[str, Any] = {}
    row = "{:8} {:>12} {:>10} {:>14} {:>12} {:>7} {:>10} {:>7} {:>6}"
    print(
        row.format("", "streamq ms", "spark ms", "streamq cpu s", "spark cpu s", "ratio", "cpu ratio", "target", "load")
    )
    try:
        for name in args.settings.split(","):
            setting = SETTINGS[name]
            rows = folder / ("one" if setting.finish else "many")
            pairs = [[cost(run, spark, rows, setting) for run in (ours, theirs)] for _ in range(args.rounds + 1)][1:]
            ratio = statistics.median(a.milliseconds / b.milliseconds for a, b in pairs)
            cpu_ratio = statistics.median(a.cpu_seconds / b.cpu_seconds for a, b in pairs)
            sides = list(zip(*pairs, strict=True))
            shown = [f"{statistics.median(c.milliseconds for c in side):.0f}" for side in sides]
            shown += [f"{statistics.median(c.cpu_seconds for c in side):.2f}" for side in sides]
            load = round(os.getloadavg()[0], 1)
            print(row.format(name, *shown, f"{ratio:.2f}", f"{cpu_ratio:.2f}", setting.target, load), flush=True)
            costs = [[asdict(c) for c in pair] for pair in pairs]
            results[name] = {"ratio": ratio, "cpu_ratio": cpu_ratio, "load": load, "pairs": costs}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        spark.stop()
    Path(args.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
