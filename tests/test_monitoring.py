"""Metrics, progress and the line a micro-batch, from readings: of a query rehearsed in-process, and of Spark's reports."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

import streamq as sq
from streamq.errors import PlanError, users_line
from streamq.run.rehearsal import Rehearsal
from streamq.run.status.run_status import MicroBatch, RunHistory, RunStatus, from_spark, iso
from streamq.run.status.watcher import Watcher
from streamq.runtime.hosts.readings import KernelReadings, Readings, SourceReadings

NOON = dt.datetime(2024, 5, 1, 12)
LATER = dt.datetime(2024, 5, 1, 13, tzinfo=dt.UTC)


def cars(*starts: int, delay: int = 2) -> sq.Stream:
    return sq.events([(s, s + 3, {"k": s % 3}) for s in starts], name="cars", progress=sq.generate(delay))


def windows(s: sq.Stream) -> sq.Stream:
    return s.group_by("k").tumbling_window(10).select(n=sq.count())


def test_metrics_by_source_and_stage() -> None:
    run = Rehearsal(windows(cars(1, 4, 12, 25, 2)).tumbling_window(20).select(n=sq.sum("n")), clock=lambda: LATER)
    run.arrive(cars=4)
    run.arrive()
    found = json.loads(json.dumps(run.metrics))
    assert found["sources"]["cars"] == {
        "cti": 23, "cti_at": None, "watermark": 25, "watermark_at": None, "ended": False, "lag": 2, "behind_seconds": None,
        "cti_moved_at": "2024-05-01T13:00:00Z", "rows_came_at": "2024-05-01T13:00:00Z", "rows": 5,
        "dropped": 1, "adjusted": 0, "invalid": 0, "duplicates": 0,
    }  # fmt: skip
    first, second = found["stages"]
    assert (first["stage"], first["operators"][0]["operator"]) == (0, "hopping size=10, hop=10 by k: count(*)")
    assert (first["operators"][0]["cti_in"], first["operators"][0]["cti_out"]) == (23, 20)
    assert (second["operators"][0]["cti_in"], second["operators"][0]["cti_out"]) == (20, 20)
    assert first["state_rows"] == 1 and second["state_rows"] == 0 and first["state_bytes"] > 0
    query = found["query"]
    assert (query["batches"], query["rows"], query["inserted"], query["retraction_ratio"]) == (2, 5, 1, 0.0)


def test_rows_that_repeat_others_are_counted_and_are_not_late() -> None:
    table = pa.table({"at": [1, 1, 30, 1], "no": [7, 7, 8, 7]})
    run = Rehearsal(
        sq.points(table, "at", id="no", name="cars", progress=sq.generate(50)).tumbling_window(10).select(n=sq.count())
    )
    run.arrive(cars=2)
    assert run.status.line().endswith("; 1 delivered again")
    run.arrive(cars=1)
    assert run.status.line().endswith("; cars at -20 (lag 50)"), "none, this time"
    run.arrive()
    found = run.metrics["sources"]["cars"]
    assert (found["rows"], found["duplicates"], found["dropped"], found["invalid"]) == (4, 2, 0, 0)
    assert run.status.line().endswith("; cars at -20 (lag 50); 1 delivered again")
    assert (run.why().verdict, run.why().warnings) == ("waiting", ())


def test_late_rows_are_counted_as_those_of_a_run() -> None:
    run = Rehearsal(windows(cars(1, 30, 4)))
    assert set(run.late.values()) == {0}
    for _ in range(3):
        run.arrive(cars=1)
    assert run.late == {**dict.fromkeys(run.late, 0), "cars|dropped": 1}


def test_metrics_before_the_first_micro_batch_and_after_the_end() -> None:
    run = Rehearsal(windows(cars(1, 4)))
    before = run.metrics
    assert before["sources"]["cars"]["rows"] == 0 and before["sources"]["cars"]["cti"] is None
    assert before["query"]["batches"] == 0 and before["query"]["retraction_ratio"] is None
    assert run.progress["batch"] is None and run.progress["sources"]["cars"]["watermark"] is None
    run.arrive()
    run.finish()
    after = run.metrics
    assert (
        after["state"] == "finished" and after["sources"]["cars"]["ended"] and after["sources"]["cars"]["cti"] is None
    )
    assert [s["state_rows"] for s in after["stages"]] == [0]

    def names(found: Any) -> Any:
        return {k: names(v) for k, v in found.items()} if isinstance(found, dict) else type(found) is list

    assert names(before) == names(after)


def test_instants_of_a_timestamp_axis() -> None:
    rows = [(NOON, NOON + dt.timedelta(minutes=1), {"v": 1})]
    source = sq.events(rows, name="trips", progress=sq.generate("5 minutes"))
    run = Rehearsal(source.tumbling_window("10 minutes").select(n=sq.count()), clock=lambda: LATER)
    run.arrive()
    found = run.metrics["sources"]["trips"]
    assert (found["cti_at"], found["watermark_at"]) == ("2024-05-01T11:55:00Z", "2024-05-01T12:00:00Z")
    assert (found["lag"], found["behind_seconds"]) == (300_000_000, 3900.0)
    line = replace(run.status, name="rides").line()
    assert line == "rides: batch 0, 1 rows, 0 results; trips at 2024-05-01 11:55:00 (lag 5 minutes)"


def test_retractions_of_a_changelog() -> None:
    run = Rehearsal(windows(cars(1, 12, 4, delay=9)), "changelog")
    run.arrive(cars=2)
    run.arrive()
    # the window [0,10) has one more of key 1
    assert run.progress["inserted"] == 1 and run.progress["retracted"] == 1
    query = run.metrics["query"]
    assert (query["inserted"], query["retracted"], query["retraction_ratio"]) == (2, 1, 0.5)


def test_rows_are_all_that_were_read() -> None:
    """Those that are no events too, whoever finds them out: the source's own columns, or other rows."""
    table = pa.table({"t": pa.array([1, 2, None], pa.int64()), "v": [1, 2, 3]})
    run = Rehearsal(sq.points(table, time="t", name="a", invalid="drop").tumbling_window(10).select(n=sq.count()))
    run.arrive(a=2)
    run.arrive()
    assert (run.metrics["sources"]["a"]["rows"], run.metrics["sources"]["a"]["invalid"]) == (3, 1)
    assert (run.progress["rows"], run.progress["sources"]["a"]["rows"]) == (1, 1)
    table = pa.table({"t": [1, 1, 4], "k": ["a"] * 3, "v": [1, 2, 3], "e": ["start", "start", "end"]})
    run = Rehearsal(sq.edges(table, time="t", edge="e", key="k", name="a").tumbling_window(10).select(n=sq.count()))
    run.arrive()
    assert (run.metrics["sources"]["a"]["rows"], run.metrics["sources"]["a"]["invalid"]) == (3, 2), "both starts of 1"


def test_the_lag_of_a_source_that_is_ahead_of_its_rows_or_goes_by_another() -> None:
    def told(query: sq.Stream, *ctis: int) -> dict[str, Any]:
        run = Rehearsal(query)
        run.arrive()
        for cti in ctis:
            run.advance(cti)
        return {name: source["lag"] for name, source in run.metrics["sources"].items()}

    assert told(windows(cars(1, 4))) == {"cars": 2}
    assert told(windows(cars(1, 4)), 9) == {"cars": 0}
    ahead = sq.events([sq.insert(1, 5, k=1), sq.cti(20)], name="p")
    assert told(windows(ahead)) == {"p": 0}
    assert told(windows(sq.events([sq.insert(1, 5, k=1)], name="p"))) == {"p": None}
    follower = sq.events([(2, 3, {"k": 1})], name="b", progress=sq.follow(leader := cars(1, 40)))
    assert told(leader.left_anti_join(follower, on="k")) == {"cars": 2, "b": None}


def test_progress_of_a_micro_batch_without_input() -> None:
    run = Rehearsal(windows(cars(1, 12)))
    run.arrive(cars=1)
    run.arrive(cars=0)
    assert (run.progress["batch"], run.progress["rows"], run.progress["sources"]["cars"]["rows"]) == (1, 0, 0)
    assert run.progress["sources"]["cars"]["cti"] == -1, "where it was"
    assert RunStatus(program=run.program, history=RunHistory()).line() == "query: no micro-batch yet"


def spark_report(number: int, **observed: Any) -> dict[str, Any]:
    return {
        "batchId": number, "timestamp": "2024-05-01T12:00:00.000Z", "batchDuration": 250, "numInputRows": 7,
        "inputRowsPerSecond": 3.5, "processedRowsPerSecond": 28.0, "observedMetrics": observed,
        "durationMs": {"addBatch": 180, "triggerExecution": 250},
    }  # fmt: skip


class Reporting:
    """Spark's query, as far as a run reads its reports."""

    def __init__(self) -> None:
        self.recentProgress: list[SimpleNamespace] = []
        self.lastProgress: SimpleNamespace | None = None

    def report(self, report: dict[str, Any]) -> None:
        """Spark's last report; among the recent ones are those of micro-batches alone."""
        self.lastProgress = SimpleNamespace(batchId=report["batchId"], json=json.dumps(report))
        if "addBatch" in report["durationMs"]:
            self.recentProgress.append(self.lastProgress)


def test_a_trigger_without_work_is_not_taken_for_the_next_micro_batch() -> None:
    program, query = Rehearsal(windows(cars(1))).program, cast(Any, Reporting())
    nowhere = cast(Any, None)
    watcher = Watcher(program=program, checkpoint=nowhere, name="query", user_line=users_line(), earlier=RunHistory())
    for number in range(4):
        idle = spark_report(number) | {"batchDuration": 2, "durationMs": {"latestOffset": 1, "triggerExecution": 2}}
        query.report(idle)
        assert watcher.own_micro_batches(query).number == number - 1
        query.report(spark_report(number, streamq={"inserted": 3}))
        if number != 1:
            assert watcher.own_micro_batches(query).last == from_spark(json.loads(query.lastProgress.json))
    assert (watcher.own_micro_batches(query).inserted, watcher.own_micro_batches(query).unseen) == (12, 0)


def test_a_report_of_spark() -> None:
    told = [
        '{"new_rows|source:cars":4,"cti|source:cars":23}',
        '{"rows|source:cars":9}',
        '{"inserted|w":1}',
        '{"inserted|w":2}',
    ]
    results = {"inserted": 2, "retracted": None, "readings": told, "late": ['{"cars|dropped":1}', '{"cars|dropped":2}']}
    report = from_spark(spark_report(3, streamq=results))
    assert (report.number, report.duration_ms, report.rows) == (3, 250, 4)
    assert (report.inserted, report.retracted, report.late) == (2, 0, {"cars|dropped": 3})
    assert report.readings.source("source:cars") == SourceReadings(new_rows=4, cti=23, rows=9)
    assert report.readings.kernel("w").inserted == 3
    connect = {
        "values": [None, ['{"new_rows|s":4}']],
        "schema": {"fields": [{"name": "inserted"}, {"name": "readings"}]},
    }
    assert from_spark(spark_report(3, streamq=connect)).readings.of_sources == {"s": SourceReadings(new_rows=4)}
    nothing = from_spark(spark_report(4, streamq={"inserted": None, "readings": [], "late": []}))
    assert (nothing.rows, nothing.readings) == (7, Readings())


def test_what_is_known_after_reports_of_which_some_are_lost() -> None:
    def seen(*reports: MicroBatch) -> RunHistory:
        known = RunHistory()
        for report in reports:
            known = known.with_micro_batch(report)
        return known

    def readings(rows: int, inserted: int, now: int) -> Readings:
        kernel = KernelReadings(inserted=inserted, inserted_now=now)
        return Readings({"source:cars": SourceReadings(rows=rows)}, {"w": kernel})

    first = MicroBatch(number=5, inserted=1, readings=readings(8, 6, 2), late={"cars|dropped": 1})
    empty, far = MicroBatch(number=6), MicroBatch(number=9, inserted=2, retracted=1, readings=readings(20, 9, 1))
    known = seen(first, first, empty, far)
    assert (known.number, known.inserted, known.retracted, known.unseen) == (9, 3, 1, 2)
    assert known.readings.source("source:cars").rows == 20 and known.late == {"cars|dropped": 1}
    assert known.inserted_before == {"w": 4}
    assert seen(first, empty).readings == first.readings, "what nobody told anew stands"
    assert known.with_micro_batch(empty) is known


def test_time_of_stages_is_the_tasks_that_spark_reports_from_the_last_stage_on() -> None:
    run = Rehearsal(windows(cars(1)).tumbling_window(20).select(n=sq.sum("n")))
    operators = [{"allUpdatesTimeMs": 5, "commitTimeMs": 2}, {"allUpdatesTimeMs": 40, "commitTimeMs": 3}]
    report = MicroBatch(number=0, spark={"stateOperators": operators, "inputRowsPerSecond": 3.5})
    found = RunStatus(program=run.program, history=RunHistory().with_micro_batch(report)).metrics()
    assert [stage["time_ms"] for stage in found["stages"]] == [43, 7]
    assert found["query"]["rows_per_second"] == 3.5


def test_rows_of_a_query_without_stages_are_those_that_spark_counts() -> None:
    run = Rehearsal(cars(1).where(sq.col("k") > 1), "changelog")
    seen = RunHistory().with_micro_batch(from_spark(spark_report(0, streamq={"inserted": 3})))
    assert (seen.inserted, RunStatus(program=run.program, history=seen).progress()["rows"]) == (3, 7)


@pytest.mark.parametrize(
    ("t", "shown"), [(2**63 - 1, None), (-(2**63), None), (2**62, None), (0, "1970-01-01T00:00:00Z")]
)
def test_instants_that_no_calendar_has(t: int, shown: str | None) -> None:
    assert iso(t) == shown


def test_a_rehearsal_is_asked_for_what_there_is() -> None:
    a = sq.events([(1, 2, {"k": "a"}), (12, 13, {"k": "a"})], name="a", progress=sq.generate())
    b = sq.events([(1, 2, {"k": "a"})], name="b", progress=sq.follow(a))
    run = Rehearsal(a.union(b).group_by("k").tumbling_window(5).select(n=sq.count()), "upsert")
    with pytest.raises(PlanError, match=r"arrive: source 'a' has 2 row\(s\) left; found 3."):
        run.arrive(a=3)
    with pytest.raises(PlanError, match=r"arrive: source 'a' has 2 row\(s\) left; found -1."):
        run.arrive(a=-1)
    with pytest.raises(PlanError, match="advance: no source 'c'; there are: a, b."):
        run.advance(3, source="c")
    with pytest.raises(
        PlanError, match="advance: source 'b' has the progress of another source. Name the source that it follows."
    ):
        run.advance(3, source="b")
    assert run.arrive().to_pylist() == [{"op": "upsert", "k": "a", "n": 2, "start": 0, "end": 5}]
    with pytest.raises(
        PlanError, match="rehearsal: output is 'final', 'changelog', 'upsert' or 'latest'; found 'finals'."
    ):
        Rehearsal(a, "finals")


LISTENING = """
from types import SimpleNamespace
from streamq.run.status.watcher import ProgressLog
streams = SimpleNamespace(addListener=lambda listener: print("added"), removeListener=lambda listener: print("removed"))
log = ProgressLog(SimpleNamespace(streams=streams), print)
"""


@pytest.mark.slow
@pytest.mark.parametrize("last", ["", "log.close()"])
def test_the_progress_log_leaves_spark_at_the_end_of_a_program(last: str) -> None:
    """Once: Spark would call a listener that is still there when Python has gone, and print the stack of that failure."""
    done = subprocess.run([sys.executable, "-c", LISTENING + last], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["added", "removed"]
