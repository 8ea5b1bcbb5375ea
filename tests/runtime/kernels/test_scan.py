"""Operators that go from event to event on a stream: from the states at the CTI on, again where events come in between."""

from __future__ import annotations

from typing import Any

import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.errors import ModuleFailed
from streamq.plan.node import number_sources
from streamq.runtime.deltas import LE
from streamq.stream import Stream
from tests.programs import compiled

CALLS: list[int] = []
"""What the steps were called with."""


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


@sq.udso("total bigint", name="running_sum")
class RunningSum:
    def initial(self) -> int:
        return 0

    def step(self, total: int, v: int) -> tuple[int, list[int]]:
        CALLS.append(v)
        return total + v, [total + v]


def physical(*items: Any) -> Stream:
    return sq.events(list(items), name="s", schema={"v": "bigint", "k": "string"}).to_points()


def run(query: Any, output: str = OutputForm.CHANGELOG, **options: Any) -> LocalRun:
    plan = number_sources(query(physical(sq.insert(0, 1, v=0, k="a"), sq.cti(0))).plan)[0]
    return LocalRun(compiled(plan, output, buckets=1, **options))


def put(at: int, v: int, k: str = "a") -> Any:
    return sq.insert(at, at + 1, v=v, k=k)


def fed(live: LocalRun, *items: Any) -> list[tuple[Any, ...]]:
    """The deltas of a micro-batch as start, columns and weight, and what steps were called with in it."""
    CALLS.clear()
    deltas = live.batch(physical(sq.cti(-1_000_000), *items).tables)
    names = [n for n in deltas.column_names if not n.startswith("__")]
    return sorted(((r[LE], *(r[n] for n in names), r["__w"]) for r in deltas.to_pylist()), key=repr)


def sums(s: Stream) -> Stream:
    return s.scan(RunningSum("v"))


def test_what_comes_in_between_has_it_go_over_what_follows_again() -> None:
    live = run(sums)
    assert fed(live, put(1, 1), put(5, 2), put(9, 4), put(20, 8)) == [(1, 1, 1), (5, 3, 1), (9, 7, 1)]
    assert CALLS == [1, 2, 4], "time has not come past the last one"
    assert fed(live, put(6, 10)) == [(6, 13, 1), (9, 17, 1), (9, 7, -1)]


def test_it_goes_on_from_the_state_at_the_cti() -> None:
    live = run(sums)
    fed(live, put(1, 1), put(5, 2), put(9, 4), put(20, 8))
    assert fed(live, sq.cti(6)) == []
    assert fed(live, put(7, 100)) == [(7, 103, 1), (9, 107, 1), (9, 7, -1)]
    assert CALLS == [100, 4]
    assert fed(live, sq.cti(30)) == [(20, 115, 1)]
    assert fed(live, put(31, 1), sq.cti(40)) == [(31, 116, 1)]
    assert CALLS == [1]


def test_final_rows_take_one_call_an_event_in_the_order_of_time() -> None:
    live = run(sums, OutputForm.FINAL)
    assert fed(live, put(9, 4), put(5, 2)) == []
    assert fed(live, put(1, 1), sq.cti(5)) == [(1, 1, 1)]
    assert CALLS == [1], "at the CTI more may still start"
    assert fed(live, put(5, 1), sq.cti(6)) == [(5, 2, 1), (5, 4, 1)]
    assert CALLS == [1, 2]
    assert fed(live, put(40, 0), sq.cti(10)) == [(9, 8, 1)]
    assert CALLS == [4]


def test_what_would_fail_only_out_of_order_does_not_where_rows_wait() -> None:
    @sq.udso("age bigint", initial=None, time_sensitive=True)
    def age(since: int | None, start: int, v: int) -> tuple[int | None, list[int]]:
        return (start, []) if v else (None, [start - since])  # type: ignore[operator]

    def ages(s: Stream) -> Stream:
        return s.scan(age("v"))

    patient, hasty = run(ages, OutputForm.FINAL), run(ages)
    fed(patient, put(8, 0), put(20, 1))
    assert fed(patient, put(3, 1), sq.cti(15)) == [(8, 5, 1)]
    with pytest.raises(ModuleFailed, match="age: it failed; TypeError.*; event at 8; v = 0"):
        fed(hasty, put(8, 0), put(20, 1))


def test_a_state_that_cannot_be_kept_fails() -> None:
    @sq.udso("x int", initial=None)
    def counting(state: Any, v: int) -> tuple[Any, None]:
        return (i for i in range(v)), None

    live = run(lambda s: s.scan(counting("v")))
    with pytest.raises(ModuleFailed, match="counting: it failed; a generator cannot be pickled .*; event at 1"):
        fed(live, put(1, 1), put(9, 1), sq.cti(4))
