"""Progress along a path that moves lifetimes: what is not known of a moved instant is not promised."""

from __future__ import annotations

import streamq as sq
from streamq.plan.schema import Schema
from streamq.runtime.carried import Carried, carry
from streamq.runtime.carried_by_expr import CarriedByExpr
from streamq.time import INFINITY, INTEGER, MINUS_INFINITY

AXIS = Schema((), INTEGER)


def test_by_ticks_it_stays_on_the_axis() -> None:
    assert carry(5, [Carried(3), Carried(-10)]) == -2
    assert carry(INFINITY - 2, [Carried(9)]) == INFINITY - 1
    assert [carry(t, [Carried(9)]) for t in (INFINITY, MINUS_INFINITY)] == [INFINITY, MINUS_INFINITY]


def test_by_an_expression_without_a_value_nothing_is_known() -> None:
    later = CarriedByExpr(sq.when(sq.start() > 5, sq.start() * 2), AXIS)
    assert carry(8, [later]) == 16
    assert carry(3, [later]) == MINUS_INFINITY, "NULL: the events there are dropped"
    assert carry(2**62, [later]) == MINUS_INFINITY, "no event can be there: it would overflow"
