"""State in chunks: a bin is rewritten as one when it has many, but not over and over when it is large."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import net_deltas
from streamq.runtime.event import WEIGHT
from streamq.runtime.state.baskets import CHUNK_ROWS, COMPACT_AT, UNREAD, Baskets, DictStore, KernelBaskets


class CountingStore(DictStore):
    """Counts what is written."""

    writes = 0

    def put(self, key: str, value: bytes) -> None:
        self.writes += 1
        super().put(key, value)


def held(rows: int, times: int) -> tuple[CountingStore, KernelBaskets]:
    store = CountingStore()
    scope = Baskets(store).scoped("k")
    for n in range(times):
        add(scope, np.arange(rows) + n)
    return store, scope


def add(scope: KernelBaskets, values: np.ndarray, weight: int = 1) -> None:
    rows = pa.table({"v": values, WEIGHT: np.full(len(values), weight)})
    scope.add("in", "0", rows, net_deltas)


def test_small_chunks_become_one() -> None:
    store, scope = held(10, UNREAD * COMPACT_AT)
    assert scope.filled("in", "0").chunks == store.writes == UNREAD * COMPACT_AT
    add(scope, np.arange(10))
    rows = scope.read("in", "0")
    assert rows is not None and rows.num_rows == 9 + UNREAD * COMPACT_AT
    assert scope.filled("in", "0").chunks == 1 and store.writes == UNREAD * COMPACT_AT + 1


def test_a_bin_of_many_rows_is_seldom_rewritten() -> None:
    store, scope = held(CHUNK_ROWS, COMPACT_AT + 5)
    assert scope.read("in", "0", net_deltas) is not None
    assert scope.filled("in", "0").chunks == store.writes == COMPACT_AT + 5


def test_a_bin_of_large_chunks_is_not_rewritten_for_each_row() -> None:
    store, scope = held(1_000_000, 4)
    assert scope.filled("in", "0").chunks > 3 * COMPACT_AT
    before = store.writes
    for _ in range(3):
        add(scope, np.arange(10))
    assert store.writes == before + 3


def test_a_bin_is_rewritten_once_most_of_its_rows_are_dead() -> None:
    store, scope = held(100, 1)
    add(scope, np.arange(30), -1)
    assert scope.filled("in", "0").chunks == 2 and store.writes == 2
    add(scope, np.arange(30, 60), -1)
    assert scope.filled("in", "0").chunks == 1 and scope.filled("in", "0").rows == 40


def test_a_bin_of_many_chunks_is_rewritten_once_when_it_is_read() -> None:
    store, scope = held(10, COMPACT_AT)
    for _ in range(2):
        rows = scope.read("in", "0", net_deltas)
        assert rows is not None and rows.num_rows == 9 + COMPACT_AT
    assert scope.filled("in", "0").chunks == 1 and store.writes == COMPACT_AT + 1
