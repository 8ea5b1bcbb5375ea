"""The streaming backend on Spark: the same answer as in batch and in-process, for cuts, restarts, chains of stages."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamq as sq
from streamq.compiler.rewriter import rewrite
from streamq.compiler.streaming import StreamLowering, build_frame, spark_hash, stateful_host
from streamq.errors import CheckpointError, PlanError, QueryFailed
from streamq.plan.node import Node, number_sources
from streamq.run.storage.checkpoint import identity_of
from streamq.testing.backends import land, session_in, stream
from tests.programs import compiled
from tests.spark.replay import ended, folded, rows

pytestmark = pytest.mark.usefixtures("plain")

READINGS = pa.schema([("t", pa.int64()), ("k", pa.string()), ("v", pa.float64()), ("n", pa.int64())])


def readings(seed: int, count: int) -> list[dict[str, Any]]:
    """Points in ascending order."""
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        t = 3 * i
        v = rng.choice([None, 0.1 * rng.randint(-50, 50), 1e6])
        rows.append({"t": t, "k": rng.choice(["a", "b", None]), "v": v, "n": rng.randint(-3, 3)})
    return rows


def cut(rows: list[dict[str, Any]], sizes: list[int], schema: pa.Schema) -> list[pa.Table]:
    out, at = [], 0
    for size in sizes:
        out.append(pa.Table.from_pylist(rows[at : at + size], schema=schema))
        at += size
    return [*out, pa.Table.from_pylist(rows[at:], schema=schema)]


def per_key(points: sq.Stream) -> sq.Stream:
    wanted = points.where(lambda e: e.n != 3).with_columns(twice=sq.col("n") * 2)
    return (
        wanted.group_by("k")
        .hopping_window(20, 7, offset=3)
        .select(n=sq.count(), s=sq.sum("twice"), m=sq.avg("v"), low=sq.min("v"), high=sq.max("v"), sd=sq.stddev("v"))
    )


def files(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_changelog_takes_back_what_disorder_changed(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """Speculative output is repaired by retractions, at another level after each restart; what is left is the batch answer.

    The checkpoint keeps the number of buckets that is given first, and policies of sources are no part of a query.
    """
    arrivals = readings(2, 60)
    random.Random(3).shuffle(arrivals)
    parts = cut(arrivals, [20, 20], READINGS)
    (tmp_path / "in").mkdir()
    where = {"checkpoint": str(tmp_path / "cp"), "sink": str(tmp_path / "out"), "output": "changelog"}
    inserted = []
    for i, level in enumerate(("strong", "middle", sq.level(0, 2000))):
        land(tmp_path / "in", parts[i : i + 1], first=i)
        policy = {"progress": sq.generate(1000 + i), "late": ("drop", "adjust", "fail")[i]}
        q = per_key(sq.points(stream(spark, tmp_path / "in", READINGS), time="t", **policy))
        with q.run(**where, consistency=level, buckets=None if i else 3) as run:
            run.process_all_available()
            inserted.append(run.metrics["query"]["inserted"])
            if i == 2:
                run.finish()
    assert inserted[0] == 0 and inserted[1] > 0, "strong waits for a CTI, and there is none"
    assert sum(run.late.values()) == 0
    batch = per_key(sq.points(spark.read.parquet(str(tmp_path / "in")), time="t")).to_df()
    changes = spark.read.parquet(str(tmp_path / "out"))
    assert changes.where("kind = 'retract'").count() > 0
    assert folded(changes) == rows(batch)
    kept = files(tmp_path / "cp")
    for query in (q, q.where(sq.col("n") > 1)):
        with pytest.raises(CheckpointError, match="the checkpoint's stream has ended"):
            query.run(**where)
    assert files(tmp_path / "cp") == kept


def test_totals_outlive_a_restart_and_are_no_results(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """A run on a checkpoint says what was late before, also without new input; what ``to_stream`` gives are results alone."""
    parts = [[{"t": 100, "k": "a", "v": 1.0, "n": 1}], [{"t": 5, "k": "a", "v": 1.0, "n": 1}, {"t": None}]]
    land(tmp_path / "in", [pa.Table.from_pylist(part, schema=READINGS) for part in parts])

    def counted() -> sq.Stream:
        readings = sq.points(stream(spark, tmp_path / "in", READINGS), time="t", name="r").where(sq.col("n") > 0)
        # a window over windows: totals lie in the state of the stage that judges
        return readings.tumbling_window(10).select(n=sq.count()).tumbling_window(20).select(n=sq.sum("n"))

    where = {"checkpoint": str(tmp_path / "cp"), "buckets": 2}
    want = {"r|dropped": 1, "r|adjusted": 0, "r|invalid": 1, "r|duplicates": 0}
    assert counted().run(**where, trigger="available_now").late == want
    with counted().run(**where, trigger="0 seconds") as run:
        assert run.late == want
        run.process_all_available()
        assert run.late == want
        with pytest.raises(PlanError, match=r"run: another run is on this checkpoint; found .*cp. Call stop\(\)"):
            counted().run(**where)
    for verb, over in (("advance", lambda: run.advance(7)), ("finish", run.finish)):
        with pytest.raises(PlanError, match=f"{verb}: the run is over; stop was called on it"):
            over()
    writer = counted().to_stream(buckets=2).writeStream.format("parquet").option("path", str(tmp_path / "own"))
    query = writer.option("checkpointLocation", str(tmp_path / "own-cp")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "own")).count() == 0
    with counted().run(**where, trigger="0 seconds") as run:
        run.finish()
        assert run.late == want
        with pytest.raises(PlanError, match="advance: the run is over; its stream has ended."):
            run.advance(7)


def test_without_ansi_rules_spark_computes_what_may_overflow(spark: SparkSession, tmp_path: Path) -> None:
    """Between two windows on the same keys, which else share a stage and fail there."""
    rows_in = [{"t": 1, "k": "a", "v": 1.0, "n": 2**62}]
    land(tmp_path / "in", [pa.Table.from_pylist(rows_in, schema=READINGS)])
    with session_in(spark, "UTC") as other:
        other.conf.set("spark.sql.ansi.enabled", "false")
        readings = sq.points(stream(other, tmp_path / "in", READINGS), time="t").group_by("k")
        doubled = readings.tumbling_window(10).select(n=sq.sum("n")).select("k", n=sq.col("n") * 2)
        most = doubled.group_by("k").tumbling_window(10).select(most=sq.max("n"))
        ended(most, sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "cp"), buckets=2)
    assert rows(spark.read.parquet(str(tmp_path / "out"))) == [(10, "a", -(2**63), 0)]


def test_keys_of_buckets_are_hashed_as_spark_hashes_them(spark: SparkSession, plain: None) -> None:
    hashes = spark.range(200).select(F.hash(F.col("id").cast("int")).alias("hash")).collect()
    assert [row.hash for row in hashes] == [spark_hash(key) for key in range(200)]


def test_what_a_sinks_function_raises_is_told(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    land(tmp_path / "in", [pa.Table.from_pylist([{"t": 1, "k": "a", "v": 1.0, "n": 1}], schema=READINGS)])

    def broken(df: Any, number: int) -> None:
        raise OSError("disk full")

    q = sq.points(stream(spark, tmp_path / "in", READINGS), time="t").select("v")
    with pytest.raises(QueryFailed, match="query: the sink's function failed; OSError: disk full"):
        q.run(sink=broken, trigger="available_now", buckets=2)
    several = [sq.result(q), sq.result(q, sink=broken)]
    with pytest.raises(QueryFailed, match="query: the sink of result 2 failed; OSError: disk full"):
        sq.run_all(several, trigger="available_now", buckets=2)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "0.parquet").write_bytes(b"PAR1" * 50)
    unreadable = sq.points(stream(spark, tmp_path / "bad", READINGS), time="t").select("v")
    with pytest.raises(QueryFailed, match="query: reading a source failed; .*FAILED_READ_FILE"):
        unreadable.run(sink=broken, trigger="available_now", buckets=2)
    # a folder cannot be made in a file
    with pytest.raises(
        CheckpointError, match="run: Spark cannot write .*000000.parquet/cp/streamq/identity; .*ParentNotDirectory"
    ):
        q.run(checkpoint=str(tmp_path / "in" / "000000.parquet" / "cp"))
    with pytest.raises(QueryFailed, match=r"run: Spark does not start the query; .*\[DATA_SOURCE_NOT_FOUND\].*nosuch"):
        q.run(sink={"format": "nosuch"}, checkpoint=str(tmp_path / "nosuch"))
    # what has never begun binds nobody
    ended(q, sink=str(tmp_path / "mended"), checkpoint=str(tmp_path / "nosuch"), buckets=2)
    assert spark.read.parquet(str(tmp_path / "mended")).count() == 1
    with pytest.raises(PlanError, match="source s has literal rows; a checkpoint reads .* Give control='a folder'."):
        sq.events([(1, 2, {"v": 1})], name="s").to_stream()
    with pytest.raises(CheckpointError, match="the sink has files of others; found some in .*in. Use a new folder"):
        q.run(sink=str(tmp_path / "in"), checkpoint=str(tmp_path / "cp"), trigger="available_now")
    for verb, answer in (("to_df", q.to_df), ("to_pandas", q.to_pandas), ("show", q.show)):
        with pytest.raises(PlanError, match=f"{verb}: source points1 is a streaming DataFrame. Run it: q.run"):
            answer()
    batch = sq.points(spark.read.parquet(str(tmp_path / "in")), time="t", name="b").select("v")
    for verb, start in (("run", batch.run), ("to_stream", batch.to_stream)):
        with pytest.raises(PlanError, match=f"{verb}: source b is not a streaming DataFrame"):
            start()


def test_time_from_outside_and_a_write_of_your_own(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """``run.advance`` makes final what its CTI has passed, without new input; ``to_stream`` feeds the user's own writer."""
    arrivals = [{"t": t, "k": "a", "v": 1.0, "n": 1} for t in (1, 5, 23)]
    land(tmp_path / "in", [pa.Table.from_pylist(arrivals, schema=READINGS)])
    counted = sq.points(stream(spark, tmp_path / "in", READINGS), time="t", progress=sq.explicit())
    counted = counted.tumbling_window(10).select(n=sq.count())
    out = str(tmp_path / "out")
    with counted.run(checkpoint=str(tmp_path / "cp"), sink=out, trigger="0 seconds") as run:
        run.query.processAllAvailable()
        assert spark.read.parquet(out).count() == 0, "no promise, nothing final"
        with pytest.raises(PlanError, match="no source 'other'"):
            run.advance(15, source="other")
        run.advance(15)
        run.query.processAllAvailable()
        assert rows(spark.read.parquet(out)) == [(10, 2, 0)]
    changes = counted.to_stream(output="changelog").writeStream.format("parquet").option("path", str(tmp_path / "own"))
    query = changes.option("checkpointLocation", str(tmp_path / "own-cp")).trigger(availableNow=True).start()
    query.awaitTermination()
    own = spark.read.parquet(str(tmp_path / "own"))
    assert rows(own, "new_end", "kind") == [(10, 2, 0)], "a changelog row when the watermark has passed its window"


def test_an_observer_sees_the_frames_of_every_node_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    columns: dict[str, list[str]] = {}

    class Columns:
        def rows_in(self, node: Node, port: int, rows: DataFrame) -> None:
            columns[f"into {node.title}"] = rows.columns

        def rows_out(self, node: Node, rows: DataFrame) -> None:
            columns[node.title] = rows.columns

    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("v", pa.int64())])
    land(tmp_path / "in", [pa.table({n: [1] for n in schema.names}, schema=schema)])
    frame = stream(spark, tmp_path / "in", schema)
    query = sq.intervals(frame, "a", "b", name="s").where(sq.col("v") > 0).to_signal("v").shift(3)
    plan, _ = number_sources(query.plan)
    program = compiled(rewrite(plan).plan)
    identity = identity_of(program)
    assert build_frame(StreamLowering(program, {"s": frame}, Columns()), stateful_host(identity)).isStreaming
    assert set(columns) == {
        "intervals", "into where", "where", "into to_signal", "to_signal", "into alter_lifetime", "alter_lifetime",
    }  # fmt: skip
    assert all({"__le", "__re"} <= set(names) for names in columns.values())
