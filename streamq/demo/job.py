"""A real Spark job, small but uneven, that runs in its own Python process with event logging.

It has two parallel branches (trips with one very popular zone; sensor readings that pass through a Python worker, one of whose
tasks fails once and is retried) and a join of both: seven stages, some 230 tasks, stragglers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamq.errors import QueryFailed

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

ZONES = 200
TAIL_LINES = 15


def run_job(folder: Path, each: Callable[[], None] = lambda: None, timeout: float = 600) -> Path:
    """Run the job in a new process and return the path of its event log, a rolled directory below ``folder``.

    It has 10 to 15 s of tasks on two cores. ``each`` is called about ten times a second while the job runs, ``timeout`` is in
    seconds. Raises QueryFailed with the last lines of the job's output if the job fails, hangs or writes no log. ``folder`` must
    not have a folder ``events`` yet.
    """
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "job-output.txt"
    logs = folder / "events"
    logs.mkdir()
    command = [sys.executable, "-m", "streamq.demo.job", str(logs)]
    package = str(Path(__file__).parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **python}
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, env=environment
        )
        try:
            code = _wait(process, each, timeout)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(30)
    event_logs = sorted(logs.iterdir())
    if code != 0 or not event_logs:
        ended = "did not end in time" if code is None else f"ended with code {code}" if code else "wrote no event log"
        wrong = f"the Spark job {ended}"
        tail = output.read_text(errors="replace").strip().splitlines()[-TAIL_LINES:]
        raise QueryFailed(
            "demo job", wrong, "it printed last:\n  " + "\n  ".join(tail) if tail else "it printed nothing"
        )
    return event_logs[0]


def _wait(process: subprocess.Popen[bytes], each: Callable[[], None], timeout: float) -> int | None:
    """Call ``each`` ten times a second until a process ends; return its exit code, None after ``timeout`` seconds."""
    for _ in range(int(timeout * 10)):
        try:
            return process.wait(0.1)
        except subprocess.TimeoutExpired:
            each()
    return None


def main(folder: Path) -> None:
    """Run the job in this process; the log is written to ``folder``."""
    spark = _session(folder)
    try:
        _work(spark)
    finally:
        spark.stop()


def _session(folder: Path) -> SparkSession:
    """Start a session that logs events to a folder, with many small tasks and fair scheduling."""
    from pyspark.sql import SparkSession

    options = {
        "spark.master": "local[2,2]",  # the second number allows a failed task to be retried
        "spark.app.name": "uneven zones",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",  # it would merge the small tasks into a few
        "spark.sql.shuffle.partitions": "32",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.resolve().as_uri(),
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": "zstd",
    }
    builder = SparkSession.builder
    for key, value in options.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _work(spark: SparkSession) -> None:
    """Run both branches in parallel threads, then their join; raise the first error."""
    trips, readings = _trips(spark).cache(), _readings(spark).cache()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(partial(_run, spark), ("trips by zone", "smoothed readings"), (trips, readings)))
    _run(spark, "fares against readings", trips.join(readings, "zone").orderBy("fares"))


def _run(spark: SparkSession, name: str, frame: DataFrame) -> None:
    """Compute a DataFrame under the description ``name``."""
    spark.sparkContext.setJobDescription(name)
    frame.write.format("noop").mode("overwrite").save()


def _trips(spark: SparkSession) -> DataFrame:
    """Return fares and receipts by zone: partition p has (p mod 8)^2 + 1 times the rows of the smallest.

    Zone 0 has about a third of all.
    """
    from pyspark.sql import functions as f

    heavy = f.explode(f.sequence(f.lit(0), f.pow(f.spark_partition_id() % 8, 2).cast("int")))
    rows = spark.range(0, 30_000, 1, 48).select("id", heavy.alias("copy"))
    draw = f.abs(f.xxhash64("id", "copy"))
    digest = f.sha2(f.concat_ws("-", "id", "copy"), 256)
    zone = f.when(draw % 3 == 0, f.lit(0)).otherwise(draw % ZONES)
    trips = rows.select(zone.alias("zone"), (draw % 10_000 / 100).alias("fare"), digest.alias("receipt")).repartition(
        32, "zone"
    )
    return trips.groupBy("zone").agg(f.sum("fare").alias("fares"), f.countDistinct("receipt").alias("receipts"))


def _readings(spark: SparkSession) -> DataFrame:
    """Return each zone's mean of readings smoothed in Python workers; the task of partition 5 fails on its first attempt."""
    from pyspark.sql import functions as f

    rows = spark.range(0, 300_000, 1, 24).select(
        (f.abs(f.xxhash64("id")) % ZONES).alias("zone"), (f.col("id") % 97).alias("level")
    )
    smooth = rows.mapInPandas(_smooth, "zone long, level double")
    return smooth.groupBy("zone").agg(f.avg("level").alias("level"))


def _smooth(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Smooth the readings of a partition; fail once in partition 5, and sleep in every eleventh partition."""
    import time

    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None and context.partitionId() == 5 and context.attemptNumber() == 0:
        raise RuntimeError("sensor 5 did not answer; the second attempt will")
    if context is not None and context.partitionId() % 11 == 0:
        time.sleep(0.6)  # a straggler that waits instead of working
    for batch in batches:
        yield batch.assign(level=batch["level"].ewm(span=20).mean())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
