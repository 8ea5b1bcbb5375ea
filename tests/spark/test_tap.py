"""Tapping an operator of a query that runs on Spark: a join and a window, in the middle of a run, and across a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t
from streamq.errors import PlanError
from streamq.run.samples import Tap
from streamq.run.storage.checkpoint import Checkpoint
from streamq.runtime.hosts.stage import TAPS
from streamq.testing.backends import land, stream

pytestmark = pytest.mark.usefixtures("plain")

SCHEMA = pa.schema([("start", pa.int64()), ("end", pa.int64()), ("k", pa.string()), ("v", pa.int64())])


def rows(*starts: int) -> pa.Table:
    columns = {"start": starts, "end": [s + 6 for s in starts], "k": ["ab"[s % 2] for s in starts], "v": starts}
    return pa.table(columns, schema=SCHEMA)


FILES = [rows(1, 2), rows(4, 5), rows(8, 9), rows(12, 13), rows(16, 17), rows(20, 21)]


def query(trips: Any, rates: Any) -> sq.Stream:
    trips, rates = (
        sq.intervals(table, name=name, start="start", end="end", progress=sq.generate(0))
        for name, table in (("trips", trips), ("rates", rates))
    )
    joined = trips.join(rates, on="k", suffixes=("", "_r"))
    return joined.group_by("k").tumbling_window(5).select(n=sq.count(), total=sq.sum("v_r"), least=sq.min("v"))


def shown(tap: Tap, port: object) -> list[tuple[int, int, int]]:
    """Start, end and value of the rows at a port, in order of their starts."""
    rows = tap.rows()
    rows = rows[rows["port"] == port]
    return sorted((row.start, row.end, row.payload.get("v")) for row in rows.itertuples())


def test_an_operator_is_tapped_while_its_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("trips", "rates"):
        land(tmp_path / name, FILES[:1])
    streams = [stream(spark, tmp_path / name, SCHEMA) for name in ("trips", "rates")]
    where: dict[str, Any] = {
        "buckets": 2,
        "checkpoint": str(tmp_path / "checkpoint"),
        "sink": str(tmp_path / "out"),
        "output": "final",
    }

    def arrive(number: int) -> None:
        for name in ("trips", "rates"):
            land(tmp_path / name, FILES[number : number + 1], first=number)
        run.process_all_available()

    def taps() -> list[Any]:
        """The taps that are in the state of the buckets."""
        checkpoint = Checkpoint(spark, str(tmp_path / "checkpoint"))
        values = [
            manifest["values"] for stage in run._program.stages for manifest in checkpoint.manifests(stage.number)
        ]
        return [tap for value in values for tap in value.get(TAPS, {}).values()]

    with query(*streams).run(**where) as run:
        run.process_all_available()
        with run.tap("inner join", rows=100) as join, run.tap("hopping") as window:
            assert join.rows().empty
            arrive(1)
            arrive(2)
            landed = [(s, s + 6, s) for table in FILES[1:3] for s in table["start"].to_pylist()]
            assert shown(join, 0) == landed
            assert [(start, end) for start, end, _ in shown(join, 1)] == [(s, e) for s, e, _ in landed]
            # what was there before the tap takes part in what comes out
            assert (4, 8, 4) in shown(join, "out") and (8, 10, 8) in shown(join, "out")
            assert not window.rows().empty
        count = len(join.rows())
        arrive(3)
        assert len(join.rows()) == count
        with pytest.raises(PlanError, match="tap: no operator with state 'joins'; there are: inner join on k, hopping"):
            run.tap("joins")
        with pytest.raises(PlanError, match="tap: rows is a whole number of at least 1; found 0"):
            run.tap("inner join", rows=0)
        # the program dies while a tap is on: the micro-batch that was not committed is repeated, the tap with it
        lost = run.tap("inner join")
        run.process_all_available()
        land(tmp_path / "trips", FILES[4:5], first=4)
        run.process_all_available()
        assert shown(lost, 0) == [(16, 22, 16), (17, 23, 17)]
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name)).name
    for log in ("checkpoint/commits", "out/_spark_metadata"):
        (tmp_path / log / last).unlink()
        (tmp_path / log / f".{last}.crc").unlink(missing_ok=True)
    with query(*streams).run(**where) as run:
        run.process_all_available()
        assert [tap["tap"] for tap in taps()] == [lost._command.tap] * 2, "each of two buckets knows it, and no other"
        again = json.loads(run.query.recentProgress[0].json)
        assert again["batchId"] == int(last) and again["observedMetrics"]["streamq"]["tapped"]
        lost._send = run._send
        land(tmp_path / "rates", FILES[4:5], first=4)
        lost.close()
        arrive(5)
        assert taps() == []
        run.finish()
    whole = pa.concat_tables(FILES)
    written = spark.read.parquet(str(tmp_path / "out")).toArrow()
    t.assert_same_history(written, query(whole, whole).to_arrow())
    with pytest.raises(PlanError, match="tap: the run is over"):
        run.tap("inner join")
