"""Results that come and go while a run of several goes on, and what a result holds in the middle of a run."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t
from streamq.errors import CheckpointError, PlanError
from tests.spark.replay import rows
from tests.spark.test_session import ended


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
    now: dict[str, Any] = {"buckets": 2, "early": True}
    with sq.publish(per_zone, "zones", store=str(tmp_path / "s"), checkpoint=str(tmp_path / "cp3"), **now) as published:
        published.process_all_available()
        assert rows(published.table()) == rows(published.table("zones")) == rows(per_zone.to_df())
        send(spark, tmp_path, [(15, "a"), (31, "b")])
        published.process_all_available()
        assert rows(published.table()) == rows(per_zone.to_df())
    changes: dict[str, Any] = {"sink": str(tmp_path / "changes"), "checkpoint": str(tmp_path / "cp4")}
    with per_zone.run(output="changelog", **changes, **now) as single:
        single.process_all_available()
        assert rows(single.table()) == rows(per_zone.to_df())
        with pytest.raises(PlanError, match="table: no result 'zones'; there are: none has a name"):
            single.table("zones")
    with every.run(checkpoint=str(tmp_path / "cp2")) as plain:
        with pytest.raises(PlanError, match="table: the rows of the result cannot be read back; its sink is None"):
            plain.table()
        with pytest.raises(PlanError, match="add: the run is of a single query"):
            plain.add(sq.result(every))


def test_results_come_and_go_while_rows_do(spark: SparkSession, tmp_path: Path) -> None:
    """Rows arrive all the while: the result that stays has each row once, the other one those from its first micro-batch on."""
    (tmp_path / "trips").mkdir()
    is_over = threading.Event()

    def arrive() -> None:
        number = 0
        while not is_over.wait(0.1):
            trips = [(5 * number + i, "abc"[(number + i) % 3]) for i in range(5)]
            file = tmp_path / "trips" / f".{number:04}"
            pq.write_table(t.table("at bigint, zone string", trips), file)
            # as a whole, for Spark reads what it sees
            file.rename(tmp_path / "trips" / f"{number:04}.parquet")
            number += 1

    trips = trips_in(tmp_path)
    per_zone = trips.group_by("zone").tumbling_window(10).select(n=sq.count())
    results = [sq.result(per_zone, name="all", sink=str(tmp_path / "all"))]
    sender = threading.Thread(target=arrive)
    sender.start()
    try:
        with sq.run_all(results, checkpoint=str(tmp_path / "cp"), buckets=2) as run:
            wait(run, 2)
            run.add(sq.result(per_zone.where(sq.col("n") > 3), name="busy", sink=str(tmp_path / "busy")))
            wait(run, 3)
            last = run.progress["batch"]
            run.remove("busy")
            wait(run, 1)
            is_over.set()
            sender.join()
            run.finish()
    finally:
        is_over.set()
    everything = spark.read.parquet(str(tmp_path / "all"))
    assert rows(everything.drop("streamq_batch")) == rows(per_zone.to_df())
    busy = spark.read.parquet(str(tmp_path / "busy"))
    numbers = [int(path.name.partition("=")[2]) for path in (tmp_path / "busy").glob("streamq_batch=*")]
    assert busy.count() and min(numbers) <= last
    since = everything.where(f"n > 3 AND streamq_batch BETWEEN {min(numbers)} AND {max(last, *numbers)}")
    assert rows(busy) == rows(since)


def wait(run: sq.Run, more: int) -> None:
    """Wait for so many micro-batches of a run since its last start."""
    deadline = time.monotonic() + 120
    while len(run.query.recentProgress) < more and time.monotonic() < deadline:
        time.sleep(0.05)
    assert run.query.isActive and len(run.query.recentProgress) >= more


def test_through_spark_connect(connect_url: str, tmp_path: Path) -> None:
    """The server writes publications, and a result comes and goes there as elsewhere."""
    code = """
        import sys
        import streamq as sq
        from streamq.run.session.spark_session import session
        url, folder = sys.argv[1:]
        spark = session(master=url, config={"spark.sql.shuffle.partitions": 2})
        def send(*trips):
            spark.createDataFrame(trips, "at bigint, zone string").coalesce(1).write.mode("append").parquet(folder + "/in")
        def shown(frame):
            return sorted(tuple(row) for row in frame.select("zone", "n", "start").collect())
        send((1, "a"), (2, "a"), (12, "b"))
        trips = sq.points(sq.files(folder + "/in"), time="at", name="trips", progress=sq.generate())
        zones = trips.group_by("zone").tumbling_window(10).select(n=sq.count())
        results = [sq.result(zones, name="zones", store=folder + "/queries")]
        with sq.run_all(results, checkpoint=folder + "/cp", consistency="strong", buckets=2) as run:
            run.process_all_available()
            print(shown(run.table()))
            run.add(sq.result(zones.where(sq.col("n") > 1), name="busy", store=folder + "/queries"))
            send((13, "b"), (25, "a"))
            run.process_all_available()
            print(shown(run.table("busy")))
            run.remove("busy")
            run.finish()
        print(shown(sq.subscribe("zones", store=folder + "/queries").to_df()))
    """
    lines = ended(code, connect_url, str(tmp_path)).stdout.splitlines()
    assert lines == ["[('a', 2, 0)]", "[('b', 2, 10)]", "[('a', 1, 20), ('a', 2, 0), ('b', 2, 10)]"]
