"""The shortest cases of what shows only where rows come one by one: a row a micro-batch, restarted after each.

Random streams come to these instants seldom. Each case names the instant; the faults below show that it tells right from wrong.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.testing.arrival import Item
from streamq.testing.case import Case
from streamq.testing.execution import STREAM, Execution
from streamq.testing.trial import check

MIDNIGHT = int(dt.datetime(2026, 3, 2, tzinfo=dt.UTC).timestamp()) * 1_000_000
HOUR = 3_600_000_000

WAYS = (
    # with CTIs as high as they may be, so that what can be final is
    Execution(STREAM, OutputForm.CHANGELOG, ctis=True, slack=(0,), restart=True),
    # with those of the sources alone, so that the end brings the rest
    Execution(STREAM, OutputForm.FINAL, restart=True),
)


def points(*names: str, lag: int = 0) -> list[Any]:
    """Streams of points with a value."""
    columns = t.table("at bigint, v bigint", [])
    return [sq.points(columns, time="at", name=name, progress=sq.generate(lag)) for name in names]


def spans(axis: str = "bigint") -> Any:
    """Intervals with a value."""
    return sq.intervals(
        t.table(f"start {axis}, end {axis}, v bigint", []), start="start", end="end", name="s", progress=sq.generate(0)
    )


def arriving(text: str) -> list[tuple[str, Item]]:
    """Points ``name:start``, or ``name:start-end``, whose values are their places; an end of ``inf`` is none."""
    items = []
    for place, word in enumerate(text.split()):
        name, _, at = word.partition(":")
        start, _, end = at.partition("-")
        ends = None if end == "inf" else int(end) if end else int(start) + 1
        items.append((name, Item("insert", int(start), ends, payload={"v": place})))
    return items


@sq.uda("bigint", name="lived", time_sensitive=True, columns=["v"])
def lived(events: Any, window: Any) -> int:
    """The ticks that the members of a window live in it."""
    return int((events.end - events.start).sum())


def changes() -> Any:
    """Intervals with a value, whose ends may move."""
    columns = "kind string, start bigint, end bigint, new_end bigint, v bigint"
    return sq.physical(t.table(columns, []), name="s")


def pattern(text: str, *names: str) -> Any:
    return sq.cedr(f"EVENT E WHEN {text}", **dict(zip([n.upper() for n in names], points(*names), strict=True)))


Query = Callable[[], Any]
CASES: dict[str, tuple[Query, list[tuple[str, Item]]]] = {
    "rows between windows whose step is above their size": (
        lambda: points("s")[0].rows_window(1, 3).select(x=sq.sum("v")),
        arriving("s:1 s:3 s:5 s:7 s:9 s:11 s:13 s:15"),
    ),
    "the last rows after those of a window are settled": (
        lambda: points("s")[0].last_rows(3, 2),
        arriving("s:1 s:3 s:5 s:7 s:9 s:11 s:13 s:15"),
    ),
    "an event that ends at midnight": (
        lambda: spans("timestamp").calendar_window("1 day", zone="UTC").select(n=sq.count()),
        arriving(f"s:{MIDNIGHT - 2 * HOUR}-{MIDNIGHT} s:{MIDNIGHT}-{MIDNIGHT + HOUR}"),
    ),
    "a day in which a CTI comes": (
        lambda: spans("timestamp").calendar_window("1 day", zone="UTC").select(n=sq.count()),
        arriving(" ".join(f"s:{MIDNIGHT + n * HOUR}-{MIDNIGHT + (n + 1) * HOUR}" for n in (1, 5, 30, 31))),
    ),
    "a reported window whose neighbours are final is corrected": (
        lambda: points("s", lag=3)[0].hopping_window(4, 2).select(n=sq.count()),
        arriving("s:1 s:3 s:5 s:7 s:4 s:6 s:9 s:8"),
    ),
    "endless lifetimes beside an end at a window's bound and beyond": (
        lambda: spans().tumbling_window(4).select(n=sq.count()),
        arriving("s:1-inf s:2-8 s:3-9"),
    ),
    "members of one instant that come in another order": (
        lambda: points("s")[0].select(v=-sq.col("v")).tumbling_window(4).select(all=sq.collect("v")),
        arriving("s:1 s:1 s:2 s:5"),
    ),
    "a window of a module with a CTI a tick before its end": (
        lambda: spans().tumbling_window(4).select(x=lived("v")),
        arriving("s:1-2 s:3-4 s:5-6"),
    ),
    "an end that moves within a window of a module that has been sent": (
        lambda: changes().tumbling_window(4).select(x=lived("v")),
        [*arriving("s:1-3 s:5-6"), ("s", Item("retract", 1, 3, new_end=2, payload={"v": 0}))],
    ),
    "a run that has been consumed before the next of its events": (
        lambda: pattern("REPEAT(A AS f CONSUME, 2, 10)", "a"),
        arriving("a:1 a:2 a:3 a:4 a:5"),
    ),
    "a candidate just a scope before": (
        lambda: pattern("SEQUENCE(A AS x FIRST, B AS y, 4)", "a", "b"),
        arriving("a:3 b:4 b:7 a:8 b:12 b:13"),
    ),
    "a third event within the scope of the second alone": (
        lambda: pattern("ATLEAST(3, A AS x, B AS y, C AS z, 4)", "a", "b", "c"),
        arriving("a:1 b:3 c:5 a:8 b:10 c:13"),
    ),
}


def judge(name: str) -> None:
    query, arrival = CASES[name]
    case = Case(query().plan, tuple(arrival), (1,) * len(arrival))
    assert case.answer().num_rows
    assert check(case, WAYS)


@pytest.mark.parametrize("name", CASES)
def test_the_shortest_case(name: str) -> None:
    judge(name)
