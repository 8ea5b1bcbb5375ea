"""Progress per partition: the CTI is that of the partition furthest behind, those left out that are idle.

The CTI by definition is the model of ``streamq/testing/progress_policies.py``, which the laws compare every run with.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.errors import PlanError, TypeMismatch, UnknownColumn
from streamq.operators import Source
from streamq.plan.node import number_sources
from streamq.progress_policies import PartitionCtis
from streamq.run.rehearsal import Rehearsal
from streamq.run.status.watcher import RoundLog
from streamq.runtime.deltas import LE
from tests.programs import compiled

SCHEMA = pa.schema([("at", pa.int64()), ("d", pa.float64()), ("zone", pa.string())])
Row = tuple[int, float | None, str | None]


def cars(**arguments: Any) -> sq.Stream:
    progress = sq.generate(2, per=["d", "zone"], **arguments)
    return sq.points(SCHEMA.empty_table(), time="at", name="cars", progress=progress)


def table(rows: list[Row]) -> pa.Table:
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(SCHEMA.names)}, schema=SCHEMA)


def run_of(query: sq.Stream, buckets: int = 1) -> LocalRun:
    return LocalRun(compiled(number_sources(query.plan)[0], OutputForm.FINAL, buckets=buckets))


def awaiting(source: sq.Stream, parts: list[Any]) -> sq.Stream:
    """The source, of which these partitions are awaited from the start."""
    assert isinstance(source.plan, Source) and isinstance(source.plan.policy.progress, PartitionCtis)
    progress = replace(source.plan.policy.progress, awaited=tuple((part,) for part in parts))
    return source._derive(replace(source.plan, policy=replace(source.plan.policy, progress=progress)))


@given(st.data())
def test_of_awaited_partitions_that_are_in_order_nothing_is_late(data: st.DataObject) -> None:
    """In whatever order they come: one that comes last has held progress back until then."""
    starts = {part: sorted(data.draw(st.lists(st.integers(0, 90), min_size=1, max_size=6))) for part in "abc"}
    order = data.draw(st.permutations([part for part in starts for _ in starts[part]]))
    taken = {part: iter(times) for part, times in starts.items()}
    events = [(at, at + 1, {"d": part}) for part in order for at in [next(taken[part])]]
    cars = awaiting(sq.events(events, name="cars", progress=sq.generate(per="d")), ["c", "a", "b"])
    query = cars.tumbling_window(10).select(n=sq.count())
    run, arrived, rows = Rehearsal(query), 0, []
    while arrived < len(order):
        size = data.draw(st.integers(1, len(order) - arrived))
        rows += run.arrive(cars=size).to_pylist()
        arrived += size
        metrics = run.metrics["sources"]["cars"]
        assert (metrics["cti"] is None) == (len({*order[:arrived]}) < len(starts))
        assert metrics["dropped"] == 0
    rows += run.finish().to_pylist()
    assert sorted(rows, key=lambda row: row["start"]) == query.to_pandas().to_dict("records")


def test_what_follows_such_a_source_comes_as_far_as_its_greatest_start() -> None:
    """At the end no partition is waited for: windows of an endless lifetime come up to there, in batch and as a stream."""
    leader = sq.events([(3, 4, {"d": 1}), (40, 41, {"d": 2})], name="leader", progress=sq.generate(2, per="d"))
    calm = sq.events([(0, None, {"d": 5})], name="calm", progress=sq.follow(leader))
    query = calm.union(leader.where(sq.col("d") > 5)).tumbling_window(10).select(n=sq.count())
    finished = Rehearsal(query)
    rows = [*finished.arrive().to_pylist(), *finished.finish().to_pylist()]
    assert rows == query.to_pandas().to_dict("records")
    assert [row["start"] for row in rows] == [0, 10, 20, 30]


def test_other_partitions_than_those_of_the_run_before_start_anew() -> None:
    query = cars(every=1)
    run = run_of(query.tumbling_window(10).select(n=sq.count()))
    run.batch({"cars": table([(35, 1.0, "x"), (80, 2.0, "x")])})
    (source,) = (r.source for r in run.program.sources)
    assert source is not None and [*source.policy.progress_columns] == ["d", "zone"]
    by_zone = sq.points(SCHEMA.empty_table(), time="at", name="cars", progress=sq.generate(2, per="zone"))
    other = run_of(by_zone.tumbling_window(10).select(n=sq.count()))
    run = replace(run.restart(), program=other.program)
    assert run.batch({"cars": table([(60, 1.0, "x")])}).column(LE).to_pylist() == [30], "zone x: 60"


class Rehearsed:
    """A rehearsal of windows over cars, on a clock that goes on by 25 seconds from micro-batch to micro-batch."""

    def __init__(self, source: sq.Stream):
        self.now = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
        self.run = Rehearsal(source.tumbling_window(10).select(n=sq.count()), clock=lambda: self.now)

    def arrive(self, rows: int) -> tuple[list[int], int]:
        """The starts of the windows that come out, and the CTI."""
        self.now += dt.timedelta(seconds=25)
        starts = [row["start"] for row in self.run.arrive(cars=rows).to_pylist()]
        return starts, self.run.metrics["sources"]["cars"]["cti"]


def test_a_partition_that_is_idle_holds_nobody_back_and_comes_back_as_a_new_one() -> None:
    rows = [(30, "a"), (35, "b"), (61, "b"), (66, "b"), (78, "b"), (53, "a"), (90, "b"), (75, "a")]
    events = [(at, at + 1, {"d": d}) for at, d in rows]
    run = Rehearsed(sq.events(events, name="cars", progress=sq.generate(2, per="d", idle_after="1 minute")))
    assert [run.arrive(1) for _ in rows] == [
        *([([], 28)] * 3),
        # after 75 s a is idle
        ([30], 64),
        ([60], 76),
        # what a brings then is late, and holds progress where it is
        *([([], 76)] * 3),
    ]
    assert run.run.metrics["sources"]["cars"]["dropped"] == 1
    assert "furthest behind is d='a', with CTI 73" in str(run.run.why())


def test_an_awaited_partition_that_brings_nothing_is_idle_as_one_that_has_begun_with_the_others() -> None:
    rows = [(30, "a"), (35, "b"), (61, "b"), (66, "a"), (78, "b"), (80, "a"), (3, "c")]
    events = [(at, at + 1, {"d": d}) for at, d in rows]
    source = sq.events(events, name="cars", progress=sq.generate(2, per="d", idle_after="1 minute"))
    run = Rehearsed(awaiting(source, ["a", "b", "c"]))
    assert [run.arrive(1)[1] for _ in rows[:3]] == [None] * 3
    why = run.run.why()
    assert "cars: no CTI yet, 3 rows; furthest behind is d='c', without a row" in str(why)
    assert "in d='c', and in any other partition that is behind" in why.summary
    assert [run.arrive(1)[1] for _ in rows[3:6]] == [59, 64, 76]
    # it has been forgotten, and is awaited no more
    assert run.arrive(1) == ([], 76) and run.run.metrics["sources"]["cars"]["dropped"] == 1


def test_a_round_that_nobody_saw_counts_as_heard_with_the_next() -> None:
    log = RoundLog()
    assert log.first_after(100) == 0
    for number, heard_at in ((2, 10), (2, 99), (5, 20), (6, 30)):
        log.see(number, heard_at)
    # rounds 3 and 4 were heard between 10 and 20, and count as heard at 20
    assert [log.first_after(moment) for moment in (9, 10, 19, 20, 29, 30, 99)] == [0, 3, 3, 6, 6, 7, 7]


def test_a_clock_that_is_set_back_makes_nothing_idle_too_early() -> None:
    log = RoundLog()
    for number, heard_at in ((1, 10), (2, 5), (3, 12)):
        log.see(number, heard_at)
    assert [log.first_after(moment) for moment in (5, 9, 10, 11, 12)] == [0, 0, 3, 3, 4]


def test_why_names_the_partition_that_holds_back() -> None:
    events = [(at, at + 1, {"d": d, "zone": 7}) for at, d in ((35, "a"), (12, "b"), (60, "a"))]
    source = sq.events(events, name="cars", progress=sq.generate(2, per=["d", "zone"]))
    run = Rehearsed(source)
    run.arrive(3)
    why = run.run.why()
    release = "a row of cars at or after 22 (delay 2) in d='b', zone=7, and in any other partition that is behind"
    assert why.waits[-1].release[0] == release and release in why.summary
    held = "furthest behind is d='b', zone=7, with CTI 10 (idle_after in sq.generate lets a silent one pass)"
    assert held in str(why)
    wait = why.to_dict()["waits"][-1]
    assert (wait["partition"], wait["partition_cti"]) == ("d='b', zone=7", 10)


def test_explain_says_per_what(capsys: pytest.CaptureFixture[str]) -> None:
    cars(idle_after="1 minute").tumbling_window(10).select(n=sq.count()).explain()
    assert "source cars: generate(delay=2, per=[d, zone], idle_after=1 minute)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("per", "error", "message"),
    [
        ("devise", UnknownColumn, "points: no column 'devise'; there are: device, tags. Did you mean 'device'?"),
        ("at", UnknownColumn, "points: no column 'at'"),
        ("tags", TypeMismatch, "points: cannot partition by column 'tags'; found map<string,int>"),
        ([], PlanError, r"generate: per takes different columns, one at least; found \[\]"),
        (["device", "device"], PlanError, "generate: per takes different columns, one at least"),
        (5, PlanError, "generate: per is a column name or a list of them; found 5"),
    ],
)
def test_columns_that_cannot_tell_partitions(per: Any, error: type[Exception], message: str) -> None:
    kinds = {"at": pa.int64(), "device": pa.string(), "tags": pa.map_(pa.string(), pa.int32())}
    empty = pa.schema(list(kinds.items())).empty_table()
    with pytest.raises(error, match=message):
        sq.points(empty, time="at", progress=sq.generate(per=per))
