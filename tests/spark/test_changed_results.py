"""Results that come and go while a run of several goes on, and what a result holds in the middle of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.errors import CheckpointError, PlanError
from tests.spark.replay import rows


def send(spark: SparkSession, path: Path, trips: list[tuple[int, str]]) -> None:
    spark.createDataFrame(trips, "at bigint, zone string").coalesce(1).write.mode("append").parquet(str(path / "trips"))


def trips_in(path: Path) -> sq.Stream:
    files = sq.files(path / "trips", schema="at bigint, zone string")
    return sq.points(files, time="at", name="trips", progress=sq.generate())


def test_a_result_more_and_less(spark: SparkSession, tmp_path: Path) -> None:
    """By one handle: a new one sees what its shared parts have seen, the others go on; what does not fit changes nothing."""
    send(spark, tmp_path, [(1, "a"), (2, "b"), (12, "a")])
    trips = trips_in(tmp_path)
    per_zone = trips.group_by("zone").tumbling_window(10).select(n=sq.count())

    def result(query: sq.Stream, name: str) -> Any:
        return sq.result(query, name=name, sink=str(tmp_path / name))

    run = sq.run_all([result(per_zone, "all")], checkpoint=str(tmp_path / "cp"), buckets=2)
    with run:
        run.process_all_available()
        assert rows(run.table()) == [(10, 1, 0, "a"), (10, 1, 0, "b")]
        run.add(result(per_zone.where(sq.col("n") > 1), "busy"))
        send(spark, tmp_path, [(13, "a"), (25, "b")])
        run.process_all_available()
        assert rows(run.table("busy")) == [(20, 2, 10, "a")]
        assert len(rows(run.table("all"))) == 3
        with pytest.raises(PlanError, match="add: a result called 'busy' is there"):
            run.add(result(per_zone, "busy"))
        with pytest.raises(CheckpointError, match="cannot go on with this query"):
            run.add(result(trips.shift(1).group_by("zone").tumbling_window(7).select(m=sq.count()), "other"))
        with pytest.raises(CheckpointError, match="has files of others"):
            run.add(sq.result(per_zone, name="other", sink=str(tmp_path / "trips")))
        with pytest.raises(PlanError, match="remove: no result 'busier'; there are: 'all', 'busy'"):
            run.remove("busier")
        run.remove("busy")
        with pytest.raises(PlanError, match="remove: 'all' is the only result"):
            run.remove("all")
        send(spark, tmp_path, [(26, "b"), (41, "b")])
        run.process_all_available()
        assert rows(run.table()) == [(10, 1, 0, "a"), (10, 1, 0, "b"), (20, 2, 10, "a"), (30, 2, 20, "b")]
        assert [folder.name for folder in sorted((tmp_path / "busy").glob("streamq_batch=*"))] == ["streamq_batch=1"]
    with pytest.raises(PlanError, match="remove: the run is over"):
        sq.run_all(
            [result(per_zone, "x"), result(per_zone, "y")], trigger="available_now", checkpoint=str(tmp_path / "cp2")
        ).remove("x")


def test_what_a_result_holds(spark: SparkSession, tmp_path: Path) -> None:
    """A changelog is folded, one result's part of a folder is its own, and other sinks are refused."""
    send(spark, tmp_path, [(1, "a"), (12, "a"), (3, "b")])
    trips = trips_in(tmp_path)
    per_zone = trips.group_by("zone").tumbling_window(10).select(n=sq.count())
    every = trips.tumbling_window(10).select(n=sq.count())
    results = [sq.result(q, name=n, output="changelog") for q, n in ((per_zone, "1"), (every, "2"))]
    how = {"checkpoint": str(tmp_path / "cp"), "buckets": 2, "early": True}
    with sq.run_all(results, folder=str(tmp_path / "out"), **how) as run:
        run.process_all_available()
        assert rows(run.table("2")) == [(10, 2, 0), (20, 1, 10)]
        send(spark, tmp_path, [(14, "a")])
        run.process_all_available()
        assert rows(run.table("1")) == [(10, 1, 0, "a"), (10, 1, 0, "b"), (20, 2, 10, "a")]
        with pytest.raises(PlanError, match="table: the run has several results; there are: '1', '2'"):
            run.table()
    with every.run(checkpoint=str(tmp_path / "cp2")) as plain:
        with pytest.raises(PlanError, match="table: the rows of the result cannot be read back; its sink is None"):
            plain.table()
        with pytest.raises(PlanError, match="add: the run is of a single query"):
            plain.add(sq.result(every))
