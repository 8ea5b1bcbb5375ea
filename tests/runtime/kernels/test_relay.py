"""A relay hands on what it gets, weights and all, and keeps nothing."""

from __future__ import annotations

import pyarrow as pa

from streamq.runtime.basket import Baskets, DictStore
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Arrival, Clock
from streamq.runtime.kernels.relay import RelayKernel


def test_deltas_pass_as_they_are() -> None:
    deltas = pa.table({LE: [1, 1], RE: [9, 5], WEIGHT: [-1, 1], "v": [7, 7]})
    store: dict[str, bytes] = {}
    state = Baskets(DictStore(store)).scoped("relay")
    out = RelayKernel().advance(state, [Arrival(0, deltas), Arrival(0, deltas.slice(0, 0))], Clock(0, 1, 0, 1))
    assert out.table is not None
    assert out.table.equals(deltas)
    assert (out.c, store) == (1, {})


def test_nothing_gives_nothing() -> None:
    out = RelayKernel().advance(Baskets(DictStore({})).scoped("relay"), [], Clock(0, 4, 0, 4))
    assert (out.table, out.c) == (None, 4)
