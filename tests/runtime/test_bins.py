"""Bins of events: few, whatever the first micro-batch was like, and none that could not hold what is in it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streamq.runtime.basket import Baskets, DictStore, KernelBaskets
from streamq.runtime.bins import ENDLESS, MOST, bin_reach, bin_starts, forget, hold
from streamq.runtime.columnar import concat
from streamq.runtime.group_bins import BinSizes
from streamq.runtime.groups import HASH
from streamq.runtime.parts import PartedBins, hashes_in, is_part
from streamq.time import INFINITY, MINUS_INFINITY

SMALL = BinSizes(split_above=64, whole_upto=100)


def scope() -> KernelBaskets:
    return Baskets(DictStore()).scoped("x")


def put(state: KernelBaskets, *lives: tuple[int, int]) -> None:
    le, re = zip(*lives, strict=True)
    hold(
        state, "rows", pa.table({"__le": pa.array(le, pa.int64()), "__re": pa.array(re, pa.int64())}), lambda rows: rows
    )


@pytest.mark.slow
def test_bins_get_wider_where_there_would_be_too_many() -> None:
    state = scope()
    put(state, (0, 1), (10, 11))
    lives = [(at, at + 1) for at in range(20, 5_000, 7)]
    for life in lives:
        put(state, life)
        assert len(state.bins("rows")) <= MOST
    held = state.read_all("rows")
    assert held is not None
    assert sorted(held.column("__le").to_pylist()) == [0, 10, *(at for at, _ in lives)]
    for bin in state.bins("rows"):
        rows = state.read("rows", bin)
        assert rows is not None
        (low, high), (least, greatest) = bin_starts(bin), bin_reach(bin)
        lives_there = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        assert all(low <= le < high and least <= le and re <= greatest for le, re in lives_there)


def test_what_never_ends_has_a_bin_of_its_own() -> None:
    state = scope()
    put(state, (0, INFINITY), (5, 9))
    assert ENDLESS in state.bins("rows") and len(state.bins("rows")) == 2
    assert bin_starts(ENDLESS)[1] == INFINITY


def test_a_lifetime_over_most_of_the_axis_lies_within_its_bin() -> None:
    lives = [(MINUS_INFINITY + 1, INFINITY - 1), (MINUS_INFINITY + 1, 0), (-(2**62), 2**62), (-1, INFINITY - 1)]
    for le, re in lives:
        state = scope()
        put(state, (le, re))
        (bin,) = state.bins("rows")
        (low, high), (least, greatest) = bin_starts(bin), bin_reach(bin)
        assert low <= le < high and least <= le and re <= greatest
        forget(state, "rows", re)
        assert state.bins("rows") == [bin]


def test_a_large_bin_is_split_by_group() -> None:
    """Few rows are read for one group."""
    state, size = scope(), 2_000
    for start in range(0, size, 50):
        le = np.full(50, start // 1_000)
        keys = np.arange(start, start + 50)
        hold(state, "rows", pa.table({"__le": le, "__re": le + 5_000, "k": keys}), lambda rows: rows, ["k"], SMALL)
    names = state.bins("rows")
    assert all(is_part(name) and bin_reach(name)[0] <= 0 and bin_reach(name)[1] >= 5_000 for name in names)
    rows = {name: state.read("rows", name) for name in names}
    every = concat([t for t in rows.values() if t is not None])
    assert sorted(every.column("k").to_pylist()) == list(range(size))
    touched = every.column(HASH).to_numpy()[:1]
    hit = [name for name in names if len(hashes_in(name, touched))]
    assert len(hit) == 1 and rows[hit[0]].num_rows < size / 8
    bins = PartedBins(state, "rows", lambda rows: rows, ["k"], SMALL)
    (bin,) = bins
    before = state.baskets.work.rows
    assert bins.read_groups(bin, touched).column("k").to_pylist() == every.column("k").to_pylist()[:1]
    assert state.baskets.work.rows == before + 1
    assert bins.read_groups(bin, touched[:0]) is None
    assert bins.read(bin).num_rows == size


def test_the_events_of_one_group_stay_in_few_bins() -> None:
    state = scope()
    for _ in range(40):
        table = pa.table({"__le": np.zeros(50, np.int64), "__re": np.full(50, 9), "k": np.ones(50, np.int64)})
        hold(state, "rows", table, lambda rows: rows, ["k"], SMALL)
    (name,) = state.bins("rows")
    assert is_part(name) and state.filled("rows", name).rows == 2_000
