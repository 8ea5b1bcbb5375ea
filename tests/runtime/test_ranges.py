"""Ranges of windows: merged, not copied, and the same result."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq.runtime.partials.ranges import INDEX, TouchedWindows
from tests.judged import answer

AGGREGATES = {
    "total": sq.sum("i"),
    "most": sq.max("v"),
    "mean": sq.avg("v"),
    "spread": sq.stddev("v"),
    "median": sq.median("v"),
    "distinct": sq.count_distinct("i"),
    "first": sq.first("i"),
    "last": sq.last("i"),
    "both": sq.corr("v", "i"),
}
ALIVE = 30_000


@pytest.mark.slow
def test_alive_events_are_not_copied_into_every_window() -> None:
    """30,000 events that all live at once lie in 900 million windows together: copies would not fit into memory."""
    rng = np.random.default_rng(1)
    start = rng.permutation(1_000_000)[:ALIVE]
    end = start + 1_000_000
    v, i = rng.normal(50, 9, ALIVE), rng.integers(0, 40, ALIVE)
    events = [(a, b, {"v": x, "i": n}) for a, b, x, n in zip(*(c.tolist() for c in (start, end, v, i)), strict=True)]
    found = sq.events(events).snapshot_window().select(n=sq.count(), **AGGREGATES).to_pandas()
    assert len(found) == 2 * ALIVE - 1
    for _, row in found[ALIVE // 2 :: ALIVE // 4].iterrows():
        alive = np.flatnonzero((start < row.end) & (end > row.start))
        inside = alive[np.argsort(start[alive])]
        assert (row.n, row.total, row.distinct) == (len(inside), i[inside].sum(), len(np.unique(i[inside])))
        assert (row["first"], row["last"]) == (i[inside[0]], i[inside[-1]])
        found_floats = (row.most, row["mean"], row.spread, row["median"], row.both)
        expected = (v[inside].max(), v[inside].mean(), v[inside].std(ddof=1), np.median(v[inside]))
        assert found_floats == pytest.approx((*expected, np.corrcoef(v[inside], i[inside])[0, 1]))


def test_sums_of_decimals_can_be_taken_back() -> None:
    first, second = Decimal("12345678.25"), Decimal("0.75")
    items = [sq.insert(0, 3, v=first), sq.insert(1, 2, v=second), sq.retract(0, 3, 1, v=first)]
    query = sq.events(items, schema={"v": "decimal(10,2)"}).tumbling_window(1).select(total=sq.sum("v"))
    assert answer(query) == [(0, 1, first), (1, 2, second)]


def test_the_mean_of_long_decimals() -> None:
    """Of the exact sum, with four more digits, rounded half up; NULL over no values."""
    values = pa.array([Decimal("1.00"), Decimal("2.01"), Decimal("2.01"), None], pa.decimal128(20, 2))
    points = sq.points(pa.table({"at": [1, 2, 3, 12], "v": values}), time="at")
    means = points.tumbling_window(10).select(mean=sq.avg("v")).to_arrow().column("mean")
    assert means.type == pa.decimal128(24, 6)
    assert means.to_pylist() == [Decimal("1.673333"), None]


# Touched windows: those of ranges, each once, and the places in them that a range of a group covers.

RANGES = st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9), st.integers(-2, 5)), min_size=1, max_size=8)


def windows_of(ranges: list[tuple[int, int, int]], keys: tuple[str, ...]) -> tuple[TouchedWindows | None, Any]:
    key, low, length = (np.array(values, np.int64) for values in zip(*ranges, strict=True))
    rows = pa.table({"k": key})
    return TouchedWindows.of_ranges(rows, keys, low, low + length), (rows, low, low + length)


def pairs(rows: pa.Table, keys: tuple[str, ...]) -> list[tuple[int, ...]]:
    return list(zip(*(rows.column(name).to_pylist() for name in (*keys, INDEX)), strict=True))


@given(touched=RANGES, partials=RANGES, is_keyed=st.booleans())
def test_places_are_the_touched_windows_of_a_ranges_group(touched: Any, partials: Any, is_keyed: bool) -> None:
    keys = ("k",) if is_keyed else ()
    windows, _ = windows_of(touched, keys)
    expected = {(*((k,) if keys else ()), i) for k, low, length in touched for i in range(low, low + length + 1)}
    if windows is None:
        assert not expected
        return
    assert sorted(pairs(windows.rows, keys)) == sorted(expected)
    _, (rows, low, high) = windows_of(partials, keys)
    ordered, first, last = windows.places(rows, low, high)
    every = pairs(ordered.rows, keys)
    for n, (k, a, length) in enumerate(partials):
        mine = {(*((k,) if keys else ()), i) for i in range(a, a + length + 1)}
        assert set(every[first[n] : last[n] + 1]) == mine & expected
