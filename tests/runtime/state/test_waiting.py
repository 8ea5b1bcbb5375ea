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
