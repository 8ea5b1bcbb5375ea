"""A long history is caught up with in bounded micro-batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t
from streamq.errors import PlanError, SourceError
from streamq.testing.backends import land


def test_a_backfill_in_bounded_micro_batches(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """As many bytes of files at once as is said, a file at least; the answer is that of all at once."""
    parts = [t.table("at bigint, k string", [(10 * i + n, "ab"[n % 2]) for n in range(8)]) for i in range(4)]
    land(tmp_path / "in", parts)
    sizes = {f.stat().st_size for f in (tmp_path / "in").glob("*.parquet")}
    batches = {}
    own = {"options": {"maxBytesPerTrigger": 2 * max(sizes)}}
    for name, how in {"default": {}, "two": {"at_once": 2 * max(sizes)}, "own": own}.items():
        s = sq.points(sq.read_stream(str(tmp_path / "in"), **how), time="at", name="s")
        out = str(tmp_path / name)
        query = s.tumbling_window(10).select(n=sq.count())
        run = query.run(sink=out, checkpoint=f"{out}-cp", trigger="available_now", finish=True, buckets=2)
        batches[name] = run.metrics["query"]["batches"]
        found = spark.read.parquet(out).select("start", "end", "n").collect()
        assert sorted(tuple(row) for row in found) == [(10 * i, 10 * i + 10, 8) for i in range(4)]
    # the end is one more
    assert batches == {"default": 2, "two": 3, "own": 3}


def test_what_is_no_folder_to_read(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"read_stream: no schema; .*PATH_NOT_FOUND. Give schema=..."):
        sq.read_stream(str(tmp_path / "none"))
    with pytest.raises(PlanError, match="read_stream: at_once is a number of bytes, at least 1; found '64 MB'"):
        sq.read_stream(str(tmp_path), at_once="64 MB")  # type: ignore[arg-type]
    assert sq.read_stream(str(tmp_path), schema="v int", at_once=None).isStreaming
