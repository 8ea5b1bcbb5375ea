"""On Spark a run with the trigger "adaptive" pauses after a micro-batch, and stops at once all the same."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import streamq as sq
from streamq.run.pacing import Pacer

HOUR = 3_600_000_000


def test_a_run_pauses_for_rows_that_keep_coming_and_stops_within_the_pause(spark: SparkSession, tmp_path: Path) -> None:
    """The first micro-batch tells where the hop of an hour stands, which is one chunk; the second is followed by the pause."""
    written: list[int] = []

    def write(rows: DataFrame, number: int) -> None:
        written.append(number)

    def waited_for_pause(pacer: Pacer) -> bool:
        until = time.monotonic() + 120
        while pacer.pace.begins == pacer.pace.ended and time.monotonic() < until:
            time.sleep(0.05)
        return pacer.pace.begins > pacer.pace.ended

    rate = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    source = sq.points(rate, "timestamp", name="s", progress=sq.generate(0))
    with (
        source.tumbling_window("1 hour")
        .select(n=sq.count())
        .run(sink=write, checkpoint=str(tmp_path / "cp"), trigger="adaptive", buckets=1) as run
    ):
        pacer = run._launch.pacer
        assert pacer is not None and waited_for_pause(pacer)
        assert pacer.pace.begins % HOUR == 0 and len(written) >= 2
        assert run.metrics["pace"] == run.progress["pace"] == pacer.pace.record()
        begun, before = time.monotonic(), len(written)
        run.stop()
        assert time.monotonic() - begun < 60 and len(written) == before
