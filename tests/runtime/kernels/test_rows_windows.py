"""Rows windows keep a row of state for each step of settled events; their answers are those of plain rules, however rows come."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.compiler.staged_plan import StagedPlan
from streamq.plan.node import number_sources
from streamq.runtime.deltas import net_deltas, with_weights
from streamq.runtime.kernels.condensing import CondensingKernel
from streamq.runtime.state.baskets import BinSizes
from tests.laws.cost_operators import TOTAL
from tests.programs import compiled, with_sizes
from tests.runtime.kernels.test_condensing import reading

COLUMNS = "at bigint, k bigint, v bigint"
SOURCE = sq.points(t.table(COLUMNS, []), "at", name="s", progress=sq.explicit())
SEEDS = range(300 if os.environ.get("STREAMQ_SOAK") else 8)
MICRO_BATCHES = 10
SMALL = BinSizes(split_above=8, whole_upto=0, slack=1)

Event = tuple[int, int, int]


def started(query: sq.Stream, output: str = OutputForm.CHANGELOG, **options: Any) -> LocalRun:
    plan = rewrite(number_sources(query.plan)[0]).plan
    return LocalRun(compiled(plan, output, **{"buckets": 1, **options}))


RESULTS: dict[str, tuple[Any, Callable[[list[int]], float]]] = {
    "s": (sq.sum("v"), sum),
    "m": (sq.max("v"), max),
    "d": (sq.count_distinct("v"), lambda values: len(set(values))),
    "p": (sq.median("v"), median),
    "t": (TOTAL("v"), sum),
}
"""Aggregates of v, with their plain rules."""


def windows_of(
    events: list[Event], n: int, step: int, key: Callable[[Event], int], results: str
) -> Counter[tuple[float, ...]]:
    """The key, bounds and results of each n consecutive events of a group in the order of start, v and k."""
    rows: Counter[tuple[float, ...]] = Counter()
    ordered = sorted(events, key=lambda e: (key(e), e[0], e[2], e[1]))
    for k, of_group in groupby(ordered, key):
        group = list(of_group)
        for first in range(0, len(group) - n + 1, step):
            members = group[first : first + n]
            values = [v for _, _, v in members]
            of_values = (RESULTS[name][1](values) for name in results)
            rows[k, members[0][0], members[-1][0] + 1, *of_values] += 1
    return rows


def played(
    random: np.random.Generator, programs: list[StagedPlan], apart: int, keys: int, values: int
) -> tuple[list[Event], list[dict[str, Any]]]:
    """Events at random and the net rows of a run over them, which goes on with any of the programs after each micro-batch."""
    run, events, sent, c = LocalRun(programs[0]), list[Event](), [], 0
    for _ in range(MICRO_BATCHES):
        starts = c + random.integers(0, apart, random.integers(24))
        new = [(int(at), int(random.integers(keys)), int(random.integers(values))) for at in starts]
        events, c = events + new, c + int(random.integers(4))
        sent.append(run.batch({"s": t.table(COLUMNS, new)}, [(None, c)]))
        run = run.go_on(programs[int(random.integers(len(programs))) if random.random() < 0.3 else 0])
    sent.append(run.finish())
    return events, net_deltas(pa.concat_tables([with_weights(deltas) for deltas in sent])).to_pylist()


@pytest.mark.parametrize("seed", SEEDS)
def test_any_history_in_any_micro_batches_has_the_windows_of_plain_rules(seed: int) -> None:
    """Several events start at one instant, or are equal; a run may send rows at once from some restart on."""
    random = np.random.default_rng(seed)
    n, step, values = int(random.integers(1, 41)), int(random.integers(2, 6)), int(random.choice([1, 2, 50]))
    has_keys, apart = bool(random.integers(2)), int(random.integers(1, 4))
    groups = SOURCE.group_by("k") if has_keys else SOURCE.select("v", "k")
    windows = groups.rows_window(n, step, order_by="v", stamp=str(random.choice(["align", "point_at_end"])))
    results = ("sm", "smdp", "smt", "dpt")[seed % 4]
    bounds = {"a": sq.window_start(), "b": sq.window_end()}
    query = windows.select(**bounds, **{name: RESULTS[name][0] for name in results})
    output, early = (OutputForm.FINAL, [False]) if seed % 2 else (OutputForm.CHANGELOG, [False, True])
    buckets = int(random.integers(1, 3))
    runs = [started(query, output, buckets=buckets, early=at_once) for at_once in early]
    programs = [with_sizes(run.program, SMALL if random.integers(2) else BinSizes()) for run in runs]
    events, rows = played(random, programs, apart, 2, values)
    answer = Counter({(row.get("k", 0), *(row[name] for name in "ab" + results)): row["__w"] for row in rows})
    assert answer == windows_of(events, n, step, (lambda e: e[1]) if has_keys else lambda _: 0, results)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_of_any_history_are_those_of_plain_rules(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, step, k = int(random.integers(1, 41)), int(random.integers(2, 6)), int(random.integers(1, 4))
    ties, values = str(random.choice(["keep", "break"])), int(random.choice([2, 50]))
    best = SOURCE.rows_window(n, step, order_by="k", stamp="align").top_k(k, by="v", ties=ties)
    programs = [with_sizes(started(best, buckets=number).program, SMALL) for number in (1, 1)]
    events, rows = played(random, programs, int(random.integers(1, 4)), 9, values)
    wanted: Counter[tuple[int, ...]] = Counter()
    ordered = sorted(events)
    for first in range(0, len(ordered) - n + 1, step):
        members = ordered[first : first + n]
        ranked = sorted(members, key=lambda e: (-e[2], e[1]))
        ranks = [1 + sum(other[2] > e[2] for other in members) for e in ranked]
        best = ranked[:k] if ties == "break" else ranked[: sum(rank <= k for rank in ranks)]
        for e, rank in zip(best, ranks, strict=False):
            wanted[members[0][0], members[-1][0] + 1, e[1], e[2], rank] += 1
    assert (
        Counter({tuple(row[name] for name in ("__le", "__re", "k", "v", "rank")): row["__w"] for row in rows}) == wanted
    )


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
    run = started(KEEPS_EVENTS[name](SOURCE))
    assert not condenses(run)
    assert trickle(run, 4, 50)[-1][0] >= 100


def condenses(run: LocalRun) -> bool:
    return any(isinstance(hosted.kernel, CondensingKernel) for stage in run.program.stages for hosted in stage.hosted)


def test_events_whose_ends_may_move_part_no_windows_unless_they_are_read() -> None:
    windows = MOVING.select("k", "v").rows_window(100, 10)
    results = sq.sum("v"), sq.max(sq.end())
    assert [condenses(started(windows.select(x=result))) for result in results] == [True, False]
