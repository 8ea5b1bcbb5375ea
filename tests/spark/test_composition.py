"""Queries that read each other while they run: progress and the end go from one to the next, and none reads a row twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.errors import CheckpointError, PlanError, SourceError
from streamq.run.publication_sink import publication_sink
from streamq.testing.history import assert_same_history
from tests.spark.replay import folded, rows

Trip = tuple[int, str, int]
TRIPS: list[list[Trip]] = [
    [(1, "a", 1), (12, "b", 2), (3, "a", 4)],
    [(7, "b", 3), (14, "a", 1), (31, "a", 2)],
    [(30, "b", 7), (22, "a", 8), (64, "b", 1)],
]


class Store:
    """Trips that come in files, and what is published of them."""

    def __init__(self, spark: SparkSession, path: Path):
        self.spark, self.path = spark, path

    def send(self, trips: list[Trip]) -> None:
        frame = self.spark.createDataFrame(trips, "at bigint, zone string, v int")
        frame.coalesce(1).write.mode("append").parquet(str(self.path / "trips"))

    def per_zone(self) -> sq.Stream:
        files = sq.files(self.path / "trips", schema="at bigint, zone string, v int")
        trips = sq.points(files, time="at", name="trips", progress=sq.generate(9))
        return trips.group_by("zone").tumbling_window(10).select(n=sq.count(), v=sq.sum("v"))

    def publish(self, query: sq.Stream | None = None, **how: Any) -> Any:
        how = {"store": str(self.path / "queries"), "checkpoint": str(self.path / "cp"), "buckets": 2, **how}
        return sq.publish(self.per_zone() if query is None else query, "per_zone", **how)

    def subscribed(self, **how: Any) -> sq.Stream:
        return sq.subscribe("per_zone", store=str(self.path / "queries"), **how)


def busy(zones: sq.Stream) -> sq.Stream:
    return zones.tumbling_window(20).select(n=sq.sum("n"), v=sq.max("v"))


@pytest.mark.parametrize("level", ["middle", "strong"])
def test_two_queries_are_one(spark: SparkSession, tmp_path: Path, level: str) -> None:
    """Both are stopped and go on; the end of the first one ends the second, which is published as well."""
    store = Store(spark, tmp_path)
    out = {"store": str(tmp_path / "queries"), "checkpoint": str(tmp_path / "cp of busy"), "buckets": 2}
    for number, trips in enumerate(TRIPS):
        store.send(trips)
        with store.publish(consistency=level) as first:
            first.process_all_available()
            with sq.publish(busy(store.subscribed()), "busy", consistency=level, **out) as second:
                second.process_all_available()
                assert "read by Spark" not in second.explanation("physical")
                if number == 2:
                    first.finish()
                    second.process_all_available()
                    assert second.metrics["sources"]["per_zone"]["ended"]
    expected = busy(store.per_zone()).to_df().toArrow()
    written = sq.subscribe("busy", store=str(tmp_path / "queries"))
    assert_same_history(written.to_arrow(), expected)
    assert_same_history(written.to_df().toArrow(), expected)
    assert_same_history(busy(store.subscribed()).to_arrow(), expected)


def test_from_now_on_and_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    """The instant at which a subscription begins is its checkpoint's, and the same for rows that change later."""
    store = Store(spark, tmp_path)
    store.send(TRIPS[0])
    store.send(TRIPS[1])
    with store.publish() as run:
        run.process_all_available()
        for start in ("latest", "snapshot"):
            sink, checkpoint = str(tmp_path / start), str(tmp_path / f"cp {start}")
            how = {"sink": sink, "checkpoint": checkpoint, "buckets": 2, "output": "changelog"}
            with store.subscribed(start=start).run(**how) as other:
                other.process_all_available()
        store.send(TRIPS[2])
        run.finish()
    for start, begins in (("latest", "start"), ("snapshot", "end")):
        sink, checkpoint = str(tmp_path / start), str(tmp_path / f"cp {start}")
        how = {"sink": sink, "checkpoint": checkpoint, "buckets": 2, "output": "changelog"}
        with store.subscribed(start="earliest").run(**how) as other:
            other.process_all_available()
        everything = store.per_zone().to_df()
        assert folded(spark.read.parquet(sink)) == rows(everything.where(f"{begins} >= 20")) != rows(everything)


def test_a_name_is_a_stream_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    """What would make its readers wrong is refused, by the error that says what to do."""
    store = Store(spark, tmp_path)
    store.send(TRIPS[0])
    with pytest.raises(SourceError, match="no publication 'per_zone'"):
        store.subscribed()
    store.publish(trigger="available_now")
    reader = busy(store.subscribed())
    how = {"checkpoint": str(tmp_path / "cp of reader"), "buckets": 2, "trigger": "available_now"}
    reader.run(**how)
    with pytest.raises(CheckpointError, match="is published by another run"):
        store.publish(checkpoint=str(tmp_path / "cp 2"))
    with pytest.raises(CheckpointError, match="has other columns"):
        store.publish(store.per_zone().drop("v"))
    with pytest.raises(PlanError, match="source per_zone is a publication; a checkpoint keeps where it has begun"):
        reader.to_stream()
    shutil.move(tmp_path / "cp", tmp_path / "moved")
    with pytest.raises(CheckpointError, match="the sink has micro-batches of another checkpoint"):
        store.publish()
    shutil.rmtree(tmp_path / "queries")
    shutil.move(tmp_path / "moved", tmp_path / "cp")
    with pytest.raises(CheckpointError, match="the rows that the checkpoint has published are gone"):
        store.publish()
    shutil.rmtree(tmp_path / "cp")
    store.publish(trigger="available_now")
    with pytest.raises(SourceError, match="is another publication than the one that the checkpoint has read"):
        busy(store.subscribed()).run(**how)
    plain = {"checkpoint": str(tmp_path / "cp plain"), "buckets": 2, "trigger": "available_now"}
    store.per_zone().run(output="changelog", ctis=True, **plain)
    with pytest.raises(
        CheckpointError, match="publish: 'late' would take back rows that are not published; hopping .* some"
    ):
        sq.publish(store.per_zone(), "late", store=str(tmp_path / "queries"), **plain)


def test_one_run_publishes_several(spark: SparkSession, tmp_path: Path) -> None:
    """One scan feeds them, and a folder; one more begins where the run stands, what is removed stays, and the end is in all."""
    store, queries = Store(spark, tmp_path), str(tmp_path / "queries")
    store.send([*TRIPS[0], *TRIPS[1]])
    per_zone = store.per_zone()
    results = [
        sq.result(per_zone, name="per_zone", store=queries),
        sq.result(per_zone.where(sq.col("n") > 1), name="several", store=queries),
        sq.result(per_zone, name="rows", sink=str(tmp_path / "rows")),
    ]
    how: dict[str, Any] = {"checkpoint": str(tmp_path / "cp"), "buckets": 2, "late_sink": str(tmp_path / "late")}
    with sq.run_all(results, consistency="strong", **how) as run:
        run.process_all_available()
        assert len(run.metrics["sources"]) == 1
        before = rows(run.table("per_zone"))
        assert before == rows(run.table("rows")) == rows(per_zone.to_df().where("end <= 22"))
        run.add(sq.result(per_zone.where(sq.col("v") > 2), name="large", store=queries))
        store.send([(31, "b", 1)])
        run.process_all_available()
        several = sq.subscribe("several", store=queries).to_arrow()
        run.remove("several")
        store.send(TRIPS[2])
        run.finish()
    assert_same_history(store.subscribed().to_arrow(), per_zone.to_df().toArrow())
    assert_same_history(sq.subscribe("several", store=queries).to_arrow(), several)
    assert several.num_rows
    expected = per_zone.to_df().where("v > 2")
    assert 0 < expected.where("start >= 20").count() < expected.count()
    large = sq.subscribe("large", store=queries)
    assert_same_history(large.to_arrow(), expected.where("start >= 20").toArrow())
    run = large.run(sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "cp out"), trigger="available_now", buckets=2)
    assert run.metrics["sources"]["large"]["ended"]
    assert rows(spark.read.parquet(str(tmp_path / "out"))) == rows(expected.where("start >= 20"))
    with pytest.raises(PlanError, match="result: a result with a store is a changelog with CTIs there"):
        sq.result(per_zone, name="x", store=queries, output="upsert")
    with pytest.raises(PlanError, match="result: a publication has a name; found none"):
        sq.result(per_zone, store=queries)


@pytest.mark.parametrize("first", [0, 57])
def test_the_log_is_as_sparks_own(spark: SparkSession, tmp_path: Path, first: int) -> None:
    """Whichever micro-batches have rows, Spark reads what is noted, each of them once, by old and by new entries."""
    one = sq.events([(1, 2, {"k": 0})])
    sink = publication_sink(one.schema, "q", str(tmp_path / "a b"), "publish")
    sink.begin("publish", has_rows=False)
    read = sq.subscribe("q", store=str(tmp_path / "a b"))
    assert read.to_df().count() == read.to_arrow().num_rows == 0
    columns = "kind string, k int, start bigint, end bigint, new_end bigint"
    expected = []
    for number in (first, first + 1, first + 1, first + 3, first + 29, first + 30):
        expected += [number] * (number not in expected)
        sink.write(spark.createDataFrame([("insert", number, 1, 2, None)], columns), number)
        assert sorted(row.k for row in read.to_df().collect()) == expected
        assert sorted(read.to_arrow().column("k").to_pylist()) == expected
