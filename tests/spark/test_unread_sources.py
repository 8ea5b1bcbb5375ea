"""A source that rules take out of the plan: a stream reads it for its progress, a batch does not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t
from streamq.errors import StreamqWarning
from tests.spark.replay import folded, land, rows, stream

pytestmark = pytest.mark.usefixtures("plain")

SCHEMA = "at bigint, v bigint"


def uncancelled(c: sq.Stream, a: sq.Stream) -> sq.Stream:
    with pytest.warns(StreamqWarning, match="cancels none"):
        return sq.cedr("EVENT E WHEN CANCEL_WHEN(C AS c, A AS a)", C=c, A=a)


def test_a_stream_waits_for_a_source_that_nobody_reads(spark: SparkSession, tmp_path: Path) -> None:
    """At the strong level, until it has come further or ends; a run on the checkpoint goes on, and its late row is counted."""
    c = t.table(SCHEMA, [(1, 1), (4, 2)])
    parts = [t.table(SCHEMA, [(2, 7)]), t.table(SCHEMA, [(0, 8), (9, 9)])]
    land(tmp_path / "c", [c])

    def point(name: str, table: pa.Table) -> sq.Stream:
        return sq.points(stream(spark, tmp_path / name, table.schema), time="at", name=name, progress=sq.generate(0))

    where = {
        "checkpoint": str(tmp_path / "cp"),
        "sink": str(tmp_path / "out"),
        "trigger": "available_now",
        "buckets": 2,
    }
    counts = []
    for number, part in enumerate(parts):
        land(tmp_path / "a", [part], first=number)
        query = uncancelled(point("c", c), point("a", part))
        run = query.run(**where, output="changelog", consistency="strong", finish=number == len(parts) - 1)
        counts.append(spark.read.parquet(str(tmp_path / "out")).count())
    assert counts == [1, 2]
    assert (run.late["a|dropped"], run.metrics["sources"]["a"]["rows"]) == (1, 3)
    batch = uncancelled(*(sq.points(spark.read.parquet(str(tmp_path / name)), time="at", name=name) for name in "ca"))
    assert rows(batch.to_df()) == folded(spark.read.parquet(str(tmp_path / "out")))
