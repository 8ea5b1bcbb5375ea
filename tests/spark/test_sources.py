"""signal and changes over DataFrames: in batch and as streams, rows against lifetimes written down."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.errors import InvalidEvent
from tests.spark.replay import bag, ended, folded, land, rows, stream

LOG = pa.schema([("at", pa.int64()), ("op.type", pa.string()), ("id", pa.int64()), ("price", pa.int64())])


def log(*made: tuple[int, str | None, int, int | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(LOG.names, row, strict=True)) for row in made], schema=LOG)


def versions(*made: tuple[int, int | None, int, int]) -> list[tuple[object, ...]]:
    names = ("start", "end", "id", "price")
    return bag(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in made]))


# id     at  1    2    3    4    5    6    7    8    9
# 1         |c 5      |u 6      |d             |c 7
# 2              |r 9                |u 8
# 3         |insert 1           |delete, insert 2    |update 3
# 4                   |insert 4 |preimage 4, postimage 5
DEBEZIUM = log((1, "c", 1, 5), (3, "U", 1, 6), (5, "d", 1, None), (8, "c", 1, 7), (2, "r", 2, 9), (6, "u", 2, 8))
FEED = log(
    (5, "insert", 3, 2),
    (1, "INSERT", 3, 1),
    (5, "delete", 3, 1),
    (9, "update", 3, 3),
    (3, "insert", 4, 4),
    (5, "update_postimage", 4, 5),
    (5, "Update_Preimage", 4, 4),
)
VERSIONS = versions(
    (1, 3, 1, 5), (3, 5, 1, 6), (8, None, 1, 7), (2, 6, 2, 9), (6, None, 2, 8),
    (1, 5, 3, 1), (5, 9, 3, 2), (9, None, 3, 3), (3, 5, 4, 4), (5, None, 4, 5),
)  # fmt: skip


def test_changes_in_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Both vocabularies in one log, in any order; words that are none of them, and deletes of nothing, by policy."""
    land(tmp_path / "in", [DEBEZIUM, FEED])
    df = spark.read.parquet(str(tmp_path / "in"))
    table = sq.changes(df, op="op.type", time="at", key="id")
    assert table.columns == ["id", "price"]
    assert rows(table.to_df()) == VERSIONS
    wrong = [(4, "start", 1, 0), (4, None, 1, 0), (7, "d", 1, 0), (8, "u", 1, 9)]
    more = df.union(spark.createDataFrame(wrong, df.schema))
    assert rows(sq.changes(more, "op.type", "at", "id", invalid="drop").to_df()) == VERSIONS
    with pytest.raises(InvalidEvent, match="source prices: a row is no event: neither a start nor an end"):
        sq.changes(
            df.union(spark.createDataFrame(wrong[:1], df.schema)), "op.type", "at", "id", name="prices"
        ).to_pandas()


def test_changes_as_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """A changelog shows a version that is still there, and takes it back when a later batch ends it; the sum is the batch's."""
    strange = log((7, "truncate", 1, 0), (9, "d", 7, 0))
    land(tmp_path / "in", [DEBEZIUM.slice(0, 5), pa.concat_tables([DEBEZIUM.slice(5), FEED, strange])])
    df = stream(spark, tmp_path / "in", LOG)
    query = sq.changes(df, op="op.type", time="at", key=["id"], name="prices", progress=sq.generate(100))
    run = ended(query, checkpoint=str(tmp_path / "cp"), sink=str(tmp_path / "out"), output="changelog", buckets=3)
    assert run.late == {"prices|dropped": 0, "prices|adjusted": 0, "prices|invalid": 2, "prices|duplicates": 0}
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.where("kind = 'insert' and id = 2 and price = 9 and end is null").count() == 1
    assert folded(found) == VERSIONS


def test_signal_in_batch(spark: SparkSession) -> None:
    """Samples on the timestamp axis, two of them of one key and instant; the last of a key is still alive."""
    at = [dt.datetime(2024, 1, 1, 12, minute, tzinfo=dt.UTC) for minute in (4, 1, 3, 2, 6, 2)]
    made = list(zip(at, "aabbbb", (21, 20, 9, 7, 8, 5), strict=True))
    df = spark.createDataFrame(made, "at timestamp, sensor string, v int")
    temperatures = sq.signal(df, time="at", key="sensor")
    found = temperatures.to_df().selectExpr("sensor", "v", "minute(start) start", "minute(end) end")
    assert rows(found) == sorted(
        [(4, "a", 1, 20), (None, "a", 4, 21), (3, "b", 2, 7), (3, "b", 2, 5), (6, "b", 3, 9), (None, "b", 6, 8)],
        key=repr,
    )


def test_arrow_tables_on_spark(spark: SparkSession) -> None:
    """An Arrow table means on Spark what it means in-process: a time without a zone is UTC, whatever the session's zone."""
    noon = dt.datetime(2024, 5, 1, 12)
    naive = pa.table({"at": [noon, noon + dt.timedelta(minutes=5)], "seen": [noon, None], "k": ["a", "b"]})
    prices = log((1, "c", 1, 5), (3, "U", 1, 6), (5, "d", 1, None))
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        for table, source in (
            (naive, lambda t: sq.points(t, "at", name="naive")),
            (prices, lambda t: sq.changes(t, "op.type", "at", "id", name="prices")),
        ):
            local = source(table)
            query = sq.from_json(local.union(local).to_json(), {next(iter(local.tables)): local})
            assert bag(query.to_df().toArrow()) == bag(query.to_arrow())
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
