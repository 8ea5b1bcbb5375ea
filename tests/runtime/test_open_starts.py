"""The least start of events that live on is that of a plain list, and few lifetimes of ended events stay."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from streamq.runtime.basket import Baskets, DictStore, TimeBinSizes
from streamq.runtime.open_starts import OpenStarts
from streamq.time import INFINITY
from tests.runtime.test_time_bins import counted, deltas

SLACK = 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_the_least_start_is_that_of_a_plain_list(seed: int) -> None:
    """After each micro-batch of inserts, late ones, some endless, and of retractions of events that live on."""
    rng = np.random.default_rng(seed)
    state = Baskets(DictStore(), TimeBinSizes(most=6, few=2)).scoped("kernel")
    events = Counter[tuple[int, int]]()
    for c in [*range(0, 120, int(rng.integers(1, 5))), INFINITY]:
        starts = rng.integers(max(0, min(c, 120) - 20), min(c, 120) + 8, rng.integers(0, 6))
        ends = starts + rng.integers(1, 10 ** rng.integers(1, 3), len(starts))
        ends = np.where(rng.random(len(starts)) < 0.1, INFINITY, ends)
        fresh = [(int(le), int(re), 1) for le, re in zip(starts, ends, strict=True)]
        fresh += [(*key, -1) for key in events if key[1] >= c and rng.random() < 0.1]
        events.update(counted(deltas(fresh)))
        events = Counter({key: n for key, n in events.items() if n})
        living = [le for le, re in events if re > c and c != INFINITY]
        assert OpenStarts(state, SLACK).advance(deltas(fresh), c) == min(living, default=INFINITY)
    assert state.names() == []


def test_ended_events_are_forgotten_though_an_earlier_one_lives_on() -> None:
    state = Baskets(DictStore()).scoped("kernel")
    for n in range(200):
        fresh = [(0, 10_000, 1)] * (n == 0) + [(n, n + 1, 1)]
        assert OpenStarts(state, SLACK).advance(deltas(fresh), n) == 0
    assert state.size()[0] <= 2 * 2 + SLACK + 1


def test_events_in_order_read_no_others() -> None:
    """A micro-batch of ten new events among thousands that live on."""
    baskets = Baskets(DictStore())
    state = baskets.scoped("kernel")
    OpenStarts(state, SLACK).advance(deltas((n, 20_000 + n, 1) for n in range(10_000)), 0)
    baskets.work.rows = 0
    for at in range(10_000, 10_005):
        OpenStarts(state, SLACK).advance(deltas([(at, 20_000 + at, 1)] * 10), at)
    assert baskets.work.rows == 0
