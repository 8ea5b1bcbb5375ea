"""State stays flat over many micro-batches with moving CTIs, and over the restarts between them. Only in ``make soak``."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t
from streamq.run.status.run_status import from_spark
from streamq.testing.backends import land, stream

RUNS, EACH = 12, 84
"""Runs on one checkpoint, and micro-batches of each; Spark keeps a hundred reports of a run."""

COLUMNS = "start bigint, end bigint, k string, v int"


def arriving(number: int) -> pa.Table:
    """The rows of a micro-batch, out of order by up to 15, with a pause now and then in which sessions end."""
    at = 10 * number + 60 * (number // 3)
    rows = [(at + n - 15 * (n % 2), at + n + 4 + 3 * n, "abc"[(number + n) % 3], n) for n in range(8)]
    return t.table(COLUMNS, rows)


def query(s: sq.Stream) -> sq.Stream:
    """Kernels that keep windows, pairs, sessions, the last of a signal, and rows that are not settled."""
    again = s.shift(3).where(sq.col("v") > 2)
    return (
        s.group_by("k").hopping_window(20, 5).select(n=sq.count())
        .union(s.join(again, on="k", suffixes=("", "_r")).select("k", n=sq.col("v_r").cast("long")))
        .union(s.left_anti_join(again, on="k").select("k", n=sq.lit(0).cast("long")))
        .union(s.group_by("k").session_window(3).select(n=sq.count()))
        .union(s.to_signal("k").select("k", n=sq.col("v").cast("long")))
    )  # fmt: skip


def test_state_stays_flat(spark: SparkSession, tmp_path: Path) -> None:
    sizes: list[tuple[int, int]] = []
    out = tmp_path / "out"
    for number in range(RUNS):
        land(tmp_path / "in", [arriving(number * EACH + i) for i in range(EACH)], first=number * EACH)
        arrived = stream(spark, tmp_path / "in", arriving(0).schema)
        s = sq.intervals(arrived, start="start", end="end", name="s", progress=sq.generate(20))
        last = number == RUNS - 1
        run = query(s).run(
            sink=str(out), checkpoint=str(tmp_path / "cp"), trigger="available_now", buckets=2, finish=last
        )
        for report in run.query.recentProgress:
            kernels = from_spark(json.loads(report.json)).readings.of_kernels.values()
            if kernels and not last:
                sizes.append((sum(k.state_rows or 0 for k in kernels), sum(k.state_bytes or 0 for k in kernels)))
        assert sum(run.late.values()) == 0
    assert len(sizes) == (RUNS - 1) * EACH
    for size in zip(*sizes, strict=True):
        half = len(size) // 2
        assert 0 < max(size[half:]) <= 1.1 * max(size[:half])
    everything = pa.concat_tables([arriving(i) for i in range(RUNS * EACH)])
    whole = query(sq.intervals(everything, start="start", end="end", name="s"))
    t.assert_same_history(spark.read.parquet(str(out)).toArrow(), whole.to_arrow())
