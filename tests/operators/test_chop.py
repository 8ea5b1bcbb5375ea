"""chop: lifetimes cut at the points of a grid; a piece is an event of its own."""

from __future__ import annotations

import pytest

import streamq as sq
from streamq.errors import TimeError
from streamq.time import INFINITY
from tests.judged import answer


def pieces(rows: list[tuple[int, int | None]], *grid: int, until: int | None = None) -> list[tuple[int, int | None]]:
    return [r[:2] for r in answer(sq.events([(*row, {"v": 1}) for row in rows]).chop(*grid), until)]


def test_a_lifetime_is_cut_at_every_point_of_the_grid() -> None:
    """
    event    [3,12)
    grid     0    5    10
    pieces   [3,5) [5,10) [10,12)
    """
    assert pieces([(3, 12)], 5) == [(3, 5), (5, 10), (10, 12)]
    assert pieces([(3, 12)], 5, 2) == [(3, 7), (7, 12)]
    assert pieces([(3, 12)], 5, -13) == [(3, 7), (7, 12)]


def test_of_an_open_lifetime_the_pieces_that_start_before_the_greatest_finite_endpoint_or_until() -> None:
    assert pieces([(3, None), (1, 14)], 5) == [(1, 5), (3, 5), (5, 10), (5, 10), (10, 14), (10, 15)]
    assert pieces([(3, None)], 5) == [], "its only finite endpoint is 3, and no piece starts before that"
    assert pieces([(3, None)], 5, until=12) == [(3, 5), (5, 10), (10, 15)]
    assert pieces([(3, None)], 5, 0, until=10) == [(3, 5), (5, 10)], "until itself is not before until"


def test_at_the_ends_of_the_axis() -> None:
    least = -(2**63) + 1
    assert pieces([(least, least + 4)], 10) == [(least, least + 4)]
    assert pieces([(least, least + 4)], 3) == [(least, least + 1), (least + 1, least + 4)]
    assert pieces([(INFINITY - 4, INFINITY - 1)], 3) == [(INFINITY - 4, INFINITY - 1)]
    assert pieces([(INFINITY - 5, INFINITY - 1)], 3) == [(INFINITY - 5, INFINITY - 4), (INFINITY - 4, INFINITY - 1)]


def test_errors() -> None:
    s = sq.events([(1, 2, {"v": 1})])
    for period in (0, -3):
        with pytest.raises(TimeError, match=f"chop: period must be positive; found {period}"):
            s.chop(period)
    with pytest.raises(
        TimeError, match="chop: a duration with a unit on an integer axis; found '3 s'. Give an integer"
    ):
        s.chop("3 s")
    with pytest.raises(TimeError, match="chop: a duration with a unit on an integer axis; found '1 s'"):
        s.chop(5, "1 s")
