"""Rows wait for the progress that lets them go; and if another release than before lets them go, by that one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamq.runtime.kernel import Clock
from streamq.runtime.state.baskets import Baskets, DictStore, KernelBaskets, TimeBinSizes
from streamq.runtime.state.waiting import OpenStarts, WaitingRows
from streamq.runtime.time.release import Release
from streamq.time import INFINITY
from tests.runtime.state.test_time_bins import counted, deltas

ROWS = [(1, 4, 1), (3, 9, 1), (6, INFINITY, 1)]


def going(state: KernelBaskets, release: Release, rows: Any, c: int, m: int) -> Any:
    """The rows that go, and the next progress that lets one go."""
    waiting = WaitingRows(state, release)
    table: pa.Table | None = deltas(rows) if rows else None
    return dict(counted(waiting.advance(table, Clock(c, c, m, m)))), waiting.due


@pytest.fixture
def state() -> KernelBaskets:
    return Baskets(DictStore()).scoped("kernel")


def test_rows_go_once_the_watermark_is_past_their_start(state: KernelBaskets) -> None:
    assert going(state, Release.PAST_START, ROWS, 0, 3) == ({(1, 4): 1}, 4)
    assert going(state, Release.PAST_START, [(3, 9, -1), (3, 8, 1)], 0, 3) == ({}, 4)
    assert going(state, Release.PAST_START, [], 0, 4) == ({(3, 8): 1}, 7)
    assert going(state, Release.PAST_START, [], INFINITY, INFINITY) == ({(6, INFINITY): 1}, None)


def test_final_rows_go_once_they_are_settled(state: KernelBaskets) -> None:
    assert going(state, Release.PAST_END, ROWS, 5, 5) == ({(1, 4): 1}, 10)
    assert going(state, Release.PAST_END, [(3, 9, -1)], 9, 9) == ({}, INFINITY)
    assert going(state, Release.PAST_END, [], INFINITY, INFINITY) == ({(6, INFINITY): 1}, None)


def test_no_row_waits_that_goes_at_once(state: KernelBaskets) -> None:
    assert going(state, Release.AT_ONCE, ROWS, 0, 0) == ({(le, re): 1 for le, re, _ in ROWS}, None)


def changed(state: KernelBaskets, release: Release, c: int, m: int) -> Any:
    """The deltas to send because rows go by another release, and what goes then."""
    sent = WaitingRows(state, release).change_release(deltas(ROWS), Clock(c, c, m, m))
    return {} if sent is None else dict(counted(sent)), *going(state, release, [], c, m)


@pytest.mark.parametrize("before", [Release.PAST_START, Release.PAST_END])
def test_rows_that_wait_go_if_rows_go_at_once(state: KernelBaskets, before: Release) -> None:
    assert going(state, before, ROWS, 0, 0)[0] == {}
    assert changed(state, Release.AT_ONCE, 0, 0) == ({(le, re): 1 for le, re, _ in ROWS}, {}, None)


def test_a_run_that_no_longer_waits_for_final_rows_waits_for_starts(state: KernelBaskets) -> None:
    assert going(state, Release.PAST_END, ROWS, 2, 4)[0] == {}
    assert changed(state, Release.PAST_START, 2, 4) == ({}, {(1, 4): 1, (3, 9): 1}, 7)


def test_rows_that_were_sent_at_once_are_taken_back_until_they_start(state: KernelBaskets) -> None:
    assert len(going(state, Release.AT_ONCE, ROWS, 2, 4)[0]) == 3
    assert changed(state, Release.PAST_START, 2, 4) == ({(6, INFINITY): -1}, {}, 7)


def test_rows_that_were_sent_before_they_were_final_go_again(state: KernelBaskets) -> None:
    assert len(going(state, Release.PAST_START, ROWS, 2, 4)[0]) == 2
    assert changed(state, Release.PAST_END, 5, 5) == ({}, {(1, 4): 1}, 10)


# the least start of events that live on

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
