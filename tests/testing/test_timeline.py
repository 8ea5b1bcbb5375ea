"""Lifetimes are drawn wherever a wrong answer may have them."""

from __future__ import annotations

from streamq.testing.timeline import Axis
from streamq.time import INFINITY


def test_a_lifetime_that_begins_at_the_end_of_time_is_drawn_there() -> None:
    axis = Axis([(1, 5), (INFINITY, INFINITY)])
    assert axis.draw(1, 5) == "|---)  "
    assert axis.draw(INFINITY, INFINITY) == "     |>"
    assert axis.mark(INFINITY) == "     ! "
