"""Late points on Spark, and rows that are no events, which are refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.errors import InvalidEvent
from streamq.testing.backends import land, stream
from tests.spark.replay import ended


def test_rows_that_are_no_events_are_refused(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    rows = pa.table(
        {"a": [5], "b": [3], "v": [1], "w": ["it"], "x": [2.5], "y": [True], "z": pa.array([None], "string")}
    )
    bad = spark.createDataFrame(rows)
    texts = []
    for table in (bad, rows):
        with pytest.raises(InvalidEvent) as refused:
            sq.intervals(table, start="a", end="b", name="x").to_pandas()
        texts.append(str(refused.value))
    first = "{'v': 1, 'w': 'it', 'x': 2.5, 'y': True, 'z': None}"
    what = f"source x: a row is no event: end not after start (start 5, end 3); first: {first}."
    assert texts == [f'{what} Mend the source, or say invalid="drop".'] * 2
    assert sq.intervals(bad, start="a", end="b", invalid="drop").to_pandas().empty
    land(tmp_path / "in", [rows])
    live = sq.intervals(stream(spark, tmp_path / "in", rows.schema), start="a", end="b", name="x", invalid="fail")
    with pytest.raises(InvalidEvent, match=r"source x: a row is no event: end not after start \(start 5, end 3\)"):
        ended(live, checkpoint=str(tmp_path / "cp"), sink=str(tmp_path / "out"), buckets=2)


def test_points_that_steps_have_moved_are_late_by_where_they_were(spark: SparkSession, tmp_path: Path) -> None:
    """By the kernel that reads them first, whatever the policy makes of other events; their column has a dot in its name."""
    schema = pa.schema([("at", pa.int64()), ("a.k", pa.string())])
    for name, instants in (("l", ([10, 50, 100], [98, 99, 100, 140], [400])), ("r", ([12, 60], [103, 150], [400]))):
        tables = [pa.table({"at": at, "a.k": ["x"] * len(at)}, schema=schema) for at in instants]
        land(tmp_path / name, tables)
    left, right = (
        sq.points(stream(spark, tmp_path / name, schema), time="at", name=name, late="adjust") for name in "lr"
    )
    query = left.shift(-3).set_duration(20).join(right, on="a.k", suffixes=("", "_r"))
    assert "judge lateness" not in query.explanation("physical")
    run = ended(query, checkpoint=str(tmp_path / "cp"), sink=str(tmp_path / "out"), buckets=2)
    assert run.late["l|dropped"] == 2 and run.late["l|adjusted"] == 0
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    # 10 with 12, 50 with 60, both 100 with 103, 140 with 150, and 400
    assert sorted(row["start"] for row in rows) == [12, 60, 103, 103, 150, 400]
