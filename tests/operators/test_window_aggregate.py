"""Hopping and tumbling windows: membership, aggregates, groups, and what is refused at the user's line."""

from __future__ import annotations

import datetime as dt

import pytest

import streamq as sq
from streamq.errors import PlanError, TimeError, TypeMismatch, UnknownColumn

S = sq.events([(0, 5, {"k": "e1", "v": 1}), (4, 12, {"k": "e2", "v": 2}), (11, 13, {"k": "e3", "v": 3})])


def windows(s: sq.Stream) -> list[tuple[int, int, int]]:
    return [(r["start"], r["end"], r["n"]) for r in s.to_arrow().to_pylist()]


def test_an_event_that_ends_where_a_window_starts_is_no_member() -> None:
    assert windows(S.tumbling_window(5).select(n=sq.count())) == [(0, 5, 2), (5, 10, 1), (10, 15, 2)]
    assert windows(S.hopping_window(10, 5).select(n=sq.count())) == [(-5, 5, 2), (0, 10, 2), (5, 15, 2), (10, 20, 2)]
    assert windows(S.hopping_window(2, 5).select(n=sq.count())) == [(0, 2, 1), (5, 7, 1), (10, 12, 2)]


def test_a_windows_result_has_the_bounds_of_its_window() -> None:
    q = S.tumbling_window(5).select(n=sq.count()).where(sq.window_start() > 0)
    assert windows(q.with_columns(at=sq.window_end())) == [(5, 10, 1), (10, 15, 2)]
    with pytest.raises(
        PlanError, match=r"a bound of a window where there are only events; found sum\(window_start\(\)\)"
    ):
        S.tumbling_window(5).select(n=sq.sum(sq.window_start()))
    with pytest.raises(PlanError, match="where: a bound of a window"):
        q.union(S.select(n=sq.lit(1).cast("long"))).where(sq.window_start() > 0)


def test_errors() -> None:
    for size, hop in ((0, 1), (5, 0), (-5, 1)):
        with pytest.raises(TimeError, match="must be positive"):
            S.hopping_window(size, hop)
    with pytest.raises(TimeError, match="a duration with a unit on an integer axis; found '5 minutes'"):
        S.tumbling_window("5 minutes")
    stamped = sq.events([(dt.datetime(2024, 1, 1), None, {"v": 1})])
    with pytest.raises(TimeError, match="a duration without a unit on a timestamp axis; found 5. Write '5 seconds'"):
        stamped.tumbling_window(5)
    with pytest.raises(TimeError, match="not a duration; found '5 parsecs'"):
        stamped.tumbling_window("5 parsecs")
    with pytest.raises(PlanError, match="column 'v' is neither aggregated nor a key"):
        S.group_by("k").tumbling_window(5).select(x=sq.col("v"))
    with pytest.raises(UnknownColumn, match="group_by: no column 'zone'; there are: k, v"):
        S.group_by("zone")
    with pytest.raises(UnknownColumn, match=r"group_by: no column 'start'; .*The lifetime is sq.start\(\)"):
        S.group_by("start")
    with pytest.raises(
        TimeError, match="a string as a duration on an integer axis; found '5'. Write 5, without quotes"
    ):
        S.tumbling_window("5")
    with pytest.raises(TypeMismatch, match="sum: needs numbers; found string"):
        S.tumbling_window(5).select(x=sq.sum("k"))
    with pytest.raises(PlanError, match="a payload column called 'end'"):
        S.tumbling_window(5).select(end=sq.count())
    with pytest.raises(PlanError, match="group_by: no key"):
        S.group_by()
