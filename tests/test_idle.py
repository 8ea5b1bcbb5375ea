"""Silent sources: what their progress counts as after a while."""

from __future__ import annotations

import datetime as dt

import pytest

import streamq as sq
from streamq.errors import PlanError
from streamq.run.rehearsal import Rehearsal
from streamq.run.source_status import SourceStatus
from streamq.run.watcher import ctis_for_silent
from streamq.time import MINUS_INFINITY

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


def test_idle_after_is_a_time_by_the_clock() -> None:
    with pytest.raises(PlanError, match="generate: idle_after is no length of time; found '0 seconds'"):
        sq.events([(1, 2, {"v": 1})], progress=sq.generate(idle_after="0 seconds"))
