"""State in chunks: rewritten as one when there are many, but not over and over when it is large."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import COMPACT_AT, Baskets, DictStore


class Written(DictStore):
    """Counts what is written."""

    writes = 0

    def put(self, key: str, value: bytes) -> None:
        self.writes += 1
        super().put(key, value)


def held(rows: int, appends: int) -> tuple[Written, Baskets]:
    store = Written()
    baskets = Baskets(store)
    for n in range(appends):
        baskets.scoped("k").append("in", "0", pa.table({"v": np.arange(rows) + n}))
    return store, baskets


def test_small_chunks_become_one() -> None:
    store, baskets = held(10, COMPACT_AT - 1)
    scope = baskets.scoped("k")
    assert scope.read("in", "0", lambda t: t) is not None
    assert scope.chunks("in", "0") == COMPACT_AT - 1
    scope.append("in", "0", pa.table({"v": np.arange(10)}))
    found = scope.read("in", "0", lambda t: t)
    assert found is not None and found.num_rows == 10 * COMPACT_AT
    assert scope.chunks("in", "0") == 1 and store.writes == COMPACT_AT + 1


def test_a_large_bin_is_not_rewritten_each_time_it_is_read() -> None:
    store, baskets = held(1_000_000, 4)
    scope = baskets.scoped("k")
    assert scope.chunks("in", "0") > 3 * COMPACT_AT
    before = store.writes
    for _ in range(3):
        scope.append("in", "0", pa.table({"v": np.arange(10)}))
        found = scope.read("in", "0", lambda t: t)
    assert found is not None and found.num_rows == 4_000_030
    assert store.writes == before + 3
