"""The kernels whose rows are parts of left events look at new left events, and at no event where a row falls due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.plan.node import number_sources
from streamq.runtime.state.baskets import BinSizes
from streamq.stream import Stream
from tests.each import each
from tests.programs import compiled, with_sizes

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
