"""The timing wheel: few slots for however many instants, and every delta comes back before its instant, once."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamq.runtime.basket import Baskets, DictStore, KernelBaskets
from streamq.runtime.columnar import concat, ints, net_deltas
from streamq.runtime.event import RE, WEIGHT
from streamq.runtime.timing_wheel import ASLEEP, TimingWheel, slots
from streamq.time import INFINITY, MINUS_INFINITY

SOAK = bool(os.environ.get("STREAMQ_SOAK"))


def kernel_state() -> KernelBaskets:
    return Baskets(DictStore()).scoped("kernel")


instants = st.integers(MINUS_INFINITY + 1, INFINITY - 1)


@given(instants, st.lists(instants, min_size=1), st.integers(-3, 3))
def test_a_slot_starts_after_now_and_not_after_its_instants(now: int, at: list[int], parts: int) -> None:
    later = np.array([max(now + 1, min(INFINITY - 1, t)) for t in at])
    slot = slots(later, now, parts)
    assert (slot > now).all() and (slot <= later).all()


def test_slots_are_few_and_the_narrower_the_nearer() -> None:
    at = np.arange(1, 1_000_000)
    slot = slots(at, 0, 2)
    starts, sizes = np.unique(slot, return_counts=True)
    assert len(starts) < 100
    assert (sizes <= np.maximum(1, starts // 3)).all()


def deltas(rows: list[tuple[int, int]]) -> pa.Table:
    at, weight = np.array(rows, np.int64).reshape(-1, 2).T
    return pa.table({RE: at, WEIGHT: weight})


@pytest.mark.parametrize("seed", range(20 if SOAK else 1))
def test_what_goes_in_comes_out_when_its_slot_is_due(seed: int) -> None:
    random, state, now = np.random.default_rng(seed), kernel_state(), 0
    put, back = [deltas([])], [deltas([])]
    for _ in range(60):
        rows = deltas([(int(now + 1 + random.integers(0, 5_000)), int(random.integers(1, 3))) for _ in range(20)])
        TimingWheel(state).add(rows, slots(ints(rows, RE), now, 2))
        put.append(rows)
        now += int(random.integers(0, 200))
        if (due := TimingWheel(state).take(now)) is not None:
            back.append(due)
        left = [int(name) for name in state.bins(ASLEEP)]
        assert all(start >= now for start in left)
        missing = net_deltas(concat([*put, *(t.set_column(1, WEIGHT, pa.array(-ints(t, WEIGHT))) for t in back)]))
        assert (ints(missing, RE) >= now).all() and (ints(missing, WEIGHT) > 0).all()
    rest = TimingWheel(state).take(INFINITY)
    assert rest is not None and not state.names()
    every, returned = (sorted(net_deltas(concat(tables)).to_pylist(), key=repr) for tables in (put, [*back, rest]))
    assert every == returned


def test_a_slot_with_many_chunks_is_rewritten() -> None:
    state = kernel_state()
    for _ in range(300):
        TimingWheel(state).add(deltas([(90, 1), (91, 1), (91, -1)]), np.array([64, 64, 64]))
    assert state.chunks(ASLEEP, "64") < 20
    assert state.filled(ASLEEP, "64").rows == 300
    due = TimingWheel(state).take(65)
    assert due is not None and due.to_pylist() == [{RE: 90, WEIGHT: 300}]


def test_nothing_is_due_in_an_empty_wheel() -> None:
    assert TimingWheel(kernel_state()).take(INFINITY) is None
