"""A run to the end of what is available: the end comes with the input where one micro-batch reads all of it, else after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import streamq as sq
from streamq import testing as t
from streamq.errors import CheckpointError
from streamq.run.batch.answers import is_unlimited
from streamq.run.storage.checkpoint import ControlFolder
from streamq.testing.backends import land
from tests.spark.replay import bag, rows

COLUMNS = "start bigint, end bigint, k string, v bigint"
# late, out of order, without an end, and equal
PARTS = [
    [(0, 9, "a", 1), (4, 5, "b", 2), (2, 30, "a", 3), (4, 5, "b", 2)],
    [(40, 41, "a", 4), (3, 4, "b", 5), (38, 60, "b", 6), (41, None, "a", 7)],
    [(70, 71, "a", 8), (1, 2, "a", 9), (69, 80, "b", 10)],
]
EVERYTHING = [row for part in PARTS for row in part]
LIMIT = {"maxFilesPerTrigger": 1}


def query(table: Any) -> sq.Stream:
    """Windows over windows, in two stages, of which the second reads all groups."""
    s = sq.intervals(table, start="start", end="end", name="s", progress=sq.generate(100))
    sessions = s.group_by("k").session_window(5).select(n=sq.count(), total=sq.sum("v"))
    return sessions.snapshot_window().select(n=sq.sum("n"), most=sq.max("total"))


def stream(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    return spark.readStream.schema(COLUMNS).options(**options).parquet(str(folder))


def test_the_end_comes_with_the_input(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path / "in", [t.table(COLUMNS, part) for part in PARTS])
    expected = bag(query(t.table(COLUMNS, EVERYTHING)).to_arrow())
    limited, whole = stream(spark, tmp_path / "in", **LIMIT), stream(spark, tmp_path / "in")
    assert is_unlimited(whole) and not is_unlimited(limited)
    assert not is_unlimited(whole.unionByName(limited)) and not is_unlimited(spark.readStream.format("rate").load())
    assert is_unlimited(whole.join(spark.range(3).toDF("v"), "v")), "what does not stream has no micro-batches"
    for name, table, micro_batches in (("whole", whole, 1), ("limited", limited, len(PARTS) + 1)):
        places = {"sink": str(tmp_path / name), "checkpoint": str(tmp_path / f"{name}-cp"), "trigger": "available_now"}
        run = query(table).run(**places, finish=True)
        counted = run.metrics["query"]
        assert (counted["batches"], counted["inserted"]) == (micro_batches, len(expected))
        assert rows(spark.read.parquet(places["sink"])) == expected and expected
        with pytest.raises(CheckpointError, match="the checkpoint's stream has ended"):
            query(table).run(**places, finish=True)


def test_an_interrupted_start_ends_with_its_input(spark: SparkSession, tmp_path: Path) -> None:
    """The end has been sent, and nothing read: another start reads all and ends, but not in several micro-batches."""
    land(tmp_path / "in", [t.table(COLUMNS, part) for part in PARTS])
    whole = stream(spark, tmp_path / "in")
    places: dict[str, Any] = {
        "checkpoint": str(tmp_path / "cp"),
        "sink": str(tmp_path / "out"),
        "trigger": "available_now",
    }
    (tmp_path / "out").write_text("not a folder")
    with pytest.raises(sq.StreamqError):
        query(whole).run(**places, finish=True)
    assert ControlFolder(f"{places['checkpoint']}/streamq/control").has_end(spark)
    (tmp_path / "out").unlink()
    with pytest.raises(CheckpointError, match=r"was to end in the first micro-batch; .*Use a new checkpoint"):
        query(stream(spark, tmp_path / "in", **LIMIT)).run(**places)
    # without finish, too
    query(whole).run(**places)
    assert rows(spark.read.parquet(places["sink"])) == bag(query(t.table(COLUMNS, EVERYTHING)).to_arrow())
