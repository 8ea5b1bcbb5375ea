"""Kernels that share a stage on Spark: the steps between them are computed by the worker."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from tests.spark.replay import land, rows, stream

pytestmark = pytest.mark.usefixtures("plain")

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("n", pa.int64())])
EVENTS = [
    {"t": t, "k": k, "n": n}
    for t, (k, n) in enumerate([("a", 3), ("b", -1), (None, 5), ("a", 8), ("b", 4), ("c", 2)] * 12)
]


def chained(points: sq.Stream) -> tuple[sq.Stream, sq.Stream]:
    """Windows over windows per key, with filters, columns and lifetimes computed between them; and the first of them."""
    first = points.group_by("k").tumbling_window(6).select(n=sq.sum("n"), most=sq.max("n"))
    changed = first.where((sq.col("n") > 3) | sq.col("k").is_null()).with_columns(
        n=sq.when(sq.col("most") >= 8, sq.col("n") * 2 - 1).otherwise(sq.col("n"))
    )
    second = changed.shift(2).group_by("k").session_window(5).select(n=sq.sum("n"), best=sq.max("most"))
    third = (
        second.where(sq.col("best") >= 2).group_by("k").tumbling_window(24).select(n=sq.sum("n"), best=sq.max("best"))
    )
    return third, first


def test_windows_over_windows_per_key_are_one_stage(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """Two results, one of rows that the stage also reads itself; the run is started anew after each micro-batch."""
    (tmp_path / "in").mkdir()
    for part in range(4):
        land(tmp_path / "in", [pa.Table.from_pylist(EVENTS[18 * part : 18 * part + 18], schema=SCHEMA)], first=part)
        points = sq.points(stream(spark, tmp_path / "in", SCHEMA), time="t", name="p", progress=sq.generate(2))
        third, first = chained(points)
        run = sq.run_all(
            [sq.result(third, sink=str(tmp_path / "third")), sq.result(first, sink=str(tmp_path / "first"))],
            checkpoint=str(tmp_path / "cp"),
            trigger="available_now",
            buckets=3,
            finish=part == 3,
        )
        (stage,) = run.metrics["stages"]
        assert len(stage["operators"]) == 3
    whole = sq.points(spark.read.parquet(str(tmp_path / "in")), time="t")
    for name, query in zip(("third", "first"), chained(whole), strict=True):
        answer = query.to_df()
        written = spark.read.parquet(str(tmp_path / name)).select(*answer.columns)
        assert rows(answer) and rows(written) == rows(answer)
