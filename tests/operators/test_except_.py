"""except_: a difference of bags at every instant, over maximal intervals, one row a unit."""

from __future__ import annotations

from decimal import Decimal

import streamq as sq
from streamq.time import INFINITY
from tests.judged import answer


def bag(*spans: tuple[int, int | None]) -> sq.Stream:
    return sq.events([(*span, {"v": 1}) for span in spans])


def left_over(left: sq.Stream, right: sq.Stream) -> list[tuple[int, int | None]]:
    return [row[:2] for row in answer(left.except_(right))]


def test_open_ends() -> None:
    assert left_over(bag((1, None), (2, None)), bag((4, None))) == [(1, None), (2, 4)]
    assert left_over(bag((1, None)), bag((0, 3))) == [(3, None)]
    ends = -(2**63) + 1, INFINITY - 1
    assert left_over(bag((ends[0], None)), bag(ends)) == [(ends[1], None)]


def test_decimals_and_no_payload_at_all() -> None:
    money = sq.events([(1, 9, {"v": Decimal("1.10")})])
    assert answer(money.except_(money.shift(3))) == [(1, 4, Decimal("1.10"))]
    bare = sq.events([(1, 9, {}), (2, 3, {})])
    assert answer(bare.except_(sq.events([(4, 5, {})]))) == [(1, 4), (2, 3), (5, 9)]


def test_points_that_meet_are_one_row() -> None:
    points = bag((1, 9), (4, 5), (5, 6)).to_points()
    assert points.except_(bag((1, 9))).schema.shape == "interval"
    assert left_over(points, bag((1, 3))) == [(4, 6)]
