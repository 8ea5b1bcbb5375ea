"""Bins: any sequence of micro-batches finds the rows that a plain list has; bins are few, rewritten seldom, split if large."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamq.runtime.arrow.columnar import ints
from streamq.runtime.deltas import LE, RE, WEIGHT, net_deltas
from streamq.runtime.groups import HASH, with_hashes
from streamq.runtime.state.baskets import CHUNK_ROWS, COMPACT_AT, UNREAD, Baskets, BinSizes, DictStore, KernelBaskets
from streamq.runtime.state.bins import ENDLESS, MOST, Bins, is_part
from streamq.time import INFINITY, MINUS_INFINITY

SMALL = BinSizes(split_above=16, whole_upto=30)


class CountingStore(DictStore):
    """Counts what is written."""

    writes = 0

    def put(self, key: str, value: bytes) -> None:
        self.writes += 1
        super().put(key, value)


def scope() -> KernelBaskets:
    return Baskets(CountingStore()).scoped("x")


def reopened(state: KernelBaskets) -> KernelBaskets:
    """The state as the next micro-batch reads it."""
    state.baskets.flush()
    return Baskets(state.baskets.store).scoped("x")


def lives(*rows: tuple[int, int, int], weight: int = 1) -> pa.Table:
    """Events of a start, an end and a group."""
    le, re, k = np.array(rows, np.int64).reshape(-1, 3).T
    return pa.table({LE: le, RE: re, "k": k, WEIGHT: np.full(len(le), weight)})


def bins(state: KernelBaskets, *columns: str) -> Bins:
    return Bins(state, "rows", net_deltas, columns, SMALL)


def counted(table: pa.Table | None) -> Counter[tuple[int, int, int]]:
    """How often each event is there."""
    net = () if table is None else net_deltas(table).to_pylist()
    return Counter({(row[LE], row[RE], row["k"]): row[WEIGHT] for row in net})


@pytest.mark.parametrize("columns", [(), ("k",)])
@pytest.mark.parametrize("seed", range(3))
def test_bins_have_the_events_of_a_plain_list(seed: int, columns: tuple[str, ...]) -> None:
    """Events of few groups come, some endless, and are taken back; those that ended are forgotten with their bins."""
    rng = np.random.default_rng(seed)
    state, events = scope(), Counter[tuple[int, int, int]]()
    for c in range(0, 3_000, 100):
        n = int(rng.integers(1, 60))
        starts = c + rng.integers(0, 200, n)
        ends = np.where(rng.random(n) < 0.1, INFINITY, starts + rng.integers(1, 10 ** rng.integers(1, 4, n)))
        new = [*zip(starts.tolist(), ends.tolist(), rng.integers(0, 40, n).tolist(), strict=True)]
        gone = [event for event in events if rng.random() < 0.2]
        held = bins(state, *columns)
        for rows, weight in ((new, 1), (gone, -1)):
            held.hold(lives(*rows, weight=weight))
            events.update({event: weight * n for event, n in Counter(rows).items()})
        held.forget(c)
        events = Counter({event: n for event, n in events.items() if n})
        state = reopened(state)
        held = bins(state, *columns)
        assert len([bin for bin in held if bin != ENDLESS]) <= 2 * MOST
        some = np.unique(with_hashes(lives((0, 1, 3), (0, 1, 4)), ["k"]).column(HASH).to_numpy())
        every = Counter[tuple[int, int, int]]()
        for bin in held:
            rows, few = counted(held.read(bin)), counted(held.read_groups(bin, lambda some=some: some))
            every += rows
            first, last = held.span(bin)
            assert last >= c and all(first <= le and re <= last for le, re, _ in rows)
            assert few == (rows if not held.is_split(bin) else {e: n for e, n in rows.items() if e[2] in (3, 4)})
            assert columns or not held.is_split(bin)
        living = {event: n for event, n in events.items() if event[1] >= c}
        assert {event: n for event, n in every.items() if event[1] >= c} == living
        events = every
    bins(state, *columns).forget(INFINITY)
    assert state.names() == []


@pytest.mark.slow
def test_bins_get_wider_where_there_would_be_too_many() -> None:
    state = scope()
    bins(state).hold(lives((0, 1, 0), (10, 11, 0)))
    for at in range(20, 5_000, 7):
        bins(state).hold(lives((at, at + 1, 0)))
        assert len(list(state.basket("rows"))) <= MOST


def test_a_lifetime_over_most_of_the_axis_lies_within_its_bin() -> None:
    ends = [(MINUS_INFINITY + 1, INFINITY - 1), (MINUS_INFINITY + 1, 0), (-(2**62), 2**62), (-1, INFINITY - 1)]
    for le, re in ends:
        state = scope()
        bins(state).hold(lives((le, re, 0)))
        (bin,) = list(state.basket("rows"))
        assert bins(state).span(bin) == (le, re)
        bins(state).forget(re)
        assert list(state.basket("rows")) == [bin]


def test_of_a_large_bin_only_the_rows_of_some_groups_are_decoded() -> None:
    """Events of one group stay together, however many they are."""
    state, size = scope(), 2_000
    for start in range(0, size, 50):
        bins(state, "k").hold(lives(*((start // 1_000, 5_001, k) for k in range(start, start + 50))))
    (bin,) = held = bins(state, "k")
    names = list(state.basket("rows"))
    assert all(map(is_part, names)) and len(names) > 8
    (wanted,) = some = with_hashes(lives((0, 1, 7)), ["k"]).column(HASH).to_numpy()
    held.read(bin)
    held, before = bins(state, "k"), state.baskets.work.rows
    assert ints(held.read_groups(bin, lambda: some), "k").tolist() == [7]
    assert state.baskets.work.rows == before + 1 and held.read_groups(bin, lambda: some[:0]) is None
    alone = scope()
    for _ in range(40):
        bins(alone, "k").hold(lives(*[(0, 9, 1)] * 50))
    assert len(list(alone.basket("rows"))) == 1 and wanted


# when a chunk is appended, and when a bin is rewritten


def filled(rows: int, times: int) -> KernelBaskets:
    state = scope()
    for n in range(times):
        add(state, np.arange(rows) + n)
    return state


def add(state: KernelBaskets, values: Any, weight: int = 1) -> None:
    rows = pa.table({"v": values, WEIGHT: np.full(len(values), weight)})
    state.basket("in").add("0", rows, net_deltas)


def written(state: KernelBaskets) -> int:
    store = state.baskets.store
    assert isinstance(store, CountingStore)
    return store.writes


def test_small_chunks_become_one() -> None:
    state = filled(10, UNREAD * COMPACT_AT)
    assert state.basket("in").known("0").chunks == written(state) == UNREAD * COMPACT_AT
    add(state, np.arange(10))
    rows = state.basket("in").read("0")
    assert rows is not None and rows.num_rows == 9 + UNREAD * COMPACT_AT
    assert state.basket("in").known("0").chunks == 1 and written(state) == UNREAD * COMPACT_AT + 1


def test_a_bin_of_many_rows_is_seldom_rewritten() -> None:
    state = filled(CHUNK_ROWS, COMPACT_AT + 5)
    assert state.basket("in").read("0", net_deltas) is not None
    assert state.basket("in").known("0").chunks == written(state) == COMPACT_AT + 5


def test_a_bin_of_large_chunks_is_not_rewritten_for_each_row() -> None:
    state = filled(1_000_000, 4)
    assert state.basket("in").known("0").chunks > 3 * COMPACT_AT
    before = written(state)
    for _ in range(3):
        add(state, np.arange(10))
    assert written(state) == before + 3


def test_a_bin_is_rewritten_once_most_of_its_rows_are_dead() -> None:
    state = filled(100, 1)
    add(state, np.arange(30), -1)
    assert state.basket("in").known("0").chunks == 2 and written(state) == 2
    add(state, np.arange(30, 60), -1)
    assert state.basket("in").known("0").chunks == 1 and state.basket("in").known("0").rows == 40


def test_a_bin_of_many_chunks_is_rewritten_once_when_it_is_read() -> None:
    state = filled(10, COMPACT_AT)
    for _ in range(2):
        rows = state.basket("in").read("0", net_deltas)
        assert rows is not None and rows.num_rows == 9 + COMPACT_AT
    assert state.basket("in").known("0").chunks == 1 and written(state) == COMPACT_AT + 1
