"""Cost goes with change where windows on a grid are corrected, or become due while many may still be corrected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from streamq.runtime.state.baskets import Baskets, BinSizes
from tests.laws.cost_operators import (
    BALANCE,
    BALANCE_ROWS,
    BATCHES,
    COLUMNS,
    FAR,
    HOT,
    NOTED,
    SIZES,
    SMALL,
    TOTAL,
    Work,
)
from tests.programs import compiled, with_sizes

pytestmark = pytest.mark.slow

FEW, MANY = 100, 500
"""The groups with reported windows that are compared; those of both fill several parts of bins."""
SPAN = 12
"""The ticks in which the bulk starts; a watermark beyond it has its windows reported."""

Event = tuple[int, int | None, int, int]


def intervals() -> sq.Stream:
    return sq.intervals(t.table(COLUMNS, []), start="start", end="end", name="a", progress=sq.generate(FAR))


def items(*events: Event) -> sq.Stream:
    """Events that may be taken back; the first two rows are there for that."""
    spare = (sq.insert(-99, 1, k=0, v=0), sq.retract(-99, 1, -99, k=0, v=0))
    inserts = [sq.insert(start, end, k=k, v=v) for start, end, k, v in events]
    return sq.events([*spare, *inserts], name="a", progress=sq.generate(FAR))


Query = Callable[[sq.Stream], sq.Stream]

QUERIES: dict[str, Query] = {
    "hopping": lambda a: a.group_by("k").hopping_window(8, 2).select(n=sq.count(), s=sq.sum("v"), m=sq.max("v")),
    "tumbling": lambda a: a.group_by("k").tumbling_window(4).select(n=sq.count(), m=sq.max("v")),
    "uda": lambda a: a.group_by("k").hopping_window(8, 2).select(x=TOTAL("v")),
    "uda that removes": lambda a: a.to_points().group_by("k").hopping_window(8, 2).select(x=BALANCE("v")),
    "counted": lambda a: a.group_by("k").hopping_window(8, 2).select(s=sq.sum("v"), m=sq.median("v")),
    "taken back": lambda a: a.group_by("k").hopping_window(8, 2).select(n=sq.count(), m=sq.max("v")),
}
TAKEN_BACK = "taken back"


def started(name: str, sizes: BinSizes, **options: Any) -> LocalRun:
    query = QUERIES[name](items() if name == TAKEN_BACK else intervals())
    program = compiled(rewrite(number_sources(query.plan)[0]).plan, OutputForm.CHANGELOG, buckets=1, **options)
    return LocalRun(with_sizes(program, sizes))


def send(live: LocalRun, name: str, *events: Event) -> int:
    """Process events; the number of deltas that they change."""
    table = items(*events).tables["a"].slice(2) if name == TAKEN_BACK else t.table(COLUMNS, list(events))
    return live.batch({"a": table}).num_rows


def work_of_windows(live: LocalRun) -> Work:
    kernels = [kernel for name, kernel in live.readings.of_kernels.items() if name.startswith(("window:", "hopping:"))]
    noted = sum(len(store[Baskets.MANIFEST]) for store in live.stores.values())
    return Work(sum(k.evaluated or 0 for k in kernels), sum(k.bins_read or 0 for k in kernels), noted)


def work_of_corrections(name: str, groups: int, sizes: BinSizes = SMALL, **options: Any) -> Work:
    """The work of windows in micro-batches with late members of HOT of the groups; the windows of all have been reported."""
    live = started(name, sizes, **options)
    send(live, name, *((i, i + 1, k, i) for k in range(groups) for i in range(SPAN)))
    send(live, name, (10 * SPAN, 10 * SPAN + 1, 0, 0))
    before = work_of_windows(live)
    for n in range(BATCHES):
        assert send(live, name, *((n, n + 1, k, 100 + n) for k in range(HOT))) >= 2 * HOT
    after = work_of_windows(live)
    return Work(after.evaluated - before.evaluated, after.bins - before.bins, after.noted)


EVERY_QUERY = pytest.mark.parametrize("name", QUERIES)


def check_groups(name: str, early: bool) -> None:
    few, many = (work_of_corrections(name, groups, early=early) for groups in (FEW, MANY))
    assert many.evaluated <= 1.1 * few.evaluated
    assert many.bins <= 1.5 * few.bins


@pytest.mark.parametrize("early", [False, True])
@EVERY_QUERY
def test_what_other_groups_have_reported_costs_nothing(name: str, early: bool) -> None:
    check_groups(name, early)
    few, many = (work_of_corrections(name, groups, SIZES, early=early) for groups in (FEW, MANY))
    assert many.evaluated <= 1.1 * few.evaluated
    assert many.noted <= few.noted + NOTED


# many windows that may still be corrected

WINDOWS = (80, 800)
"""The ticks in which there are windows that may be corrected, few and many."""


def work_of_due_windows(name: str, ticks: int) -> Work:
    """The work of windows in micro-batches that make some due, and correct the first and the last one of a group."""
    live = started(name, SIZES)
    send(live, name, *((at, at + 1, k, at) for k in range(HOT) for at in range(ticks)))
    send(live, name, (ticks + 10, ticks + 11, 0, 0))
    before = work_of_windows(live)
    for n in range(BATCHES):
        now = ticks + 20 + 8 * n
        assert send(live, name, (0, 1, 0, 100 + n), (ticks, ticks + 1, 0, 100 + n), (now, now + 1, 1, n)) >= 4
    after = work_of_windows(live)
    return Work(after.evaluated - before.evaluated, after.bins - before.bins, after.noted)


def check_due_windows(name: str) -> None:
    few, many = (work_of_due_windows(name, ticks) for ticks in WINDOWS)
    assert many.evaluated <= 1.1 * few.evaluated + 100
    assert many.bins <= few.bins + BATCHES


@EVERY_QUERY
def test_windows_that_are_not_due_nor_corrected_cost_nothing(name: str) -> None:
    check_due_windows(name)


# windows of many members, whose states take what comes and goes

MEMBERS = (500, 20_000)
"""The members of the windows that are compared."""


def read_of_members(members: int, *, back: bool, rows: bool) -> int:
    """The rows that micro-batches read of windows of so many members, to which each adds some, and takes some back.

    ``rows``: the module is an operator, with rows for a window, and not an aggregate.
    """
    source = items() if back else intervals()
    windows = source.to_points().group_by("k").hopping_window(FAR, FAR // 2)
    query = windows.select(BALANCE_ROWS("v")) if rows else windows.select(n=sq.count(), x=BALANCE("v"))
    live = LocalRun(compiled(rewrite(number_sources(query.plan)[0]).plan, OutputForm.CHANGELOG, buckets=1, early=True))

    def send(*events: Event) -> None:
        live.batch({"a": items(*events).tables["a"].slice(2) if back else t.table(COLUMNS, list(events))})

    send(*((i, i + 1, i % HOT, i) for i in range(members)))
    before = work_of_windows(live).evaluated
    for n in range(BATCHES):
        send(*((members + n, members + n + 1, k, n) for k in range(HOT)))
        if back:
            gone = [sq.retract(n * HOT + k, n * HOT + k + 1, n * HOT + k, k=k, v=n * HOT + k) for k in range(HOT)]
            live.batch({"a": sq.events([*gone, sq.insert(0, 1, k=0, v=0)], name="a").tables["a"]})
    return work_of_windows(live).evaluated - before


def check_members(back: bool) -> None:
    for rows in (False, True):
        few, many = (read_of_members(members, back=back, rows=rows) for members in MEMBERS)
        assert many <= 1.1 * few + 100


@pytest.mark.parametrize("back", [False, True], ids=["added", "taken back"])
def test_members_that_a_state_has_are_not_read(back: bool) -> None:
    check_members(back)
