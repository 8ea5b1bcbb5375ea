"""Rows windows keep a row of state for each step of settled events, or, of all rows, for each step and group of members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from streamq.runtime.kernels.condensing import CondensingKernel
from streamq.runtime.kernels.windows_of_sizes import NumberedWindowsKernel
from tests.laws.cost_operators import TOTAL
from tests.programs import compiled
from tests.runtime.kernels.test_condensing import reading

COLUMNS = "at bigint, k bigint, v bigint"
SOURCE = sq.points(t.table(COLUMNS, []), "at", name="s", progress=sq.explicit())


def started(query: sq.Stream, output: str = OutputForm.CHANGELOG, **options: Any) -> LocalRun:
    plan = rewrite(number_sources(query.plan)[0]).plan
    return LocalRun(compiled(plan, output, **{"buckets": 1, **options}))


def trickle(run: LocalRun, micro_batches: int, new: int, at_once: int = 1) -> list[tuple[int, int]]:
    """The rows of state after each micro-batch of a number of events, ``at_once`` each tick, and those that it evaluates."""
    readings, evaluated = [], 0
    for i in range(micro_batches):
        starts = [at // at_once for at in range(i * new, (i + 1) * new)]
        run.batch({"s": t.table(COLUMNS, [(at, 0, at % 7) for at in starts])}, [(None, starts[-1])])
        now = reading(run)
        readings.append(((now.state_rows or 0), (now.evaluated or 0) - evaluated))
        evaluated = now.evaluated or 0
    return readings


@pytest.mark.parametrize("n", [320, 321])
def test_state_goes_with_steps_and_not_with_events(n: int) -> None:
    """320 events of the last window are 32 rows; beside them what is not settled."""
    run = started(SOURCE.rows_window(n, 10).select(s=sq.sum("v"), m=sq.max("v")))
    later = trickle(run, 30, 20)[20:]
    assert max(rows for rows, _ in later) <= 32 + 4
    assert max(evaluated for _, evaluated in later) <= 32 + 4 + 20


IN_STEPS: dict[str, tuple[Callable[[Any], sq.Stream], int]] = {
    "a class": (lambda windows: windows.select(x=TOTAL("v")), 1),
    "values": (lambda windows: windows.select(m=sq.median(sq.col("v") % 2), n=sq.count_distinct(sq.col("v") % 2)), 2),
    "the best": (lambda windows: windows.top_k(2, by="v", ties="break"), 3),
}
"""Results of windows, and the rows of a step."""


@pytest.mark.parametrize("name", IN_STEPS)
def test_a_step_is_a_row_of_states_one_for_each_value_or_its_best_events(name: str) -> None:
    query, rows_of_a_step = IN_STEPS[name]
    run = started(query(SOURCE.rows_window(320, 10)), OutputForm.FINAL)
    later = trickle(run, 30, 20)[20:]
    assert max(rows for rows, _ in later) <= rows_of_a_step * 32 + 20


def test_events_of_one_instant_are_one_row_of_count_windows() -> None:
    """Those of the last one are not settled."""
    run = started(SOURCE.count_window(20).select(s=sq.sum("v")))
    assert max(rows for rows, _ in trickle(run, 10, 70, at_once=14)) <= 21 + 14


MOVING = sq.physical(t.table(f"kind string, end bigint, new_end bigint, {COLUMNS}", []), start="at", name="s")
KEEPS_EVENTS: dict[str, Callable[[sq.Stream], sq.Stream]] = {
    "members": lambda s: s.rows_window(100, 10).select(x=sq.collect("v"), s=sq.sum("v")),
    "a window from each event on": lambda s: s.rows_window(100).select(s=sq.sum("v")),
}


@pytest.mark.parametrize("name", KEEPS_EVENTS)
def test_what_no_row_can_stand_for_is_kept(name: str) -> None:
    query = KEEPS_EVENTS[name](SOURCE)
    assert not hosts(query, CondensingKernel)
    assert trickle(started(query), 4, 50)[-1][0] >= 100


def hosts(query: sq.Stream, kernel: type) -> bool:
    return any(isinstance(hosted.kernel, kernel) for stage in started(query).program.stages for hosted in stage.hosted)


def test_events_whose_ends_may_move_part_no_windows_unless_they_are_read() -> None:
    windows = MOVING.select("k", "v").rows_window(100, 10)
    results = sq.sum("v"), sq.max(sq.end())
    assert [hosts(windows.select(x=result), CondensingKernel) for result in results] == [True, False]


# windows of all rows, whose members are filtered and grouped


def test_state_goes_with_steps_and_groups_of_members() -> None:
    """The kernel over steps of which two groups of seven pass the filter; it drops bins by eight steps or so."""
    most = []
    for step in (10, 100):
        windows = SOURCE.rows_window(32 * step, step).where(sq.col("v") < 2).group_by("v")
        run = started(windows.select(s=sq.sum("v"), n=sq.count()), OutputForm.FINAL)
        most.append(max(rows for rows, _ in trickle(run, 50, 2 * step)[25:]))
    assert max(most) <= 2 * (32 + 16)


def test_what_rows_cannot_be_numbered_once_for_is_computed_from_members() -> None:
    """Rows that may be taken back, groups with windows of their own, results of another order or on their windows."""
    sums = {"s": sq.sum("v")}
    windows = SOURCE.rows_window(10, 2).group_by("k")
    assert hosts(windows.select(**sums), NumberedWindowsKernel)
    others = [
        MOVING.select("k", "v").rows_window(10, 2).group_by("k").select(**sums),
        SOURCE.group_by("v").rows_window(10, 2).group_by("k").select(**sums),
        windows.select(x=sq.first("v")),
        SOURCE.rows_window(10, 2, stamp="align").group_by("k").select(**sums),
    ]
    assert not any(hosts(query, NumberedWindowsKernel) for query in others)


# the best of windows on a grid


@pytest.mark.parametrize("ties", ["keep", "break"])
def test_the_best_of_a_hop_are_kept_and_late_events_behind_others_are_counted(ties: str) -> None:
    query = (
        sq.points(t.table(COLUMNS, []), "at", name="s", progress=sq.generate(0)).group_by("k").hopping_window(20, 10)
    )
    run = started(query.top_k(2, by="v", ties=ties), OutputForm.FINAL)
    run.batch({"s": t.table(COLUMNS, [(at, at % 2, at) for at in range(10)])})
    run.batch({"s": t.table(COLUMNS, [(19, 0, at % 7) for at in range(48)])})
    ties_of_the_greatest = {"keep": 6, "break": 2}[ties]
    assert reading(run).state_rows == 2 * 2 + ties_of_the_greatest
    run.batch({"s": t.table(COLUMNS, [(45, 0, 1), *((1, 0, v) for v in range(9))])})
    assert [+Counter(totals) for totals in run.totals.values()] == [{"s|dropped": 9}]
