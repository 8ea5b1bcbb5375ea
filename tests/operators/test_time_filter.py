"""Filters of starts and ends become ranges of a table's time columns."""

from __future__ import annotations

import datetime as dt

import pytest

import streamq as sq
from streamq.operators.time_filter import Range, lifetime_ranges
from streamq.plan.expr import Expr

C = sq.col
NOON = dt.datetime(1970, 1, 1, 12)
TICKS = 43_200_000_000


@pytest.mark.parametrize(
    ("predicate", "axis", "expected"),
    [
        (sq.start() >= 3, "integer", {"start": Range(3)}),
        ((sq.start() > 3) & (sq.start() < 9) & (C("v") > 0), "integer", {"start": Range(4, 8)}),
        ((sq.start() <= 9) & (sq.end() > 4), "integer", {"start": Range(last=9), "end": Range(5)}),
        (sq.start() == 4, "integer", {"start": Range(4, 4)}),
        (sq.lit(3) < sq.start(), "integer", {"start": Range(4)}),
        (sq.start() >= NOON, "timestamp", {"start": Range(TICKS)}),
        ((sq.start() > 3) | (C("v") > 0), "integer", {}),
        (sq.start() > C("v"), "integer", {}),
        (sq.start() + 1 > 3, "integer", {}),
    ],
)
def test_comparisons_with_constants_leave_a_range(predicate: Expr, axis: str, expected: dict[str, Range]) -> None:
    assert lifetime_ranges([predicate], axis) == expected
