"""per_window: rows of equal lifetime together, whatever they come from; neighbours of overlapping windows are not mixed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import streamq as sq
from streamq.errors import StreamqWarning
from streamq.run.rehearsal import Rehearsal
from tests.each import each
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


@pytest.mark.parametrize("early", [False, True])
def test_rows_whose_ends_may_still_move_are_reported_and_corrected(early: bool) -> None:
    """
    items   + a [5,6)   + b [8,9)   + c [20,21)   c until 23   - a
    """
    items = [sq.insert(5, 6, v=1), sq.insert(8, 9, v=2), sq.insert(20, 21, v=3)]
    items += [sq.retract(20, 21, 23, v=3), sq.retract(5, 6, 5, v=1)]
    s = sq.events(items, name="s", progress=sq.generate(1000))
    run = Rehearsal(s.per_window().select(m=sq.min("v")), "changelog", early=early)
    sent = [[tuple(row.values()) for row in run.arrive(s=1).to_pylist()] for _ in items]
    a, b, c = ("insert", 1, 5, 6, None), ("insert", 2, 8, 9, None), ("insert", 3, 20, 21, None)
    end, longer = [("retract", 1, 5, 6, 5)], ("retract", 3, 20, 21, 23)
    assert sent == ([[a], [b], [c], [longer], end] if early else [[], [a], [b], [], end])
    assert [tuple(row.values()) for row in run.finish().to_pylist()] == ([] if early else [("insert", 3, 20, 23, None)])


def test_columns_of_ones_own_keep_their_names() -> None:
    named = S.select("k", lifetime_start=sq.col("v"))
    assert sorted(answer(named.per_window().select(n=sq.sum("lifetime_start")))) == [
        (1, 2, 1),
        (3, 4, 1),
        (3, 5, 2),
        (4, 5, 2),
    ]


WINDOWS: dict[str, Callable[[Any], Any]] = {
    "hopping": lambda s: s.hopping_window(4, 2),
    "tumbling": lambda s: s.tumbling_window(4),
    "gapped": lambda s: s.hopping_window(2, 4),
    "snapshot": lambda s: s.snapshot_window(),
    "sliding": lambda s: s.sliding_window(4),
    "count": lambda s: s.count_window(2, stamp="align"),
    "count of one": lambda s: s.count_window(1, stamp="align"),
    "rows": lambda s: s.rows_window(3, stamp="align"),
    "rows without overlap": lambda s: s.rows_window(1, 2, stamp="align"),
    "session": lambda s: s.session_window(2),
    "landmark": lambda s: s.landmark_window(2, period=6, stamp="align"),
}
MORE = S.union(S.shift(9).with_columns(v=sq.col("v") + 2))


def has_neighbours(results: sq.Stream) -> bool:
    lifetimes = sorted({row[:2] for row in answer(results)})
    return any(after[0] < before[1] for before, after in pairwise(lifetimes))


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_say_whether_they_overlap(name: str) -> None:
    counts = WINDOWS[name](MORE).select(v=sq.count())
    assert counts.plan.traits.mixes_windows == has_neighbours(counts)
    assert not WINDOWS[name](MORE).select(v=sq.count()).to_points_at_end().plan.traits.mixes_windows


MIXED: dict[str, Callable[[], sq.Stream]] = {
    "results": lambda: COUNTS,
    "filtered": lambda: COUNTS.where(sq.col("n") > 1),
    "computed": lambda: COUNTS.with_columns(v=sq.col("n") + 1).select("v"),
    "exploded": lambda: COUNTS.with_columns(v=sq.functions.array(sq.col("n"))).explode("v"),
    "moved": lambda: COUNTS.shift(3).extend(1),
    "in a union": lambda: S.select("k").union(COUNTS.select("k")),
    "joined": lambda: S.join(COUNTS, on="k"),
    "without others": lambda: COUNTS.left_anti_join(S.where(sq.col("v") > 1), on="k"),
    "of pairs": lambda: S.windowed_join(S, on="k", size=4, hop=2, suffixes=("", "_b")),
    "of rows": lambda: S.hopping_window(4, 2).top_k(1, by="v"),
    "the best of each window": lambda: COUNTS.per_window().top_k(1, by="n"),
    "sums of each window": lambda: COUNTS.per_window().select(v=sq.sum("n")),
}
PLAIN: dict[str, Callable[[], sq.Stream]] = {
    "windows that do not overlap": lambda: S.tumbling_window(4).select(v=sq.count()),
    "points": lambda: COUNTS.to_points(),
    "points at the end": lambda: COUNTS.to_points_at_end().shift(-1),
    "of a length of their own": lambda: COUNTS.set_duration(2),
    "snapshots": lambda: S.snapshot_window().select(v=sq.count()),
    "without them": lambda: S.left_anti_join(COUNTS, on="k"),
    "until others": lambda: S.clip(COUNTS, on="k"),
    "a signal": lambda: COUNTS.to_signal("k"),
    "the points of landmarks": lambda: S.landmark_window(2, start=0).select(v=sq.count()),
}


@each([*MIXED, *PLAIN], WINDOWS)
def test_windows_over_results_of_overlapping_windows_are_a_warning(name: str, over: str) -> None:
    results = (MIXED | PLAIN)[name]()
    if name in PLAIN:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            WINDOWS[over](results)
            results.windowed_join(S, size=4, suffixes=("_l", "_r"))
            results.last_rows(2)
    else:
        advice = r"write \.per_window\(\), to have each once, .* \.to_points_at_end\(\)\.shift\(-1\)"
        for windows in (
            WINDOWS[over],
            lambda s: s.windowed_join(S, size=4, suffixes=("_l", "_r")),
            lambda s: S.windowed_join(s, size=4, suffixes=("_l", "_r")),
            lambda s: S.windowed_join(s, rows=2, suffixes=("_l", "_r")),
            lambda s: s.last_rows(2),
        ):
            with pytest.warns(StreamqWarning, match=f"each holds the results of several .* {advice}") as warned:
                windows(results)
            assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results.per_window()


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_a_join_of_results_of_overlapping_windows_is_a_warning(how: str) -> None:
    """Not where one side is none, or where the windows are keys, under whatever name: then each meets those of its window."""
    sums = S.group_by("k").hopping_window(4, 2).select(v=sq.sum("v"))
    advice = r"write \.with_columns\(window=sq\.start\(\)\) on both .* \.to_points_at_end\(\)\.shift\(-1\) on both"
    for left, right in ((COUNTS, sums), (COUNTS.where(sq.col("n") > 0), sums.shift(2))):
        with pytest.warns(StreamqWarning, match=f"join: both streams are .* of several .* {advice}") as warned:
            left.join(right, on="k", how=how)
        assert len(warned) == 1
    mine, theirs = (
        COUNTS.with_columns(window=sq.start()),
        sums.with_columns(begins=sq.start()).select("k", "begins", "v"),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        COUNTS.join(S, on="k", how=how)
        S.join(COUNTS, on="k", how=how)
        COUNTS.to_points_at_end().shift(-1).join(sums.to_points_at_end().shift(-1), on="k", how=how)
        in_one_window = mine.join(theirs, on=[("k", "k"), ("window", "begins")], how=how)
    if how == "inner":
        windows = [(start, end, k) for start, end, k, *_ in answer(COUNTS)]
        assert sorted((start, end, k) for start, end, k, *_ in answer(in_one_window)) == sorted(windows)


def test_each_result_lies_once_in_the_window_of_its_last_instant() -> None:
    """
    counts  [-2,2)  [0,4)  [2,6)  [4,8)   of which [0,4) and [4,8) end where a window of four does
    """
    once = COUNTS.to_points_at_end().shift(-1).tumbling_window(4).select(results=sq.count())
    assert sorted(answer(once)) == [(0, 4, 3), (4, 8, 4)]
