"""per_window: rows of equal lifetime together, whatever they come from; neighbours of overlapping windows are not mixed."""

from __future__ import annotations

import warnings

import pytest

import streamq as sq
from streamq.errors import PlanError, StreamqWarning
from tests.judged import answer

S = sq.events(
    [(1, 2, {"k": "a", "v": 1}), (3, 4, {"k": "b", "v": 1}), (3, 5, {"k": "b", "v": 2}), (4, 5, {"k": "a", "v": 2})]
)
COUNTS = S.group_by("k").hopping_window(4, 2).select(n=sq.count())


def test_the_greatest_of_each_window_by_itself() -> None:
    """
    counts  [-2,2) a1   [0,4) a1 b2   [2,6) a1 b2   [4,8) a1 b1
    """
    best = answer(COUNTS.per_window().top_k(1, by="n", ties="break", row_number=True))
    assert sorted(best) == [(-2, 2, "a", 1, 1, 1), (0, 4, "b", 2, 1, 1), (2, 6, "b", 2, 1, 1), (4, 8, "a", 1, 1, 1)]
    assert sorted(answer(COUNTS.per_window().select(n=sq.sum("n"), groups=sq.count()))) == [
        (-2, 2, 1, 1), (0, 4, 3, 2), (2, 6, 3, 2), (4, 8, 2, 2),
    ]  # fmt: skip
    assert sorted(answer(COUNTS.group_by("k").per_window().select(n=sq.max("n"))))[1:3] == [
        (0, 4, "a", 1),
        (0, 4, "b", 2),
    ]


def test_columns_of_ones_own_keep_their_names() -> None:
    named = S.select("k", lifetime_start=sq.col("v"))
    assert sorted(answer(named.per_window().select(n=sq.sum("lifetime_start")))) == [
        (1, 2, 1),
        (3, 4, 1),
        (3, 5, 2),
        (4, 5, 2),
    ]


def test_windows_over_results_of_overlapping_windows_are_a_warning() -> None:
    tumbling = S.tumbling_window(4).select(n=sq.count())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tumbling.hopping_window(8, 4)
        COUNTS.to_points_at_end().tumbling_window(4)
        COUNTS.per_window()
    for windows in (lambda s: s.hopping_window(4, 2), lambda s: s.where(sq.col("n") > 1).tumbling_window(4)):
        with pytest.warns(StreamqWarning, match=r"each holds the results of several .* write .per_window\(\)"):
            windows(COUNTS)


def test_only_broken_ties_are_numbered() -> None:
    with pytest.raises(PlanError, match="top_k: rows that share a rank have no number of their own; ties='keep'"):
        S.tumbling_window(4).top_k(1, by="v", row_number=True)
