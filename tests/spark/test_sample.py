"""``run.sample()``: what comes now, and the newest rows that a run has read, in its micro-batches."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.errors import PlanError, TimeError, UnknownColumn
from streamq.testing.backends import land, stream

pytestmark = pytest.mark.usefixtures("plain")

SCHEMA = pa.schema([("at", pa.int64()), ("k", pa.string())])


def rows(*starts: int) -> pa.Table:
    return pa.table({"at": starts, "k": ["ab"[s % 2] for s in starts]}, schema=SCHEMA)


def starts_in(recorded: list[dict[str, Any]]) -> list[dict[str, list[int]]]:
    return [{name: sorted(table["at"].to_pylist()) for name, table in batch.items()} for batch in recorded]


def test_a_sample_has_the_newest_rows_or_those_that_come(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path / "visits", [rows(1, 2), rows(3, 4, 5), rows(6, 7), rows(8)])
    land(tmp_path / "moves", [rows(30)])
    visits, moves = (
        sq.points(stream(spark, tmp_path / name, SCHEMA), time="at", name=name, progress=sq.generate(0))
        for name in ("visits", "moves")
    )
    query = visits.union(moves.shift(1)).tumbling_window(5).select(n=sq.count())
    where: dict[str, Any] = {"buckets": 2, "checkpoint": str(tmp_path / "checkpoint"), "sink": "memory", "name": "s"}
    with query.run(**where) as run:
        run.process_all_available()
        assert run.progress["batch"] == 3
        newest = run.sample(last=4, seconds=120)
        assert starts_in(newest) == [{"visits": [5]}, {"visits": [6, 7]}, {"visits": [8]}]
        trace = query.trace(newest)
        assert [row["start"] for row in trace.rows("visits")] == [s for b in starts_in(newest) for s in b["visits"]]
        between = run.sample(last=100, seconds=120, between=(3, 31), where=sq.col("k") == "b")
        assert starts_in(between) == [{"visits": [3, 5]}, {"visits": [7]}]
        landing = threading.Timer(1, lambda: land(tmp_path / "visits", [rows(9, 10, 11)], first=4))
        landing.start()
        coming = run.sample(rows=2, seconds=120, where=sq.start() > 9)
        landing.join()
        assert starts_in(coming) == [{"visits": [10, 11]}]
        run.process_all_available()
        assert run.sample(seconds=1) == [], "nothing comes"
        for wrong, error in (
            ({"last": 0}, "sample: last is a whole number of at least 1; found 0"),
            ({"rows": 0}, "sample: rows is a whole number of at least 1; found 0"),
            ({"between": 3}, "sample: between is two instants; found 3"),
        ):
            with pytest.raises(PlanError, match=error):
                run.sample(**wrong)
        with pytest.raises(TimeError, match="sample: an instant that does not fit"):
            run.sample(between=("a", None))
        with pytest.raises(UnknownColumn, match="sample"):
            run.sample(where=sq.col("z") == 1)
        assert run.query.isActive
    over = run.sample(rows=4, seconds=120)
    assert starts_in(over) == [{"visits": [8]}, {"visits": [9, 10, 11]}]
    assert not list((tmp_path / "checkpoint" / "streamq" / "sample").iterdir())
