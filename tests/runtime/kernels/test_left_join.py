"""The kernel of left, semi and anti joins: the events that it reads and keeps, and the answers by any cut into micro-batches."""

from __future__ import annotations

from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.plan.node import number_sources
from streamq.runtime.group_bins import BinSizes
from tests.programs import compiled, with_sizes

COLUMNS = "start bigint, end bigint, k bigint, v bigint"
HELD = 2_000
FAR = 100_000


def source(name: str) -> sq.Stream:
    return sq.intervals(t.table(COLUMNS, []), start="start", end="end", name=name, progress=sq.explicit())


def run(how: str, output: str = OutputForm.CHANGELOG, slack: int = BinSizes().slack) -> LocalRun:
    joined = source("a").join(source("b"), on="k", how=how, **({"suffixes": ("", "_b")} if how == "left" else {}))
    program = compiled(number_sources(joined.plan)[0], output, buckets=1)
    return LocalRun(with_sizes(program, BinSizes(whole_upto=0, slack=slack)))


def evaluated(live: LocalRun, left: list[Any], right: list[Any], c: int) -> int:
    """The events that the join looks at in a micro-batch."""
    before = sum(k.evaluated or 0 for k in live.readings.of_kernels.values())
    live.batch({"a": t.table(COLUMNS, left), "b": t.table(COLUMNS, right)}, [(None, c)])
    return sum(k.evaluated or 0 for k in live.readings.of_kernels.values()) - before


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
@pytest.mark.parametrize("output", [OutputForm.CHANGELOG, OutputForm.FINAL])
def test_new_left_events_look_at_no_other_left_event(how: str, output: str) -> None:
    """All are of one group, and live at once."""
    live = run(how, output)
    evaluated(live, [(n, FAR + n, 1, n) for n in range(HELD)], [(0, FAR, 1, 0)], 0)
    assert evaluated(live, [(HELD, FAR, 1, n) for n in range(10)], [], HELD) <= 10 + 2


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
def test_a_new_right_event_looks_at_the_left_ones_of_its_group(how: str) -> None:
    live = run(how)
    evaluated(live, [(n, FAR + n, n % 100, n) for n in range(HELD)], [], 0)
    assert evaluated(live, [], [(HELD, FAR, 7, 0)], HELD) <= 3 * HELD // 100 + 2


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
def test_a_row_that_falls_due_looks_at_no_event(how: str) -> None:
    live = run(how, OutputForm.FINAL)
    evaluated(live, [(n, HELD + n, 1, n) for n in range(HELD)], [(HELD, HELD + 10, 1, 0)], 0)
    assert evaluated(live, [], [], HELD + 5) == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["left", "semi", "anti"])
def test_what_is_no_longer_needed_is_forgotten(how: str) -> None:
    """A right event stays as long as a left one of its group that it overlaps."""
    slack, new_rows = 32, 20
    live = run(how, OutputForm.FINAL, slack)
    evaluated(live, [(0, FAR, 0, 0)], [(0, 5, 0, 0)], 0)
    for n in range(0, 60 * new_rows, new_rows):
        new = [(n + i, n + i + 5, 1 + i % 3, i) for i in range(new_rows)]
        evaluated(live, new, new, n)
    rows = sum(kernel.state_rows for kernel in live.readings.of_kernels.values())
    # both sides, the lifetimes of the left ones, and rows that wait
    assert rows <= 8 * slack
    evaluated(live, [], [], FAR + 1)
    assert sum(kernel.state_rows for kernel in live.readings.of_kernels.values()) <= 3 * slack


def test_a_moved_end_of_a_long_left_event_changes_only_what_lies_there() -> None:
    a = sq.physical(t.table("kind string, start bigint, end bigint, new_end bigint, k bigint", []), name="a")
    joined = a.left_anti_join(source("b").select("k"), on="k")
    live = LocalRun(compiled(number_sources(joined.plan)[0], OutputForm.CHANGELOG, buckets=1))
    kinds = "kind string, start bigint, end bigint, new_end bigint, k bigint"
    live.batch(
        {"a": t.table(kinds, [("insert", 0, 100, None, 1)]), "b": t.table(COLUMNS, [(10, 20, 1, 0)])}, [(None, 30)]
    )
    deltas = live.batch({"a": t.table(kinds, [("retract", 0, 100, 50, 1)])}, [(None, 60)])
    rows = sorted((r["__le"], r["__re"], r["__w"]) for r in deltas.to_pylist())
    assert rows == [(20, 50, 1), (20, 100, -1)]


def test_a_settled_right_event_stays_while_a_left_one_that_it_overlaps_may_change() -> None:
    live = LocalRun(compiled(number_sources(source("a").left_anti_join(source("b"), on="k").plan)[0], buckets=1))
    evaluated(live, [(0, 100, 1, 0)], [(10, 20, 1, 0)], 0)
    evaluated(live, [(30, 31, 1, 0)], [], 30)
    deltas = live.batch({"a": t.table(COLUMNS, []), "b": t.table(COLUMNS, [(40, 50, 1, 0)])}, [(None, 110)])
    rows = sorted((r["__le"], r["__re"]) for r in deltas.to_pylist() if r["v"] == 0)
    assert rows == [(20, 40), (30, 31), (50, 100)], "the part before 10 has gone"
