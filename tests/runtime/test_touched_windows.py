"""Touched windows: those of ranges, each once, and the places in them that a range of a group covers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streamq.runtime.range_partials import INDEX, TouchedWindows

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
