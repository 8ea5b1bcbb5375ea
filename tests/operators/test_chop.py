"""chop: lifetimes cut at the points of a grid; a piece is an event of its own."""

from __future__ import annotations

import streamq as sq
from streamq.time import INFINITY
from tests.judged import answer


def pieces(rows: list[tuple[int, int | None]], *grid: int, until: int | None = None) -> list[tuple[int, int | None]]:
    return [r[:2] for r in answer(sq.events([(*row, {"v": 1}) for row in rows]).chop(*grid), until)]


def test_at_the_ends_of_the_axis() -> None:
    least = -(2**63) + 1
    assert pieces([(least, least + 4)], 10) == [(least, least + 4)]
    assert pieces([(least, least + 4)], 3) == [(least, least + 1), (least + 1, least + 4)]
    assert pieces([(INFINITY - 4, INFINITY - 1)], 3) == [(INFINITY - 4, INFINITY - 1)]
    assert pieces([(INFINITY - 5, INFINITY - 1)], 3) == [(INFINITY - 5, INFINITY - 4), (INFINITY - 4, INFINITY - 1)]
