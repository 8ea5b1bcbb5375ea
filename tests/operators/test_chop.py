"""chop: lifetimes cut at the points of a grid; a piece is an event of its own."""

from __future__ import annotations

import datetime as dt

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


def test_ends_on_the_grid_make_no_empty_piece() -> None:
    assert pieces([(5, 10)], 5) == [(5, 10)]
    assert pieces([(5, 15)], 5) == [(5, 10), (10, 15)]
    assert pieces([(6, 7)], 5) == [(6, 7)]


def test_divisions_floor_below_zero() -> None:
    assert pieces([(-7, 2)], 5) == [(-7, -5), (-5, 0), (0, 2)]
    assert pieces([(-7, -4)], 3, 1) == [(-7, -5), (-5, -4)]


def test_pieces_are_a_bag_and_carry_the_payload() -> None:
    s = sq.events([(3, 7, {"v": 1}), (3, 7, {"v": 1}), (4, 6, {"v": None})])
    assert answer(s.chop(5)) == [(3, 5, 1), (3, 5, 1), (4, 5, None), (5, 6, None), (5, 7, 1), (5, 7, 1)]


def test_of_an_open_lifetime_the_pieces_that_start_before_the_greatest_finite_endpoint_or_until() -> None:
    assert pieces([(3, None), (1, 14)], 5) == [(1, 5), (3, 5), (5, 10), (5, 10), (10, 14), (10, 15)]
    assert pieces([(3, None)], 5) == [], "its only finite endpoint is 3, and no piece starts before that"
    assert pieces([(3, None)], 5, until=12) == [(3, 5), (5, 10), (10, 15)]
    assert pieces([(3, None)], 5, 0, until=10) == [(3, 5), (5, 10)], "until itself is not before until"


def test_until_bounds_the_pieces_of_finite_lifetimes_too() -> None:
    assert pieces([(3, 22)], 5, until=11) == [(3, 5), (5, 10), (10, 15)]


def test_chopping_does_not_change_what_is_alive_when() -> None:
    s = sq.events([(3, 12, {"v": 1}), (4, 9, {"v": 1})])
    per_tick = sq.events([(t, t + 1, {"t": t}) for t in range(15)])
    counted = [
        answer(x.join(per_tick).group_by("t").snapshot_window().select(n=sq.count()))
        for x in (s, s.chop(4), s.chop(5, 1))
    ]
    assert counted[0] == counted[1] == counted[2]


def test_at_the_ends_of_the_axis() -> None:
    least = -(2**63) + 1
    assert pieces([(least, least + 4)], 10) == [(least, least + 4)]
    assert pieces([(least, least + 4)], 3) == [(least, least + 1), (least + 1, least + 4)]
    assert pieces([(INFINITY - 4, INFINITY - 1)], 3) == [(INFINITY - 4, INFINITY - 1)]
    assert pieces([(INFINITY - 5, INFINITY - 1)], 3) == [(INFINITY - 5, INFINITY - 4), (INFINITY - 4, INFINITY - 1)]


def test_a_timestamp_axis() -> None:
    day = dt.datetime(2024, 1, 1, 9, 30, tzinfo=dt.UTC)
    s = sq.events([(day, day + dt.timedelta(hours=1), {"v": 1})])
    noon = day + dt.timedelta(minutes=30)
    assert answer(s.chop("1 hour")) == [(day, noon, 1), (noon, noon + dt.timedelta(minutes=30), 1)]
    assert answer(s.chop("1 hour", offset="30 minutes")) == answer(s)


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
