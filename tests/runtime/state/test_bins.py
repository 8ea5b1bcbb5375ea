"""Bins of time: few, whatever the first micro-batch was like; none that could not hold what is in it; split by group if large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamq.runtime.arrow.columnar import concat, net_deltas
from streamq.runtime.event import WEIGHT
from streamq.runtime.groups import HASH, with_hashes
from streamq.runtime.state.baskets import Baskets, BinSizes, DictStore, KernelBaskets
from streamq.runtime.state.bins import ENDLESS, MOST, Bins, hashes_in, is_part
from streamq.time import INFINITY, MINUS_INFINITY

SMALL = BinSizes(split_above=64, whole_upto=100)


def scope() -> KernelBaskets:
    return Baskets(DictStore()).scoped("x")


def held(state: KernelBaskets, *columns: str) -> Bins:
    return Bins(state, "rows", lambda rows: rows, columns, SMALL)


def lifetimes(le: Any, re: Any, **columns: Any) -> pa.Table:
    return pa.table({"__le": pa.array(le, pa.int64()), "__re": pa.array(re, pa.int64()), **columns})


def put(state: KernelBaskets, *lives: tuple[int, int]) -> None:
    held(state).hold(lifetimes(*zip(*lives, strict=True)))


@pytest.mark.slow
def test_bins_get_wider_where_there_would_be_too_many() -> None:
    state = scope()
    put(state, (0, 1), (10, 11))
    lives = [(at, at + 1) for at in range(20, 5_000, 7)]
    for life in lives:
        put(state, life)
        assert len(state.bins("rows")) <= MOST
    every = state.read_all("rows")
    assert every is not None
    assert sorted(every.column("__le").to_pylist()) == [0, 10, *(at for at, _ in lives)]
    for bin in state.bins("rows"):
        rows = state.read("rows", bin)
        assert rows is not None
        lives_there = [*zip(*(column.to_pylist() for column in rows.columns), strict=True)]
        assert held(state).span(bin) == (min(le for le, _ in lives_there), max(re for _, re in lives_there))


def test_what_never_ends_has_a_bin_of_its_own() -> None:
    state = scope()
    put(state, (0, INFINITY), (5, 9))
    assert ENDLESS in state.bins("rows") and len(state.bins("rows")) == 2


def test_a_lifetime_over_most_of_the_axis_lies_within_its_bin() -> None:
    lives = [(MINUS_INFINITY + 1, INFINITY - 1), (MINUS_INFINITY + 1, 0), (-(2**62), 2**62), (-1, INFINITY - 1)]
    for le, re in lives:
        state = scope()
        put(state, (le, re))
        (bin,) = state.bins("rows")
        assert held(state).span(bin) == (le, re)
        held(state).forget(re)
        assert state.bins("rows") == [bin]


def test_a_large_bin_is_split_by_group() -> None:
    """Few rows are read for one group."""
    state, size = scope(), 2_000
    for start in range(0, size, 50):
        le = np.full(50, start // 1_000)
        keys = np.arange(start, start + 50)
        held(state, "k").hold(lifetimes(le, le + 5_000, k=keys))
    names = state.bins("rows")
    bins = held(state, "k")
    (bin,) = bins
    assert all(map(is_part, names)) and bins.span(bin) == (0, 5_001)
    rows = {name: state.read("rows", name) for name in names}
    every = concat([t for t in rows.values() if t is not None])
    assert sorted(every.column("k").to_pylist()) == list(range(size))
    touched = every.column(HASH).to_numpy()[:1]
    hit = [name for name in names if len(hashes_in(name, touched))]
    assert len(hit) == 1 and rows[hit[0]].num_rows < size / 8
    assert bins.read_groups(bin, lambda: touched).num_rows == 1
    assert state.filled("rows", hit[0]).chunks == 1, "it had many chunks"
    before = state.baskets.work.rows
    assert bins.read_groups(bin, lambda: touched).column("k").to_pylist() == every.column("k").to_pylist()[:1]
    assert state.baskets.work.rows == before + 1
    assert bins.read_groups(bin, lambda: touched[:0]) is None
    assert bins.read(bin).num_rows == size


def test_the_events_of_one_group_stay_in_few_bins() -> None:
    state = scope()
    for _ in range(40):
        held(state, "k").hold(lifetimes(np.zeros(50), np.full(50, 9), k=np.ones(50, np.int64)))
    (name,) = state.bins("rows")
    assert is_part(name) and state.filled("rows", name).rows == 2_000


# bins split by group

SMALLEST = BinSizes(split_above=16, whole_upto=16)
SPAN = (0, 1)


def deltas(*keys: int, weight: int = 1) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), WEIGHT: np.full(len(keys), weight)})


def parted(state: KernelBaskets, *columns: str) -> Bins:
    return Bins(state, "rows", net_deltas, columns, SMALLEST)


def keys_of(rows: pa.Table | None) -> list[int]:
    return [] if rows is None else sorted(rows.column("k").to_pylist())


@pytest.mark.parametrize("size", [5, 10, 200])
def test_a_bin_has_the_rows_of_each_group(size: int) -> None:
    state = scope()
    for start in range(0, size, 5):
        parted(state, "k").append("a", deltas(*range(start, start + 5)), SPAN)
    parted(state, "k").append("b", deltas(1), SPAN)
    read = parted(state, "k")
    assert list(read) == ["a", "b"] and read.is_split("a") is (size > 16)
    assert keys_of(read.read("a")) == list(range(size)) and keys_of(read.read("b")) == [1]
    if read.is_split("a"):
        some = np.unique(with_hashes(deltas(3, 4, -1), ["k"]).column(HASH).to_numpy())
        before = state.baskets.work.rows
        assert keys_of(read.read_groups("a", lambda: some)) == [3, 4]
        assert state.baskets.work.rows == before + 2
    read.drop("a")
    assert list(read) == ["b"] and state.bins("rows") == ["b"] and read.read("a") is None


def test_bins_without_groups_stay_whole() -> None:
    state = scope()
    parted(state).append("a", deltas(*range(100)), SPAN)
    assert state.bins("rows") == ["a"]


def test_rows_that_others_take_back_are_dropped_once_they_are_the_majority() -> None:
    state = scope()
    for _ in range(10):
        parted(state, "k").append("a", deltas(*range(40)), SPAN)
        parted(state, "k").append("a", deltas(*range(40), weight=-1), SPAN)
    parted(state, "k").append("a", deltas(*range(20)), SPAN)
    assert all(map(is_part, state.bins("rows")))
    filled = [state.filled("rows", name) for name in state.bins("rows")]
    assert sum(one.rows for one in filled) == 20 and sum(one.stored for one in filled) <= 40
