"""Stamped changelogs on Spark: the stamp of a micro-batch that is repeated, and the changelog as of each stamp."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import streamq as sq
import streamq.testing as t
from streamq.errors import QueryFailed
from streamq.testing.backends import land, stream
from tests.spark.replay import bag, rows

COLUMNS = "at bigint, k string, v bigint"
PARTS = [[(1, "x", 1), (4, "y", 2)], [(7, "x", 3), (12, "x", 4)], [(3, "y", 5), (31, "y", 6)]]


class Crash(Exception):
    """What the sink raises once its rows are written."""


def counted(s: sq.Stream) -> sq.Stream:
    return s.group_by("k").tumbling_window(10).select(n=sq.count(), top=sq.max("v"))


def test_the_stamp_of_a_micro_batch_that_is_repeated_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    tables = [t.table(COLUMNS, part) for part in PARTS]
    land(tmp_path / "in", tables)
    stamps: list[tuple[int, set[object]]] = []

    def write(batch: DataFrame, number: int) -> None:
        folder = str(tmp_path / "out" / f"b={number}")
        batch.write.mode("overwrite").parquet(folder)
        stamps.append((number, {row["sent"] for row in spark.read.parquet(folder).select("sent").collect()}))
        if number == 1 and len(stamps) == 2:
            raise Crash("after the rows are written")

    def query() -> sq.Stream:
        progress = sq.generate(delay=40)
        return counted(sq.points(stream(spark, tmp_path / "in", tables[0].schema), time="at", progress=progress))

    how = {"output": "changelog", "early": True, "ctis": True, "stamped": True, "sink": write}
    how |= {"checkpoint": str(tmp_path / "checkpoint"), "trigger": "available_now"}
    with pytest.raises(QueryFailed, match="after the rows are written"):
        query().run(**how)
    query().run(**how)
    tried = [seen for number, seen in stamps if number == 1]
    assert len(tried) == 2
    assert len(tried[0]) == 1
    assert tried[0] == tried[1]
    by_number = dict(stamps)
    instants = [next(iter(by_number[number])) for number in sorted(by_number) if by_number[number]]
    assert instants == sorted(set(instants))
    written = spark.read.parquet(str(tmp_path / "out")).drop("b")
    # the CTIs that the run sent are stamped, too
    assert written.where("sent IS NULL").count() == 0
    for number in range(len(PARTS)):
        so_far = t.table(COLUMNS, [row for part in PARTS[: number + 1] for row in part])
        expected = bag(counted(sq.points(so_far, time="at")).to_arrow())
        then = sq.physical(written, as_of=instants[number])
        assert rows(then.to_df()) == expected
        assert bag(sq.physical(written.toArrow(), as_of=instants[number]).to_arrow()) == expected
