"""Bins split by group: they hold what they were given, and few rows are decoded for a group."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streamq.runtime.basket import Baskets, DictStore, KernelBaskets
from streamq.runtime.columnar import net_deltas
from streamq.runtime.event import WEIGHT
from streamq.runtime.group_bins import BinSizes
from streamq.runtime.groups import HASH, with_hashes
from streamq.runtime.parts import PartedBins, is_part

SMALL = BinSizes(split_above=16, whole_upto=16)


def deltas(*keys: int, weight: int = 1) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), WEIGHT: np.full(len(keys), weight)})


def bins(state: KernelBaskets, *columns: str) -> PartedBins:
    return PartedBins(state, "rows", net_deltas, columns, SMALL)


def keys_of(rows: pa.Table | None) -> list[int]:
    return [] if rows is None else sorted(rows.column("k").to_pylist())


@pytest.mark.parametrize("size", [5, 10, 200])
def test_a_bin_has_the_rows_of_each_group(size: int) -> None:
    state = Baskets(DictStore()).scoped("x")
    for start in range(0, size, 5):
        bins(state, "k").append("a", deltas(*range(start, start + 5)))
    bins(state, "k").append("b", deltas(1))
    held = bins(state, "k")
    assert list(held) == ["a", "b"] and held.is_split("a") is (size > 16)
    assert keys_of(held.read("a")) == list(range(size)) and keys_of(held.read("b")) == [1]
    if held.is_split("a"):
        some = np.unique(with_hashes(deltas(3, 4, -1), ["k"]).column(HASH).to_numpy())
        before = state.baskets.work.rows
        assert keys_of(held.read_groups("a", some)) == [3, 4]
        assert state.baskets.work.rows == before + 2
    held.drop("a")
    assert list(held) == ["b"] and state.bins("rows") == ["b"] and held.read("a") is None


def test_bins_without_groups_stay_whole() -> None:
    state = Baskets(DictStore()).scoped("x")
    bins(state).append("a", deltas(*range(100)))
    assert state.bins("rows") == ["a"]


def test_rows_that_others_take_back_are_dropped_once_they_are_the_majority() -> None:
    state = Baskets(DictStore()).scoped("x")
    for _ in range(10):
        bins(state, "k").append("a", deltas(*range(40)))
        bins(state, "k").append("a", deltas(*range(40), weight=-1))
    bins(state, "k").append("a", deltas(*range(20)))
    assert all(map(is_part, state.bins("rows")))
    filled = [state.filled("rows", name) for name in state.bins("rows")]
    assert sum(one.rows for one in filled) == 20 and sum(one.stored for one in filled) <= 40
