"""windowed_join: pairs of members of one window, whether or not they live at once; one row a pair and window."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest

import streamq as sq
from streamq.errors import AmbiguousColumn, PlanError, TimeError, TypeMismatch, UnknownColumn
from tests.judged import answer

L = sq.events([(1, 2, {"k": 1, "v": "a"}), (4, 7, {"k": 1, "v": "b"}), (3, 4, {"k": None, "v": "c"})])
R = sq.events([(0, 1, {"k": 1, "w": 10}), (5, 6, {"k": 1, "w": 20}), (3, 4, {"k": None, "w": 30})])


def test_windows_at_the_ends_of_the_axis_are_cut_there() -> None:
    least, most = -(2**63) + 1, 2**63 - 1
    far = sq.events([(least, least + 4, {"v": 1}), (most - 5, most - 1, {"v": 2})])
    found = answer(far.windowed_join(far.rename(v="w"), size=10))
    assert found == [(least, least + 7, 1, 1), (most - 7, None, 2, 2)]
    overlapping = answer(far.windowed_join(far.rename(v="w"), size=10, hop=4))
    assert overlapping[:2] == [(least, least + 1, 1, 1), (least, least + 5, 1, 1)]


def test_windows_are_of_time_or_of_rows() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "no windows; found size=None and rows=None. Write size="),
        ({"size": 5, "rows": 2}, "windows of time and of rows; found size=5 and rows=2. Write size="),
        ({"rows": 2, "hop": 1}, "hop is of windows of time. Write it with size="),
        ({"rows": 2, "offset": 1}, "offset is of windows of time. Write it with size="),
        ({"size": 5, "step": 2}, "step is of windows of rows. Write it with rows="),
        ({"size": 5, "order_by": "k"}, "order_by is of windows of rows. Write it with rows="),
        ({"rows": 0}, "rows is a whole number of at least 1; found 0"),
    ]
    for arguments, message in wrong:
        with pytest.raises(PlanError, match=f"windowed_join: {re.escape(message)}"):
            L.windowed_join(R, "k", **arguments)
    with pytest.raises(UnknownColumn, match="windowed_join, on the right: no column 'v'; there are: k, w"):
        L.windowed_join(R, "k", rows=2, order_by="v")


def test_other_streams_need_a_window_before_an_aggregate() -> None:
    pairs = L.windowed_join(R, "k", size=4, hop=2)
    for stream in (L, pairs.shift(1), L.join(R, "k")):
        with pytest.raises(PlanError, match="select"):
            stream.select(n=sq.count())
        with pytest.raises(PlanError, match="select: a group without a window"):
            stream.group_by("k").select(n=sq.count())


def test_errors() -> None:
    with pytest.raises(
        AmbiguousColumn, match="windowed_join: columns of both streams have equal names; found v. Bring"
    ):
        L.windowed_join(L, "k", size=5)
    with pytest.raises(TypeMismatch, match="windowed_join: keys 'v' and 'w' of different types; .* Cast one of them"):
        L.windowed_join(R, [("v", "w")], size=5)
    for size, hop in ((0, None), (5, 0), (-1, None)):
        with pytest.raises(TimeError, match="windowed_join: (size|hop) must be positive"):
            L.windowed_join(R, "k", size=size, hop=hop)
    with pytest.raises(TimeError, match="windowed_join: a duration with a unit on an integer axis; found '5 s'"):
        L.windowed_join(R, "k", size="5 s")
    with pytest.raises(PlanError, match="windowed_join: the condition reads a lifetime"):
        L.windowed_join(R, "k", size=5, where=lambda l, r: sq.duration() > 2)
    with pytest.raises(TypeMismatch, match="windowed_join: the condition is not boolean; found bigint"):
        L.windowed_join(R, "k", size=5, where=lambda l, r: r.w)
    with pytest.raises(PlanError, match="windowed_join: streams on different time axes; found integer and timestamp"):
        L.windowed_join(sq.events([(dt.datetime(2024, 1, 1), None, {"w": 1})]), size=5)
    with pytest.raises(PlanError, match="windowed_join: not a stream; found NoneType"):
        L.windowed_join(None, size=5)  # type: ignore[arg-type]
