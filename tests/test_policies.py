"""Policies of sources: how they make progress, alone and beside others."""

from __future__ import annotations

import datetime as dt
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.errors import PlanError, TimeError
from streamq.plan.node import number_sources
from streamq.run.rehearsal import Rehearsal
from streamq.run.status.run_status import SourceStatus
from streamq.run.status.watcher import ctis_for_silent
from streamq.runtime.deltas import LE
from streamq.time import MINUS_INFINITY, TIMESTAMP
from tests.programs import compiled

EMPTY = pa.table({"at": pa.array([], pa.int64()), "k": pa.array([], pa.string())})


def started(query: sq.Stream, output: str = OutputForm.FINAL) -> LocalRun:
    return LocalRun(compiled(number_sources(query.plan)[0], output, buckets=2))


def rows(*times: int) -> pa.Table:
    return pa.table({"at": pa.array(times, pa.int64()), "k": ["a"] * len(times)})


def starts(out: pa.Table) -> list[int]:
    return sorted(out.column(LE).to_pylist())


def test_progress_in_steps() -> None:
    """cti(greatest start - delay), rounded down: a window that ends between two steps waits for the next."""
    s = sq.points(EMPTY, time="at", name="s", progress=sq.generate(2, every=10))
    run = started(s.tumbling_window(4).select(n=sq.count()))
    assert starts(run.batch({"s": rows(1, 9)})) == []
    assert starts(run.batch({"s": rows(11)})) == [], "11 - 2 is still below 10"
    assert starts(run.batch({"s": rows(13)})) == [0], "cti(10): [4, 8) is empty"
    assert starts(run.batch({"s": rows(31)})) == [8, 12]
    # -1 - 2, rounded down
    run = started(s.set_duration(1))
    run.batch({"s": rows(-1)})
    run.batch({"s": rows(-11)})
    assert run.totals == {(0, 0): {"s|dropped": 1}} or run.totals == {(0, 1): {"s|dropped": 1}}


def test_a_source_that_follows_another() -> None:
    orders = sq.points(EMPTY, time="at", name="orders", progress=sq.generate(5))
    prices = sq.signal(EMPTY, time="at", key="k", name="prices", progress=sq.follow(orders))
    joined = started(orders.join(prices, on="k", suffixes=("", "_p")))
    assert starts(joined.batch({"prices": rows(1), "orders": rows(3)})) == []
    # nothing more of the prices: they hold nobody back
    assert starts(joined.batch({"orders": rows(20)})) == [3]
    # what they say behind the orders' progress is late
    joined.batch({"prices": rows(9)})
    assert {k: n for t in joined.totals.values() for k, n in t.items()} == {"prices|dropped": 1}
    assert starts(joined.finish()) == [20]


def test_whom_one_can_follow() -> None:
    a = sq.points(EMPTY, time="at", name="a")
    b = sq.points(EMPTY, time="at", name="b", progress=sq.follow(a))
    c = sq.points(EMPTY, time="at", name="c", progress=sq.follow(b))
    run = started(a.union(c).union(b))
    run.batch({"a": rows(10)})
    run.batch({"c": rows(9)})
    assert {k: n for t in run.totals.values() for k, n in t.items()} == {"c|dropped": 1}
    with pytest.raises(PlanError, match="source b follows a source that is not in the query"):
        started(b.where(sq.col("k") == "a"))
    with pytest.raises(PlanError, match="follow: not one source; found 2"):
        sq.follow(a.union(b))
    with pytest.raises(PlanError, match="follow: not one source; found 'a'. Give the source itself, a stream."):
        sq.follow("a")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"sq.follow\(...\) or sq.generate\(...\); found 'a'"):
        sq.points(EMPTY, time="at", progress="a")  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [("a", "b"), (None, None)])
def test_an_answer_needs_no_leader(names: tuple[str | None, str | None]) -> None:
    """Over tables all input is there, so a follower has an answer and a picture without the source that it follows."""
    leading, following = pa.table({"at": [1, 5], "k": ["a", "b"]}), pa.table({"at": [4, 1], "k": ["c", "d"]})
    leader = sq.points(leading, time="at", name=names[0])
    follower = sq.points(following, time="at", name=names[1], progress=sq.follow(leader))
    both = [{"k": "d", "start": 1, "end": 2}, {"k": "c", "start": 4, "end": 5}]
    assert follower.to_arrow().to_pylist() == both
    for query in (
        follower,
        leader.join(follower.rename({"k": "f"})),
        follower.group_by("k").tumbling_window(5).select(n=sq.count()),
    ):
        for output in ("final", "changelog"):
            drawn = repr(query.plot(output=output))
            assert "2 events" in drawn and "late" not in drawn, drawn
    with pytest.raises(PlanError, match="follows a source that is not in the query"):
        started(follower)


def test_a_start_far_ahead_of_the_clock_is_no_event() -> None:
    """The clock is that of the micro-batch: one that is repeated later refuses the same rows."""
    now = 1_700_000_000_000_000
    minute, hour = 60_000_000, 3_600_000_000
    empty = pa.table({"at": pa.array([], pa.timestamp("us", "UTC"))})

    def at(*times: int) -> dict[str, pa.Table]:
        return {"s": pa.table({"at": pa.array(times, pa.timestamp("us", "UTC"))})}

    s = sq.points(empty, time="at", name="s", progress=sq.generate("1 minute", max_ahead="1 hour"))
    run = started(s, OutputForm.CHANGELOG)
    assert run.batch(at(now - hour, now + 3 * hour, now), now=now).num_rows == 2
    assert run.batch(at(now - minute // 2), now=now).num_rows == 1, "what lies far ahead has moved nothing"
    assert {k: n for t in run.totals.values() for k, n in t.items()} == {"s|invalid": 1}
    strict = sq.points(empty, time="at", name="s", invalid="fail", progress=sq.generate(max_ahead="1 hour"))
    with pytest.raises(sq.StreamqError, match="a start too far ahead of the clock"):
        started(strict).batch(at(now + 2 * hour), now=now)
    assert started(strict).batch(at(now + 2 * hour), now=now + hour).num_rows == 1
    clock = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]
    noon = clock[0] + dt.timedelta(hours=12)
    table = pa.table({"at": [clock[0], noon, noon]})
    query = sq.points(table, time="at", name="s", progress=sq.generate(max_ahead="1 hour"))
    rehearsal = Rehearsal(query, "changelog", clock=lambda: clock[0])
    assert rehearsal.arrive(s=2).num_rows == 1
    clock[0] = noon
    assert rehearsal.arrive(s=1).num_rows == 1
    assert rehearsal.late["s|invalid"] == 1


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"delay": -5}, PlanError, "^generate: delay is negative; found -5.$"),
        ({"delay": "-5 minutes"}, PlanError, "generate: delay is negative; found '-5 minutes'"),
        ({"delay": None}, TimeError, "generate: not a duration; found None"),
        ({"delay": "5 mintes"}, TimeError, "generate: not a duration; found '5 mintes'. Did you mean 'minutes'?"),
        ({"delay": "5"}, TimeError, "Write '5 seconds', or 5 without quotes on an integer axis."),
        ({"every": 0}, PlanError, "generate: every is no length of time; found 0"),
        ({"idle_after": "0 seconds"}, PlanError, "generate: idle_after is no length of time; found '0 seconds'"),
        ({"idle_after": 5}, TimeError, "a duration without a unit on a timestamp axis; found 5. Write '5 seconds'"),
        ({"max_ahead": "-1 hour"}, PlanError, "generate: max_ahead is negative; found '-1 hour'"),
        # on the axis of a source
        ({"every": "1 minute"}, TimeError, "integer number of ticks"),
        ({"max_ahead": 5}, PlanError, "max_ahead goes by the wall clock, which takes timestamps; the axis is integer"),
    ],
)
def test_progress_that_cannot_be_is_refused_where_it_is_made_or_meets_a_source(
    given: dict[str, Any], error: type[Exception], message: str
) -> None:
    if message.endswith(("ticks", "the axis is integer")):
        progress = sq.generate(**given)
        with pytest.raises(error, match=message):
            sq.points(EMPTY, time="at", progress=progress)
    else:
        with pytest.raises(error, match=message):
            sq.generate(**given)


# Silent sources: what their progress counts as after a while.

SECOND = 1_000_000


def reading(name: str, c: int, w: int, heard: int | None) -> SourceStatus:
    return SourceStatus(name=name, cti=c, watermark=w, heard_at=heard)


def test_a_silent_source_has_the_ctis_of_those_that_speak() -> None:
    readings = {"a": reading("a", 10, 15, 1_000), "b": reading("b", 40, 45, 9_000), "c": reading("c", 60, 65, 9_500)}
    allowed = {"a": 5 * SECOND}
    assert ctis_for_silent(readings, allowed, 0, 5_999) == {}
    assert ctis_for_silent(readings, allowed, 0, 6_000) == {"a": 40}
    # what it has said itself is more
    assert ctis_for_silent({**readings, "a": reading("a", 41, 46, 1_000)}, allowed, 0, 6_000) == {}
    # one that never spoke is silent since the run began
    never = {**readings, "a": reading("a", MINUS_INFINITY, MINUS_INFINITY, None)}
    assert ctis_for_silent(never, allowed, 2_000, 6_000) == {}
    assert ctis_for_silent(never, allowed, 1_000, 6_000) == {"a": 40}
    # what it said before this run began is no silence yet, and who follows it does not speak
    assert ctis_for_silent(readings, allowed, 1_500, 6_000) == {}
    followed = {**readings, "f": reading("f", 3, 3, 1_000)}
    assert ctis_for_silent(followed, allowed, 0, 6_000) == {}
    assert ctis_for_silent(followed, allowed, 0, 6_000, ["f"]) == {"a": 40}
    # where the other has no progress there is nothing to follow
    assert ctis_for_silent({"a": readings["a"], "b": reading("b", MINUS_INFINITY, 9, 9_000)}, allowed, 0, 9_000) == {}


def test_where_all_are_silent_no_delay_is_waited_for() -> None:
    readings = {"a": reading("a", 10, 15, 1_000), "b": reading("b", 40, 45, 1_500)}
    allowed = {"a": 5 * SECOND, "b": 5 * SECOND}
    assert ctis_for_silent(readings, allowed, 0, 6_200) == {"a": 40}, "b still speaks"
    assert ctis_for_silent(readings, allowed, 0, 7_000) == {"a": 45, "b": 45}
    alone = {"a": readings["a"]}
    assert ctis_for_silent(alone, allowed, 0, 7_000) == {"a": 15}
    nothing = {"a": reading("a", MINUS_INFINITY, MINUS_INFINITY, None)}
    assert ctis_for_silent(nothing, allowed, 0, 7_000) == {}


class Clock:
    """A time of day that is set by hand."""

    def __init__(self) -> None:
        self.now = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.now


def test_an_idle_input_of_a_join_holds_nothing_back_for_ever() -> None:
    def source(name: str, *times: int) -> sq.Stream:
        rows = [(at, at + 5, {"k": "a", name: at}) for at in times]
        return sq.events(rows, name=name, progress=sq.generate(2, idle_after="1 minute"))

    clock = Clock()
    run = Rehearsal(source("a", 1, 10, 20, 30).left_anti_join(source("b", 3, 22), on="k"), clock=clock)
    assert run.arrive(a=1, b=1).num_rows == 0
    clock.now += dt.timedelta(seconds=50)
    assert run.arrive(a=1).num_rows == 0
    clock.now += dt.timedelta(seconds=50)
    assert run.arrive(a=1).to_pylist() == [{"k": "a", "a": 1, "start": 1, "end": 3}], "b has a's CTI before this row"
    clock.now += dt.timedelta(seconds=50)
    assert [row["a"] for row in run.arrive(a=1).to_pylist()] == [10]
    # b speaks again, in time for the event of 20
    assert [(row["a"], row["end"]) for row in run.arrive(b=1).to_pylist()] == [(20, 22)]
    assert run.metrics["sources"]["b"]["dropped"] == 0
    assert [row["a"] for row in run.finish().to_pylist()] == [30]


# ``sq.generate``: what is written differently is shown differently.

WRITTEN = [
    sq.generate("1 minute"),
    sq.generate("1 minute", every="1 hour"),
    sq.generate("1 minute", max_ahead="0 seconds"),
    sq.generate("1 minute", max_ahead="1 hour"),
    sq.generate("1 minute", idle_after="1 hour"),
    sq.generate("1 minute", per="k"),
    sq.generate("1 minute", clock=sq.clock("1 minute")),
    sq.generate(),
]


def test_policies_that_differ_have_different_texts() -> None:
    policies = [progress.policy(TIMESTAMP) for progress in WRITTEN]
    for one, other in combinations(policies, 2):
        assert one.shown(TIMESTAMP) != other.shown(TIMESTAMP)
    assert policies[2].shown(TIMESTAMP) == "generate(delay=1 minute, max_ahead=0 seconds)"
