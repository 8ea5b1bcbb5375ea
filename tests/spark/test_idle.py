"""A run speaks for its silent sources, from a thread of its own."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t
from streamq.testing.backends import land, stream


def test_an_idle_input_lets_the_others_pass(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    empty = t.table("at bigint, k string", [])
    progress = sq.generate(2, idle_after="2 seconds")
    a, b = (
        sq.points(stream(spark, tmp_path / name, empty.schema), time="at", name=name, progress=progress)
        for name in "ab"
    )
    land(tmp_path / "a", [t.table("at bigint, k string", [(at, "x") for at in (1, 5, 30)])])
    land(tmp_path / "b", [t.table("at bigint, k string", [(2, "x")])])
    out = tmp_path / "out"
    query = a.set_duration(3).left_anti_join(b, on="k")
    with query.run(sink=str(out), checkpoint=str(tmp_path / "checkpoint"), buckets=2) as run:
        until = time.monotonic() + 120
        while time.monotonic() < until and run.metrics["sources"]["b"]["cti"] != 30:
            time.sleep(0.2)
        run.process_all_available()
        assert run.metrics["sources"]["b"]["cti"] == 30, "both are silent: no delay is waited for"
    found = spark.read.parquet(str(out)).select("start", "end").collect()
    assert sorted(tuple(row) for row in found) == [(1, 2), (3, 4), (5, 8)]
