"""Progress along a path that moves lifetimes: what is not known of a moved instant is not promised."""

from __future__ import annotations

import streamq as sq
from streamq.plan.schema import Schema
from streamq.runtime.time.progress import ExprProgressMap, ProgressShift, map_progress
from streamq.time import INFINITY, INTEGER, MINUS_INFINITY

AXIS = Schema((), INTEGER)


def test_by_ticks_it_stays_on_the_axis() -> None:
    assert map_progress(5, [ProgressShift(3), ProgressShift(-10)]) == -2
    assert map_progress(INFINITY - 2, [ProgressShift(9)]) == INFINITY - 1
    assert map_progress(MINUS_INFINITY + 2, [ProgressShift(-9)]) == MINUS_INFINITY + 1
    assert [map_progress(t, [ProgressShift(9)]) for t in (INFINITY, MINUS_INFINITY)] == [INFINITY, MINUS_INFINITY]


def test_by_an_expression_without_a_value_nothing_is_known() -> None:
    later = ExprProgressMap(sq.when(sq.start() > 5, sq.start() * 2), AXIS)
    assert map_progress(8, [later]) == 16
    assert map_progress(3, [later]) == MINUS_INFINITY, "NULL: the events there are dropped"
    assert map_progress(2**62, [later]) == MINUS_INFINITY, "no event can be there: it would overflow"
    assert map_progress(7, [ExprProgressMap(sq.start() * 0 + INFINITY, AXIS)]) == INFINITY - 1, "the input goes on"
