"""Spans of windows: two spans overlap in a hop for each window that both events lie in, and what is late begins before c."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq.operators import WindowSpan
from streamq.runtime.grid_ranges import WindowSpans
from streamq.runtime.time.progress_rule import ARRAYS, INTEGERS
from streamq.time import FIRST_INSTANT, INFINITY, MINUS_INFINITY, Grid
from streamq.windows import Hopping

SOME = range(-80, 80)
"""Numbers of all windows near the events."""

lifetimes = st.tuples(st.integers(-30, 30), st.integers(1, 12)).map(lambda at: (at[0], at[0] + at[1]))
grids = st.builds(
    lambda hop, more, o: Grid(hop + more, hop, o), st.integers(1, 6), st.integers(0, 9), st.integers(-20, 20)
)


def span(spans: WindowSpans, lifetime: tuple[int, int]) -> tuple[int, int]:
    return spans.start(lifetime[0], INTEGERS), spans.end(lifetime[1], INTEGERS)


@given(grid=grids, one=lifetimes, two=lifetimes)
def test_spans_overlap_in_a_hop_for_each_common_window(grid: Grid, one: tuple[int, int], two: tuple[int, int]) -> None:
    common = [i for i in SOME if all(le < grid.end(i) and re > grid.start(i) for le, re in (one, two))]
    spans = [span(WindowSpans(grid), lifetime) for lifetime in (one, two)]
    assert [i for i in SOME if all(le <= grid.start(i) < re for le, re in spans)] == common
    assert all((end - grid.offset) % grid.hop == 0 for pair in spans for end in pair)


@given(grid=grids, one=lifetimes, two=lifetimes)
def test_spans_overlap_at_the_start_of_the_axis_if_there_is_a_common_window(
    grid: Grid, one: tuple[int, int], two: tuple[int, int]
) -> None:
    first = FIRST_INSTANT // grid.hop
    both = [(FIRST_INSTANT + 30 + start, FIRST_INSTANT + 30 + end) for start, end in (one, two)]
    windows = [
        (grid.offset + i * grid.hop, grid.offset + i * grid.hop + grid.size) for i in range(first - 80, first + 80)
    ]
    is_common = any(all(le < end and re > start for le, re in both) for start, end in windows)
    (a, b), (c, d) = (span(WindowSpans(grid), lifetime) for lifetime in both)
    assert (max(a, c) < min(b, d)) == is_common


@given(grid=grids, event=lifetimes, c=st.integers(-30, 30))
def test_an_event_is_late_by_the_end_of_a_window_if_its_span_begins_before_the_progress(
    grid: Grid, event: tuple[int, int], c: int
) -> None:
    spans = WindowSpans(grid)
    assert (spans.start(event[0], INTEGERS) < spans.apply(c)) == any(event[0] < grid.end(i) <= c for i in SOME)


@given(grid=grids, times=st.lists(st.one_of(st.integers(-50, 50), st.just(INFINITY)), min_size=1))
def test_arrays_have_the_spans_of_integers(grid: Grid, times: list[int]) -> None:
    spans, array = WindowSpans(grid), np.array(times)
    assert spans.end(array, ARRAYS).tolist() == [spans.end(t, INTEGERS) for t in times]
    assert spans.start(array[:1], ARRAYS).tolist() == [spans.start(times[0], INTEGERS)]


def test_progress_stays_on_the_axis() -> None:
    spans = WindowSpans(Grid(10, 3))
    assert spans.apply(MINUS_INFINITY + 2) > MINUS_INFINITY and spans.apply(INFINITY - 1) < INFINITY


@pytest.mark.parametrize(("longest", "source"), [(1, "points"), (5, "lifetimes of five ticks")])
def test_the_longest_span_of_bounded_lifetimes(longest: int, source: str) -> None:
    points = sq.events([(1, 2, {"v": 1})]).to_points()
    plan = (points if longest == 1 else points.set_duration(longest)).plan
    spans = [span(WindowSpans(Grid(7, 3, 1)), (le, le + longest)) for le in range(-10, 10)]
    assert WindowSpan(plan, Hopping(7, 3, 1)).traits.longest == max(end - start for start, end in spans)
