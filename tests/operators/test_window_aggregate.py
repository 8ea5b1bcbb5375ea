"""Hopping and tumbling windows: membership, aggregates, groups, and what is refused at the user's line."""

from __future__ import annotations

import datetime as dt

import pytest

import streamq as sq
from streamq.errors import PlanError, TimeError, TypeMismatch, UnknownColumn

S = sq.events([(0, 5, {"k": "e1", "v": 1}), (4, 12, {"k": "e2", "v": 2}), (11, 13, {"k": "e3", "v": 3})])


def windows(s: sq.Stream) -> list[tuple[int, int, int]]:
    return [(r["start"], r["end"], r["n"]) for r in s.to_arrow().to_pylist()]


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
