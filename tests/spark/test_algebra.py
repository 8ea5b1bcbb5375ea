"""Every operator, window and aggregate on Spark: batch = oracle, and streams = oracle for broad queries over all of them."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq
from streamq.testing.deltas import from_changelog, net
from streamq.testing.difference import assert_same_history
from streamq.testing.oracle import oracle
from tests.algebra import QUERIES, SCHEMA, SIZES, WINDOWS, intervals
from tests.spark.replay import ended, land, stream

TABLES = {"l": intervals(1), "r": intervals(2), "sizes": SIZES}
SOAK = bool(os.environ.get("STREAMQ_SOAK"))


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> dict[str, DataFrame]:
    return {n: spark.createDataFrame(t.to_pylist(), from_arrow_schema(t.schema)) for n, t in TABLES.items()}


def in_turn() -> list[str]:
    """The queries; of each window aggregates or top_k, of each join one with or without keys, in turn, in a soak both: that which
    ``test_batch_host.py`` leaves out.
    """
    left_out = {f"{window}: {('top_k', 'aggregates')[i % 2]}" for i, window in enumerate(WINDOWS)}
    left_out |= {"inner join", "semi join", "left join without keys", "anti join without keys"}
    return [name for name in QUERIES if SOAK or name not in left_out]


@pytest.mark.parametrize("name", in_turn())
def test_batch_is_the_oracles_history(frames: dict[str, DataFrame], plain: None, name: str) -> None:
    left, right = (sq.intervals(frames[n], start="from", end="to", name=n) for n in "lr")
    query = QUERIES[name](left, right, frames["sizes"])
    assert_same_history(query.to_df().toArrow(), oracle(query.plan, TABLES))


STREAMED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "parts, windows over them, a table": lambda s, t, z: (
        s.join(t, on="k", how="anti")
        .join_table(z, on="k", how="left", name="sizes")
        .group_by("k")
        .snapshot_window()
        .select(n=sq.count(), sizes=sq.sum("size"), first=sq.first("v"))
    ),
    "lifetimes that a step drops": lambda s, t, z: (
        s.extend(-4).group_by("k").count_window(2).select(n=sq.count(), every=sq.collect("v"))
    ),
    "pairs, sessions, counts, a difference": lambda s, t, z: (
        s.join(t.shift(3), on="k", suffixes=("", "_r"))
        .select("k", both=sq.col("v") + sq.col("v_r"))
        .union(s.except_(t).select("k", both=sq.col("v")), s.clip(t, on="k").to_points().select("k", both=sq.lit(0)))
        .group_by("k")
        .session_window(4)
        .select(n=sq.count(), most=sq.max("both"), every=sq.collect("both"))
    ),
    "last rows": lambda s, t, z: (
        s.windowed_join(t.last_rows(9, key="k"), on="k", rows=6, step=2, order_by="v", suffixes=("", "_r"))
        .group_by("k")
        .select(n=sq.count(), most=sq.max("v"), total=sq.sum("v_r"))
    ),
}


def test_streams_are_the_oracles_histories(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """In three micro-batches of one run, as final rows or as a changelog that folds to them."""
    sizes = spark.createDataFrame(SIZES.to_pylist(), from_arrow_schema(SIZES.schema))
    for n in "lr":
        table = TABLES[n]
        land(tmp_path / n, [table.slice(0, 15), table.slice(15, 12), table.slice(27)])
    progress = sq.generate(5)
    left, right = (
        sq.intervals(stream(spark, tmp_path / n, SCHEMA), start="from", end="to", name=n, progress=progress)
        for n in "lr"
    )
    queries = [query(left, right, sizes) for query in STREAMED.values()]
    # each as one kind of output: both are held against each other in-process
    outputs = ["final", "changelog", "changelog", "final"]
    sinks = [str(tmp_path / "out" / str(number)) for number in range(len(queries))]
    results = [sq.result(q, sink=s, output=o) for q, s, o in zip(queries, sinks, outputs, strict=True)]
    with sq.run_all(results, checkpoint=str(tmp_path / "cp"), buckets=2) as run:
        run.finish()
    for query, sink, output in zip(queries, sinks, outputs, strict=True):
        rows = spark.read.parquet(sink).drop("streamq_batch").toArrow()
        assert_same_history(rows if output == "final" else net([from_changelog(rows)]), oracle(query.plan, TABLES))


SPRING = dt.datetime(2024, 3, 9, 20, tzinfo=dt.UTC)
"""Eleven hours before clocks go forward in New York."""


def hours(seed: int) -> sq.Stream:
    """Stays of some hours around that night, a due time each; one in five has no end."""
    rng = random.Random(seed)
    made = []
    for _ in range(25):
        start = SPRING + dt.timedelta(minutes=rng.randint(0, 36 * 60))
        end = None if rng.randint(0, 4) == 0 else start + dt.timedelta(minutes=rng.randint(1, 400))
        lasts = dt.timedelta(minutes=rng.randint(-60, 2000), microseconds=rng.randint(0, 999_999))
        due, micros = rng.choice([None, start + lasts]), lasts // dt.timedelta(microseconds=1)
        made.append((start, end, {"k": rng.choice("ab"), "due": due, "micros": micros}))
    return sq.events(made, name=f"hours{seed}")


def _seen(stream: Any) -> Any:
    return stream.select(n=sq.count(), at=sq.window_start(), first=sq.first("due"))


ZONED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "windows": lambda s, t, lasts: _seen(s.group_by("k").session_window("20 minutes")).union(
        _seen(s.group_by("k").landmark_window("5 hours", start=SPRING)),
        _seen(s.group_by("k").landmark_window("7 hours", period="1 day")),
        _seen(s.group_by("k").snapshot_window()),
        _seen(s.group_by("k").count_window(3)),
        _seen(s.group_by("k").tumbling_window("1 day")),
    ),
    "lifetimes": lambda s, t, lasts: (
        s.chop("1 hour")
        .clip(t, on="k")
        .union(
            s.set_duration(sq.col("due") - sq.start()),
            s.set_duration(lasts),
            s.alter_lifetime(start=sq.start() + dt.timedelta(hours=3)),
        )
        .with_columns(begun=sq.start(), over=sq.end(), late=sq.end() > sq.col("due"))
        .windowed_join(t.where(sq.start() >= SPRING + dt.timedelta(hours=9)), size="1 day", on="k", suffixes=("", "_t"))
    ),
}


@pytest.mark.parametrize("name", ZONED)
def test_the_sessions_time_zone_changes_nothing(spark: SparkSession, plain: None, name: str) -> None:
    """In New York the answer is that in-process, which knows no time zone of a session."""
    streams = [hours(1), hours(2)]
    # an interval is put together by Spark alone
    seconds = (sq.col("micros") / 1_000_000).cast("decimal(18, 6)")
    interval = sq.functions.make_dt_interval(sq.lit(0), sq.lit(0), sq.lit(0), seconds)
    query, local = (ZONED[name](*streams, lasts) for lasts in (interval, sq.col("micros")))
    expected = local.to_arrow()
    assert_same_history(expected, oracle(local.plan, local.tables))
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        frames = {name: spark.createDataFrame(table) for name, table in query.tables.items()}
        assert_same_history(sq.Stream(query.plan, frames).to_arrow(), expected)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_clocks_are_those_of_utc(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """What reads an hour, a day's length or a timestamp's text answers in New York as it does in-process."""

    def read(s: sq.Stream) -> sq.Stream:
        told = s.select(
            "at", hour=sq.functions.hour(sq.start()), text=(sq.start() + dt.timedelta(days=1)).cast("string")
        )
        return (
            told.set_duration("20 hours")
            .snapshot_window()
            .select(n=sq.count(), hours=sq.sum("hour"), last=sq.last("at"), text=sq.collect("text"))
            .with_columns(since=sq.window_start().cast("string"))
        )

    times = [SPRING + dt.timedelta(hours=n) for n in (0, 5, 13)]
    column = pa.array(times, pa.timestamp("us", "UTC"))
    table = pa.table({"t": column, "at": column})
    moment = dt.timedelta(microseconds=1)
    expected = read(sq.events([(t, t + moment, {"at": t}) for t in times])).to_arrow()
    land(tmp_path / "in", [table.slice(0, 2), table.slice(2)])
    out, before = str(tmp_path / "out"), spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        assert_same_history(read(sq.points(spark.createDataFrame(table), time="t")).to_arrow(), expected)
        live = sq.points(stream(spark, tmp_path / "in", table.schema), time="t", progress=sq.generate("1 hour"))
        ended(read(live), checkpoint=f"{out}-cp", sink=out, buckets=1)
        assert_same_history(spark.read.parquet(out).toArrow(), expected)
        assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
