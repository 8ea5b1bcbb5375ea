"""Rows that are late or no events, on Spark: counted and kept in a stream, refused in a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamq as sq
from streamq.errors import InvalidEvent, LateEvent
from tests.spark.replay import ended, land, stream


def test_late_and_invalid_rows_are_counted_and_kept(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """Behind the CTI, or no event at all: by policy, counted by source and reason, and in the late output."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("v", pa.int64())])
    first = pa.Table.from_pylist(
        [{"a": 0, "b": 5, "v": 1}, {"a": 100, "b": 130, "v": 2}, {"a": None, "b": 4, "v": 3}], schema=schema
    )
    second = pa.Table.from_pylist(
        [{"a": 10, "b": 20, "v": 4}, {"a": 50, "b": 300, "v": 5}, {"a": 120, "b": 110, "v": 6}], schema=schema
    )
    land(tmp_path / "in", [first, second])

    def run(late: str, invalid: str = "drop", late_sink: str | None = None) -> Any:
        s = sq.intervals(
            stream(spark, tmp_path / "in", schema),
            start="a",
            end="b",
            name="stays",
            progress=sq.generate(0),
            late=late,
            invalid=invalid,
        )
        q = s.tumbling_window(50).select(n=sq.count(), s=sq.sum("v"))
        name = f"{late}-{invalid}-{late_sink is not None}"
        where = {"checkpoint": str(tmp_path / f"cp-{name}"), "sink": str(tmp_path / name), "late_sink": late_sink}
        return ended(q, **where, buckets=2)

    dropped = run("drop")
    assert dropped.late == {"stays|dropped": 2, "stays|adjusted": 0, "stays|invalid": 2, "stays|duplicates": 0}
    want = {(0, 50, 1, 1), (100, 150, 1, 2)}
    assert {
        tuple(r)
        for r in spark.read.parquet(str(tmp_path / "drop-drop-False")).select("start", "end", "n", "s").collect()
    } == want
    adjusted = run("adjust", late_sink=str(tmp_path / "late"))
    assert adjusted.late == {"stays|dropped": 1, "stays|adjusted": 1, "stays|invalid": 2, "stays|duplicates": 0}
    out = spark.read.parquet(str(tmp_path / "adjust-drop-True"))
    want = {(0, 50, 1, 1), (100, 150, 2, 7), (150, 200, 1, 5), (200, 250, 1, 5), (250, 300, 1, 5)}
    assert {tuple(r) for r in out.select("start", "end", "n", "s").collect()} == want
    late = {
        tuple(r)
        for r in spark.read.parquet(str(tmp_path / "late"))
        .select("source", "reason", "start", "end", "late_by", "payload")
        .collect()
    }
    assert late == {
        ("stays", "null start", None, 4, None, '{"v": 3}'),
        ("stays", "end not after start", 120, 110, None, '{"v": 6}'),
        ("stays", "dropped", 10, 20, 90, '{"v": 4}'),
        ("stays", "adjusted", 50, 300, 50, '{"v": 5}'),
    }
    with pytest.raises(LateEvent, match=r"source stays: 2 late item\(s\) behind the CTI"):
        run("fail")
    with pytest.raises(InvalidEvent, match=r"source stays: a row is no event: null start \(start NULL, end 4\)"):
        run("drop", "fail")


def test_late_corrections_are_replayed_from_the_late_sink(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """An event that was dropped comes back as its late retraction left it; one on time is corrected beside its input."""
    schema = pa.schema([("kind", pa.string()), *((n, pa.int64()) for n in ("start", "end", "new_end", "v"))])
    batches = [
        [("insert", 20, 40, None, 1), ("insert", 100, 110, None, 2)],
        [("insert", 10, None, None, 3), ("retract", 20, 40, 35, 1)],
        [("retract", 10, None, 25, 3)],
    ]
    names = schema.names
    tables = [pa.Table.from_pylist([dict(zip(names, r, strict=True)) for r in rows], schema) for rows in batches]
    land(tmp_path / "in", tables)
    log = sq.physical(stream(spark, tmp_path / "in", schema), name="log", progress=sq.generate(0))
    late_sink = str(tmp_path / "late")
    run = ended(log, checkpoint=str(tmp_path / "cp"), sink=str(tmp_path / "out"), late_sink=late_sink, buckets=2)
    assert run.late["log|dropped"] == 3
    late = spark.read.parquet(late_sink).where("source = 'log' and reason = 'dropped'")
    lifetime = ["kind", "start", "end", "new_end"]
    rows = late.select(*lifetime, F.from_json("payload", "v bigint").alias("p")).select(*lifetime, "p.*")
    assert sq.physical(rows, invalid="drop").to_arrow().to_pylist() == [{"v": 3, "start": 10, "end": 25}]
    on_time = spark.createDataFrame(tables[0])
    corrected = sq.physical(on_time.unionByName(rows)).to_arrow().to_pylist()
    assert [tuple(row.values()) for row in corrected] == [(3, 10, 25), (1, 20, 35), (2, 100, 110)]


def test_a_batch_refuses_rows_that_are_no_events(spark: SparkSession, tmp_path: Path) -> None:
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
