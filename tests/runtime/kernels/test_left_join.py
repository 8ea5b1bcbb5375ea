"""The kernels whose rows are parts of left events: the events that they look at and keep, and the parts that they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.plan.node import number_sources
from streamq.runtime.kernel import Clock
from streamq.runtime.kernels.joins import WaitingRows
from streamq.runtime.state.baskets import BinSizes, KernelBaskets
from streamq.runtime.time.progress_rule import Release
from streamq.stream import Stream
from streamq.time import INFINITY
from tests.each import each
from tests.programs import compiled, with_sizes
from tests.runtime.state.test_time_bins import counted, deltas, scope

COLUMNS = "start bigint, end bigint, k bigint, v bigint"
HELD = 2_000
FAR = 100_000

QUERIES: dict[str, Callable[[Stream, Stream], Stream]] = {
    "left": lambda a, b: a.join(b, on="k", how="left", suffixes=("", "_b")),
    "semi": lambda a, b: a.join(b, on="k", how="semi"),
    "anti": lambda a, b: a.join(b, on="k", how="anti"),
    "clip": lambda a, b: a.clip(b, on="k"),
}


def source(name: str) -> Stream:
    return sq.intervals(t.table(COLUMNS, []), start="start", end="end", name=name, progress=sq.explicit())


def run(stream: Stream, output: str = OutputForm.CHANGELOG, *, early: bool = False, **sizes: int) -> LocalRun:
    """A run with bins whose groups are told apart."""
    program = compiled(number_sources(stream.plan)[0], output, buckets=1, early=early)
    return LocalRun(with_sizes(program, BinSizes(whole_upto=0, **sizes)))


def evaluated(live: LocalRun, left: list[Any], right: list[Any], c: int) -> int:
    """The events that the kernel looks at in a micro-batch."""
    before = sum(k.evaluated or 0 for k in live.readings.of_kernels.values())
    live.batch({"a": t.table(COLUMNS, left), "b": t.table(COLUMNS, right)}, [(None, c)])
    return sum(k.evaluated or 0 for k in live.readings.of_kernels.values()) - before


def state_rows(live: LocalRun) -> int:
    return sum(kernel.state_rows for kernel in live.readings.of_kernels.values())


@each(QUERIES, [OutputForm.CHANGELOG, OutputForm.FINAL])
def test_new_left_events_look_at_no_other_left_event(name: str, output: str) -> None:
    """All are of one group, and live at once."""
    live = run(QUERIES[name](source("a"), source("b")), output)
    evaluated(live, [(n, FAR + n, 1, n) for n in range(HELD)], [(0, FAR, 1, 0)], 0)
    assert evaluated(live, [(HELD, FAR, 1, n) for n in range(10)], [], HELD) <= 10 + 2


@each(QUERIES)
def test_a_new_right_event_looks_at_the_left_ones_of_its_group(name: str) -> None:
    live = run(QUERIES[name](source("a"), source("b")))
    evaluated(live, [(n, FAR + n, n % 100, n) for n in range(HELD)], [], 0)
    assert evaluated(live, [], [(HELD, FAR, 7, 0)], HELD) <= 3 * HELD // 100 + 2


@each(QUERIES)
def test_a_row_that_falls_due_looks_at_no_event(name: str) -> None:
    live = run(QUERIES[name](source("a"), source("b")), OutputForm.FINAL)
    evaluated(live, [(n, HELD + n, n % 100, n) for n in range(HELD)], [(HELD, HELD + 10, 1, 0)], 0)
    assert evaluated(live, [], [], HELD + 5) == 0


def test_a_moved_end_of_a_long_left_event_changes_only_what_lies_there() -> None:
    kinds = "kind string, start bigint, end bigint, new_end bigint, k bigint"
    live = run(sq.physical(t.table(kinds, []), name="a").left_anti_join(source("b").select("k"), on="k"))
    live.batch(
        {"a": t.table(kinds, [("insert", 0, 100, None, 1)]), "b": t.table(COLUMNS, [(10, 20, 1, 0)])}, [(None, 30)]
    )
    deltas = live.batch({"a": t.table(kinds, [("retract", 0, 100, 50, 1)])}, [(None, 60)])
    rows = sorted((r["__le"], r["__re"], r["__w"]) for r in deltas.to_pylist())
    assert rows == [(20, 50, 1), (20, 100, -1)]


def test_a_settled_right_event_stays_while_a_left_one_that_it_overlaps_may_change() -> None:
    live = run(source("a").left_anti_join(source("b"), on="k"), OutputForm.FINAL)
    evaluated(live, [(0, 100, 1, 0)], [(10, 20, 1, 0)], 0)
    evaluated(live, [(30, 31, 1, 0)], [], 30)
    deltas = live.batch({"a": t.table(COLUMNS, []), "b": t.table(COLUMNS, [(40, 50, 1, 0)])}, [(None, 110)])
    rows = sorted((r["__le"], r["__re"]) for r in deltas.to_pylist() if r["v"] == 0)
    assert rows == [(20, 40), (30, 31), (50, 100)], "the part before 10 has gone"


def test_a_new_start_looks_at_the_events_of_its_group_that_it_clips() -> None:
    live = run(QUERIES["clip"](source("a"), source("b")))
    evaluated(live, [(n, None, n % 100, n) for n in range(HELD)], [], 0)
    assert evaluated(live, [], [(HELD, FAR, 7, 0)], HELD) <= HELD // 100 + 2
    evaluated(live, [], [], HELD + 1)
    assert evaluated(live, [], [(HELD + 2, FAR, 7, 0)], HELD + 2) <= 3, "they are clipped for good"


@pytest.mark.slow
def test_starts_before_every_open_event_are_no_longer_looked_at() -> None:
    """They are of a group that is touched again and again, in a bin where another has much that is open."""
    live = run(QUERIES["clip"](source("a"), source("b")))
    evaluated(live, [(0, None, 0, n) for n in range(HELD)], [], 0)
    for n in range(1, 80):
        assert evaluated(live, [(n, None, 1, n)], [(n, n + 1, 1, n)], n) <= 8


@pytest.mark.slow
@pytest.mark.parametrize("end", [None, FAR])
def test_what_has_been_clipped_is_forgotten_though_it_would_live_on(end: int | None) -> None:
    slack, new_rows = 32, 20
    live = run(QUERIES["clip"](source("a"), source("b")), OutputForm.FINAL, slack=slack)
    evaluated(live, [(0, end, k % 500, k) for k in range(5 * HELD)], [], 0)
    for n in range(0, 30 * new_rows, new_rows):
        new = [(n + i, end, n + i, i) for i in range(new_rows)]
        evaluated(live, new, [(n + i + 1, n + i + 2, n + i, i) for i in range(new_rows)], n)
    # those without an earlier start of their group, which wait, too
    assert state_rows(live) <= 6 * slack
    live.finish()
    assert not state_rows(live)


# rows wait for the progress that lets them go; and if another release than before lets them go, by that one

ROWS = [(1, 4, 1), (3, 9, 1), (6, INFINITY, 1)]


def going(state: KernelBaskets, release: Release, rows: Any, c: int, m: int) -> Any:
    """The rows that go, and the next progress that lets one go."""
    waiting = WaitingRows(state, release)
    table: pa.Table | None = deltas(rows) if rows else None
    return dict(counted(waiting.advance(table, Clock(c, c, m, m)))), waiting.due


def test_rows_go_once_the_watermark_is_past_their_start() -> None:
    state = scope()
    assert going(state, Release.PAST_START, ROWS, 0, 3) == ({(1, 4): 1}, 4)
    assert going(state, Release.PAST_START, [(3, 9, -1), (3, 8, 1)], 0, 3) == ({}, 4)
    assert going(state, Release.PAST_START, [], 0, 4) == ({(3, 8): 1}, 7)
    assert going(state, Release.PAST_START, [], INFINITY, INFINITY) == ({(6, INFINITY): 1}, None)


def test_final_rows_go_once_they_are_settled() -> None:
    state = scope()
    assert going(state, Release.PAST_END, ROWS, 5, 5) == ({(1, 4): 1}, 10)
    assert going(state, Release.PAST_END, [(3, 9, -1)], 9, 9) == ({}, INFINITY)
    assert going(state, Release.PAST_END, [], INFINITY, INFINITY) == ({(6, INFINITY): 1}, None)


def test_no_row_waits_that_goes_at_once() -> None:
    state = scope()
    assert going(state, Release.AT_ONCE, ROWS, 0, 0) == ({(le, re): 1 for le, re, _ in ROWS}, None)
