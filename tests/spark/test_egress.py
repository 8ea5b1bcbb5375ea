"""What a sink has of a stream: a changelog that can be read back, a table that upserts keep, exactly once over restarts."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import streamq as sq
from streamq.errors import CheckpointError, PlanError, QueryFailed, SourceError
from streamq.testing.backends import land, stream
from streamq.testing.history import assert_same_history
from streamq.testing.validator import check_stream, find_breaches
from tests.spark.replay import ended

pytestmark = pytest.mark.usefixtures("plain")

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
KINDS = pa.struct({"x": pa.float64(), "tags": pa.list_(pa.string())})
ITEMS = pa.schema(
    [("kind", pa.string()), *((n, pa.timestamp("us", "UTC")) for n in ("start", "end", "new_end")), ("k", pa.string())]
    + [("v", KINDS)]
)


def at(minute: int | None) -> dt.datetime | None:
    return None if minute is None else NOON + dt.timedelta(minutes=minute)


def item(
    kind: str, start: int, end: int | None = None, new_end: int | None = None, k: str | None = "a"
) -> dict[str, Any]:
    """A row of a physical stream, in minutes after noon; the payload is nested, and has a NaN and zeros of both signs."""
    v = None if kind == "cti" else {"x": {"a": float("nan"), "b": 0.0}.get(k or "", -0.0), "tags": ["x", None]}
    return {
        "kind": kind,
        "start": at(start),
        "end": at(end),
        "new_end": at(new_end),
        "k": None if kind == "cti" else k,
        "v": v,
    }


PARTS = [
    [item("insert", 0), item("insert", 3, 9, k="b"), item("insert", 4, 8, k="c")],
    [item("retract", 0, None, 12), item("cti", 5), item("retract", 3, 9, None, k="b")],
    [
        item("retract", 3, None, 7, k="b"),
        item("insert", 6, k=None),
        item("retract", 6, None, 6, k=None),
        item("cti", 20),
    ],
]
"""Ends that move, one of them twice, and an event that comes and goes within a micro-batch."""


def arrived(spark: SparkSession, folder: Path, parts: list[list[dict[str, Any]]]) -> DataFrame:
    land(folder, [pa.Table.from_pylist(part, schema=ITEMS) for part in parts])
    return stream(spark, folder, ITEMS)


def query(df: DataFrame) -> sq.Stream:
    s = sq.physical(df, name="s")
    return s.where(sq.col("v").is_not_null()).union(s.shift("2 minutes"))


def test_a_changelog_is_read_back(spark: SparkSession, tmp_path: Path) -> None:
    """Legal row by row with its CTIs; in batch and as a stream, a file a micro-batch, it is the history that it tells of."""
    out, where = str(tmp_path / "out"), {"checkpoint": str(tmp_path / "cp"), "buckets": 2}
    live = query(arrived(spark, tmp_path / "in", PARTS[:2]))
    log = {"sink": out, "output": "changelog", "ctis": True}
    live.run(**where, **log, trigger="available_now")
    arrived(spark, tmp_path / "in", PARTS)
    ended(live, **where, **log)

    found = spark.read.parquet(out)
    assert found.columns == ["kind", "k", "v", "start", "end", "new_end"]
    rows = found.select("kind", "start", "end", "new_end").toArrow().to_pylist()
    assert sorted(row["start"] for row in rows if row["kind"] == "cti") == [at(5), at(20), at(22)]
    assert rows[-1]["kind"] == "end"
    assert sum(row["kind"] == "retract" and row["new_end"] != row["start"] for row in rows) == 6
    assert check_stream(out, order="chain").rows == check_stream(found, ctis=False).rows == len(rows)
    with pytest.raises(SourceError, match="rows without an order cannot be judged for order.*batch="):
        check_stream(found, order="chain")
    # those of two ends that move twice count once
    assert find_breaches(found.where("kind = 'retract'")).counts == {"match": 4}
    expected = query(spark.read.parquet(str(tmp_path / "in"))).to_df().toArrow()
    assert_same_history(sq.physical(found).to_df().toArrow(), expected)

    # a CTI is written after all that it promises: read a file at a time, nothing is late
    written = spark.readStream.schema(found.schema).option("maxFilesPerTrigger", 1).parquet(out)
    with pytest.raises(SourceError, match="a streaming DataFrame"):
        check_stream(written)
    again = sq.physical(written, name="again", progress=sq.explicit(), late="fail")
    ended(again, checkpoint=str(tmp_path / "again-cp"), sink=str(tmp_path / "again"), buckets=1)
    assert_same_history(spark.read.parquet(str(tmp_path / "again")).toArrow(), expected)
    with pytest.raises(CheckpointError, match="the checkpoint's stream has ended"):
        live.run(**where)
    with pytest.raises(
        PlanError, match="to_stream: a payload column called 'kind'; output='changelog' has a column of that"
    ):
        live.rename(k="kind").to_stream(output="changelog")


CORRECTED = [
    [item("insert", 0, 1), item("insert", 1, 2, k="b"), item("insert", 20)],
    [item("insert", 3, 4), item("retract", 1, 2, 1, k="b")],
]
"""Windows that the start at 20 has told of change, and those of b go."""


def test_upserts_keep_a_table(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """Written over by key in a function of the sink, beside a late output; the table is the batch answer."""
    table: dict[tuple[Any, ...], dict[str, Any]] = {}
    seen: list[str] = []

    def keep(batch: DataFrame, number: int) -> None:
        rows = batch.toArrow().to_pylist()
        keys = [tuple(row[name] for name in ("group", "start")) for row in rows]
        assert len(set(keys)) == len(keys)
        seen.extend(row["op"] for row in rows)
        for key, row in zip(keys, rows, strict=True):
            if row.pop("op") == "delete":
                assert [row[name] for name in ("n", "end")] == [None, None]
                del table[key]
            else:
                table[key] = row

    def counted(df: DataFrame) -> sq.Stream:
        s = sq.physical(df, name="s", progress=sq.generate("1 hour"))
        windows = s.group_by("k").hopping_window("6 minutes", "2 minutes")
        return windows.select(n=sq.count()).where(sq.col("n") > 0).select("n", group=sq.col("k"))

    how = {"checkpoint": str(tmp_path / "cp"), "output": "upsert", "late_sink": str(tmp_path / "late"), "buckets": 3}
    arriving = counted(arrived(spark, tmp_path / "in", CORRECTED[:1]))
    arriving.run(**how, sink=keep, trigger="available_now")
    arrived(spark, tmp_path / "in", CORRECTED)
    run = ended(arriving, **how, sink=keep)
    assert run.key == ("group", "start")
    assert seen.count("upsert") > len(table) + seen.count("delete") > len(table)
    batch = counted(spark.read.parquet(str(tmp_path / "in"))).to_df().toArrow()
    assert_same_history(pa.Table.from_pylist(list(table.values()), schema=batch.schema), batch)


def test_every_sink_has_the_same(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """Memory, console and a format with options have what Parquet and functions have."""
    s = sq.events([(0, 7, {"k": "a"}), (12, 13, {"k": "b"}), (3, 4, {"k": "a"})], name="s", progress=sq.generate(20))
    windows = s.group_by("k").tumbling_window(5).select(n=sq.count())
    expected = windows.to_arrow()
    ended(windows, output="changelog", sink="memory", name="log", buckets=2)
    assert_same_history(sq.physical(spark.table("log").toArrow()).to_arrow(), expected)

    @sq.udo("n bigint", properties=[sq.one_output_per_group])
    def sizes(k: Any) -> list[int]:
        return [len(k)]

    of_operator = s.group_by("k").tumbling_window(5).select(sizes("k"))
    run = ended(of_operator, output="upsert", sink="memory", name="rows", buckets=2)
    assert run.key == ("k", "start")
    assert {(r["k"], r["start"]): (r["n"], r["end"]) for r in spark.table("rows").toArrow().to_pylist()} == {
        (r["k"], r["start"]): (r["n"], r["end"]) for r in expected.to_pylist()
    }
    # a literal stream is read once, over the runs on a checkpoint
    written = {"format": "json", "path": str(tmp_path / "json")}
    how = {"output": "changelog", "sink": written, "checkpoint": str(tmp_path / "cp"), "buckets": 2}
    windows.run(**how, trigger="available_now")
    more = sq.events([(0, 7, {"k": "a"})], name="s", progress=sq.generate(20)).group_by("k").tumbling_window(5)
    with pytest.raises(
        CheckpointError, match=r"the rows of s are not those of the checkpoint; .* read 3 row\(s\), now .* 1"
    ):
        more.select(n=sq.count()).run(**how, trigger="available_now")
    ended(windows, **how)
    with pytest.raises(
        CheckpointError, match="the sink has micro-batches of another checkpoint; found .*Use a new sink"
    ):
        windows.run(**how | {"checkpoint": str(tmp_path / "other")})
    changes = spark.read.schema(spark.table("log").schema).json(str(tmp_path / "json")).toArrow()
    assert_same_history(sq.physical(changes).to_arrow(), expected)
    run = ended(windows, output="upsert", sink="console", buckets=2)
    assert run.metrics["query"]["inserted"] >= expected.num_rows


def test_an_end_that_failed_is_made_up_for(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """The last windows are flushed by the next run, once; then the stream has ended."""
    s = sq.events([(0, 1, {"k": "a"}), (12, 13, {"k": "b"})], name="s", progress=sq.generate(0))
    windows = s.tumbling_window(10).select(n=sq.count())
    found: list[dict[str, Any]] = []

    def keep(rows: DataFrame, number: int) -> None:
        made = rows.toArrow().to_pylist()
        if made and made[0]["start"] == 10 and not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise OSError("the disk is full")
        found.extend(made)

    how = {"checkpoint": str(tmp_path / "cp"), "sink": keep, "buckets": 2}
    with (
        windows.run(**how) as run,
        pytest.raises(QueryFailed, match="the sink's function failed; OSError: the disk is full"),
    ):
        run.finish()
    run = windows.run(**how)
    assert run.why().verdict == "finished"
    assert_same_history(pa.Table.from_pylist(found), windows.to_arrow())
    with pytest.raises(CheckpointError, match="the checkpoint's stream has ended"):
        windows.run(**how)
    late = {"late_sink": str(tmp_path / "late"), "sink": str(tmp_path / "out")}
    ended(windows, checkpoint=str(tmp_path / "cp2"), **late, buckets=2)
    with pytest.raises(
        CheckpointError, match="the sink has micro-batches of another checkpoint; found .*out/streamq_batch="
    ):
        windows.run(checkpoint=str(tmp_path / "cp3"), **late)
    with pytest.raises(CheckpointError, match="the checkpoint's stream has ended"):
        windows.run(checkpoint=str(tmp_path / "cp2"), **late | {"sink": str(tmp_path / "else")})
    # cut off while it was marked, a checkpoint is new; and state is committed whether or not a function reads its rows
    (tmp_path / "cp4" / "streamq" / "identity" / "_temporary").mkdir(parents=True)
    run = ended(windows, checkpoint=str(tmp_path / "cp4"), sink=lambda rows, number: None, buckets=2)
    assert run.why().verdict == "finished"
