"""Rows wait for the progress that lets them go; and if another release than before lets them go, by that one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamq.runtime.kernel import Clock
from streamq.runtime.kernels.left_join import WaitingRows
from streamq.runtime.state.baskets import Baskets, DictStore, KernelBaskets
from streamq.runtime.time.progress_rule import Release
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
