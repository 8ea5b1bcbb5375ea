"""What a run on Spark says of itself: why there is no output, metrics, and a line a micro-batch."""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.errors import LateEvent, PlanError
from streamq.run.status.watching import GOES_ON, NewestRows, noted_interrupt, watch_run
from streamq.screens import LineScreen
from streamq.testing.backends import land, stream

pytestmark = pytest.mark.usefixtures("plain")

STAYS = pa.schema([("start", pa.int64()), ("end", pa.int64()), ("k", pa.string())])


def stays(*starts: int) -> pa.Table:
    return pa.table({"start": starts, "end": [s + 4 for s in starts], "k": ["a"] * len(starts)}, schema=STAYS)


def source(spark: SparkSession, folder: Path, late: str = "drop") -> sq.Stream:
    folder.mkdir(exist_ok=True)
    given = {"start": "start", "end": "end", "progress": sq.generate(2), "late": late}
    return sq.intervals(stream(spark, folder, STAYS), name=folder.name, **given)


def test_a_join_with_an_idle_input_says_which(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trips, zones = source(spark, tmp_path / "trips"), source(spark, tmp_path / "zones")
    query = trips.left_anti_join(zones, on="k")
    with query.run(buckets=2, checkpoint=str(tmp_path / "checkpoint")) as run:
        run.process_all_available()
        assert run.why().verdict == "no_rows"
        assert run.progress["rows"] == 0 and run.metrics["sources"]["zones"]["rows"] == 0
        land(tmp_path / "trips", [stays(10, 11), stays(20, 1)])
        with noted_interrupt() as interrupt:
            signal.raise_signal(signal.SIGINT)
            run.process_all_available()
            watch_run(
                lambda: run._run_look(NewestRows(spark, run._options)),
                LineScreen(sys.stdout),
                lambda: interrupt.wait(60),
            )
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 2 and "idle_after" in lines[0] and lines[1].endswith(GOES_ON)

        why = run.why()
        assert (why.state, why.verdict) == ("running", "idle_input")
        assert "zones has brought no row yet" in str(why) and "run.advance(15, source='zones')" in str(why)
        assert json.loads(json.dumps(why.to_dict()))["waits"][0]["source"] == "zones"

        metrics = json.loads(json.dumps(run.metrics))
        told = metrics["sources"]["trips"]
        assert {name: told[name] for name in ("cti", "watermark", "lag", "rows", "dropped")} == {
            "cti": 18, "watermark": 20, "lag": 2, "rows": 4, "dropped": 1,
        }  # fmt: skip
        assert metrics["sources"]["zones"]["cti"] is None
        # the events, their lifetimes, and the row of each, which waits
        assert metrics["stages"][-1]["state_rows"] == 3 * 3 and metrics["stages"][-1]["time_ms"] > 0
        run.explain()
        explained = capsys.readouterr().out
        assert explained.startswith("state of the run\n  running\n\nlogical plan\n")
        assert re.search(r"buckets, [\d,]+ ms in the last micro-batch", explained)
        assert "    so far: 4 rows; of these 1 late and dropped\n" in explained
        assert explained == f"{run.explanation()}\n" and "so far: 4 rows</text>" in run.explanation(format="html")
        with pytest.raises(PlanError, match="mode is 'state', 'logical', .*; found 'stat'"):
            run.explanation("stat")
        assert "trips" in run._repr_html_()
        sample = run.sample(last=3, seconds=120)
        assert [set(batch) for batch in sample] == [{"trips"}] * len(sample)
        recorded = pa.concat_tables(batch["trips"] for batch in sample).sort_by("start")
        assert recorded.equals(stays(*recorded["start"].to_pylist()))
        assert recorded.num_rows == 3 and set(recorded["start"].to_pylist()) < {1, 10, 11, 20}
        with pytest.raises(PlanError, match="sample: rows is a whole number of at least 1; found 0"):
            run.sample(rows=0)
        progress = run.progress
        assert (progress["batch"], progress["rows"], progress["sources"]["trips"]["cti"]) == (2, 2, 18)
        assert progress["spark"]["batchId"] == 2
    assert run.explanation("state") == "state of the run\n  stopped: stop was called on it"
    assert run.why().verdict == run.metrics["state"] == "stopped" and repr(run).endswith(", stopped)")


def test_an_instalment_holds_its_last_windows(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    land(tmp_path / "stays", [stays(1, 3)])
    rooms = spark.createDataFrame([("a", 7)], "k string, room int")
    query = source(spark, tmp_path / "stays").join_table(rooms, on="k", name="rooms")
    query = query.tumbling_window(10).select(n=sq.count()).where(sq.col("n") > 9)
    where = {"buckets": 2, "checkpoint": str(tmp_path / "checkpoint"), "trigger": "available_now"}
    why = query.run(**where).why()
    assert (why.state, why.verdict) == ("ended", "waiting")
    assert "a row of stays at or after 12 (delay 2)" in str(why) and "finish=True" in str(why)
    # nothing new has come: the checkpoint knows what there was
    again = query.run(**where)
    assert (again.why().verdict, again.why().waits) == ("waiting", why.waits)
    assert again.metrics["sources"]["stays"]["rows"] == 2
    land(tmp_path / "stays", [stays(22)], first=1)
    run = query.run(**where)
    assert (run.why().verdict, run.why().waits[0].window) == ("filtered", (20, 30))
    trace = query.trace(run.sample(seconds=120))
    assert [row["room"] for row in trace.history("join_table")] == [7, 7, 7]
    assert [row["start"] for row in trace.causes({"start": 0, "end": 10}, "hopping")] == [1, 3]
    assert run.metrics["sources"]["stays"]["rows"] == 3, "counted over all runs on the checkpoint"


def test_a_line_a_micro_batch_and_the_end_of_it(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    land(tmp_path / "stays", [stays(1, 3), stays(15), stays(2)])
    query = source(spark, tmp_path / "stays", late="fail").tumbling_window(10).select(n=sq.count())
    arguments = {"buckets": 2, "name": "rooms", "sink": "memory", "progress_log": True}
    with caplog.at_level(logging.INFO, "streamq"), query.run(**arguments) as run:
        with pytest.raises(LateEvent):
            run.process_all_available()
        why = run.why()
        assert re.match(r"state of the run\n  failed: .*behind the CTI", run.explanation())
        run.watch()
        look = run._run_look(NewestRows(spark, run._options))
    assert re.fullmatch(
        r"rooms: batch 1, 1 rows.*; The query has failed: .*behind the CTI.*\n", capsys.readouterr().out
    )
    assert (
        look.newest == [[{"n": 2, "start": 0, "end": 10}]]
        and look.status.progress()["spark"]["durationMs"]["addBatch"] > 0
    )
    lines = [r.getMessage().partition(" in ") for r in caplog.records if r.name == "streamq"]
    assert [first for first, _, _ in lines] == ["rooms: batch 0, 2 rows", "rooms: batch 1, 1 rows"]
    assert lines[-1][2].endswith("s, 1 results; stays at 13 (lag 2)")
    assert (why.state, why.verdict) == ("failed", "failed") and "behind the CTI" in why.summary
