"""Sources over DataFrames whose rows are no events, contradict others or match nothing; right ones: ``host_cases.py``."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.errors import InvalidEvent
from streamq.testing.backends import land
from tests.host_cases import DEBEZIUM, FEED, LOG
from tests.spark.replay import bag, rows


def test_rows_that_are_no_changes_or_contradict_others(spark: SparkSession) -> None:
    """In a batch, by policy."""
    good = [*DEBEZIUM.to_pylist(), *FEED.to_pylist()]

    def prices(*wrong: tuple[Any, ...], **how: Any) -> sq.Stream:
        more = [dict(zip(LOG.names, row, strict=True)) for row in wrong]
        frame = spark.createDataFrame([*good, *more], "at bigint, `op.type` string, id bigint, price bigint")
        return sq.changes(frame, "op.type", "at", "id", name="prices", **how)

    right = rows(prices().to_df())
    # of two versions of one key and instant that differ neither counts
    left = [row for row in right if row[1:] != (1, 7, 8)]
    wrong = [(4, "start", 1, 0), (4, None, 1, 0), (7, "d", 1, 0), (8, "u", 1, 9)]
    assert len(left) == len(right) - 1
    assert rows(prices(*wrong, invalid="drop").to_df()) == left
    with pytest.raises(InvalidEvent, match="source prices: a row is no event: unknown op 'start', known are c, r, u"):
        prices(wrong[0]).to_pandas()


def test_two_rows_of_one_id_that_differ(spark: SparkSession) -> None:
    twice = spark.createDataFrame(
        [(60, 4, "x", 100), (60, 4, "y", 101)], "at bigint, id bigint, v string, offset bigint"
    )
    with pytest.raises(InvalidEvent, match="source p: a row is no event: two rows of one id and start that differ"):
        sq.points(twice, "at", id="id", beside=["offset"], name="p").to_pandas()


def test_arrow_tables_on_spark(spark: SparkSession) -> None:
    """An Arrow table means on Spark what it means in-process: a time without a zone is UTC, whatever the session's zone."""
    noon = dt.datetime(2024, 5, 1, 12)
    naive = pa.table({"at": [noon, noon + dt.timedelta(minutes=5)], "seen": [noon, None], "k": ["a", "b"]})
    prices = DEBEZIUM.slice(0, 3)
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


# an event's first end, its retractions (of an end, to another), what is left of it
MOVED: list[tuple[int | None, list[tuple[int, int]], int | None]] = [
    (None, [(20, 15)], None),
    (5, [(6, 2)], 5),
    (5, [(5, 7), (9, 11), (11, 12)], 7),
    (5, [(5, 3), (5, 8), (8, 9)], 3),
    (5, [(7, 9), (9, 7), (6, 1)], 5),
    (9, [(8, 4), (10, 8), (9, 10)], 4),
]


def test_retractions_that_match_nothing_in_batch(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """They go with what follows from them and the others stay, with ids and without; by default they are errors."""
    rows: list[tuple[Any, ...]] = [
        ("insert", 1, end, None, k) for k, (end, _, _) in enumerate(MOVED) if end is not None
    ]
    rows += [("retract", 1, *move, k) for k, (_, moves, _) in enumerate(MOVED) for move in moves]
    items = [
        dict(zip(("kind", "start", "end", "new_end", "k"), row, strict=True), tags=[None, row[-1]]) for row in rows
    ]
    times = [(name, pa.int64()) for name in ("start", "end", "new_end")]
    schema = pa.schema([("kind", pa.string()), *times, ("k", pa.int64()), ("tags", pa.list_(pa.decimal128(38, 18)))])
    table = pa.Table.from_pylist(items, schema)
    land(tmp_path / "in", [table])
    df = spark.read.parquet(str(tmp_path / "in"))
    for id in ("k", None):
        on_spark = sq.physical(df, id=id, invalid="drop").to_df().toArrow()
        assert bag(on_spark) == bag(sq.physical(table, id=id, invalid="drop").to_arrow())
        ends = {row["k"]: (row["start"], row["end"]) for row in on_spark.to_pylist()}
        assert ends == {k: (1, end) for k, (_, _, end) in enumerate(MOVED) if end is not None}
        with pytest.raises(InvalidEvent, match="a row is no event: a retraction that matches nothing"):
            sq.physical(df, id=id).to_pandas()
