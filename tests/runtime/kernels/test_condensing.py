"""The kernel that replaces settled events by partial results: state goes with windows, answers stay what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from streamq.runtime.deltas import net_deltas
from streamq.runtime.hosts.readings import KernelReadings
from streamq.runtime.kernels.condensing import ASLEEP, CondensingKernel, slots
from streamq.runtime.kernels.recompute import input_basket
from streamq.runtime.state.baskets import Baskets, BinSizes, DictStore
from streamq.time import INFINITY, MINUS_INFINITY
from tests.programs import compiled, with_sizes

FAR = 10_000
EVENTS, NEW = 200, 10

Windows = Callable[[sq.Stream], Any]

KINDS: dict[str, Windows] = {
    "session": lambda s: s.group_by("k").session_window(50),
    "landmark": lambda s: s.group_by("k").landmark_window(FAR, start=0),
    "calendar": lambda s: s.group_by("k").calendar_window("day", zone="UTC"),
}
IN_HOPS = {"landmark in hops": lambda s: s.group_by("k").landmark_window(NEW, start=0)}
"""Windows of which each micro-batch sends one more of each group."""
all_kinds = pytest.mark.parametrize("kind", KINDS)


def events(kind: str, start: Iterable[int]) -> Any:
    """An event of three ticks at each of these instants, in one of two groups."""
    axis = "timestamp" if kind == "calendar" else "bigint"
    rows = [(at, at + 3, at % 2, at % 7, at / 3) for at in start]
    return t.table(f"start {axis}, end {axis}, k bigint, v bigint, x double", rows)


def live(kind: str, output: str = OutputForm.CHANGELOG, **aggregates: Any) -> LocalRun:
    s = sq.intervals(events(kind, []), start="start", end="end", name="s", progress=sq.generate(0))
    aggregates = aggregates or {"n": sq.count(), "s": sq.sum("v"), "a": sq.avg("x"), "m": sq.max("v")}
    plan = rewrite(number_sources({**KINDS, **IN_HOPS}[kind](s).select(**aggregates).plan)[0]).plan
    return LocalRun(compiled(plan, output, buckets=1))


def reading(run: LocalRun) -> KernelReadings:
    (of_kernel,) = (k for name, k in run.readings.of_kernels.items() if not name.startswith("ingress:"))
    return of_kernel


@pytest.mark.parametrize("kind", [*KINDS, *IN_HOPS])
def test_settled_events_of_a_window_are_one_row_of_state(kind: str) -> None:
    """Nor do the windows that have been sent cost anything."""
    run, evaluated = live(kind), [0]
    for at in range(0, EVENTS, NEW):
        run.batch({"s": events(kind, range(at, at + NEW))})
        evaluated.append(reading(run).evaluated or 0)
    # each group has a row of all events; but in sessions, which may grow together, the last event is not settled
    unsettled = kind == "session"
    assert reading(run).state_rows == 2 + unsettled
    # new events of a group that are in the same windows come as one row, too
    assert max(b - a for a, b in pairwise(evaluated)) <= (NEW + 3 if unsettled else 2 + 2)


@all_kinds
def test_settled_events_are_one_row_a_value_where_values_are_read(kind: str) -> None:
    """Each value counts as often as there are events with it: of 4, 5 and 6 most are 4, and so the median is 4."""
    v = sq.functions.greatest(sq.col("v"), sq.lit(4))
    run, whole = (live(kind, n=sq.count(), x=sq.median(v), different=sq.count_distinct(v)) for _ in range(2))
    for at in range(0, EVENTS, NEW):
        run.batch({"s": events(kind, range(at, at + NEW))})
    assert reading(run).state_rows == 2 * 3 + (kind == "session")
    whole.batch({"s": events(kind, range(EVENTS))})
    answers = [sorted(net_deltas(one.finish(FAR)).to_pylist(), key=repr) for one in (run, whole)]
    assert answers[0] == answers[1] and {(row["x"], row["different"]) for row in answers[0]} == {(4, 3)}


@pytest.mark.parametrize("aggregate", [sq.collect("v"), sq.time_weighted_avg("v")])
def test_what_reads_single_members_keeps_them(aggregate: Any) -> None:
    run = live("session", x=aggregate)
    run.batch({"s": events("session", range(EVENTS))})
    run.batch({"s": events("session", range(EVENTS, EVENTS + NEW))})
    (stage,) = run.program.stages
    assert not any(isinstance(hosted.kernel, CondensingKernel) for hosted in stage.hosted)
    assert (reading(run).state_rows or 0) >= EVENTS + NEW


# sleeping events of snapshots

PIECES: dict[str, Windows] = {
    "snapshot": lambda s: s.group_by("k").snapshot_window().select(n=sq.count(), s=sq.sum("v"), m=sq.max("x")),
    "ties": lambda s: s.group_by("k").snapshot_window().top_k(2, by="v", ties="break", row_number=True),
}
COLUMNS = "start bigint, end bigint, k bigint, v bigint, x double"


def pieces(kind: str, output: str, sizes: BinSizes) -> LocalRun:
    s = sq.intervals(t.table(COLUMNS, []), start="start", end="end", name="s", progress=sq.explicit())
    plan = rewrite(number_sources(PIECES[kind](s).plan)[0]).plan
    return LocalRun(with_sizes(compiled(plan, output, buckets=1), sizes))


def asleep(run: LocalRun) -> int:
    """The number of deltas in all timing wheels of a run."""
    wheels = [bins.values() for state in states(run) for name, bins in state.counts.items() if name.endswith(ASLEEP)]
    return sum(bin.stored for bins in wheels for bin in bins)


def states(run: LocalRun) -> list[Baskets]:
    return [Baskets(DictStore(store)) for store in run.stores.values()]


@pytest.mark.parametrize("kind", ["snapshot", "ties"])
def test_a_touched_group_evaluates_few_rows_of_what_it_has_open(kind: str) -> None:
    """The state has all events, each once: what sleeps, less what stands for it, adds up to them."""
    random, run = np.random.default_rng(1), pieces(kind, OutputForm.CHANGELOG, BinSizes(awake_upto=32))
    ends = 10_000 + random.permutation(4_000)
    many = [(i % 10, int(end), i % 2, i % 7, 0.0) for i, end in enumerate(ends)]
    run.batch({"s": t.table(COLUMNS, many)}, [(None, 10)])
    run.batch({"s": t.table(COLUMNS, [(10, 11, k, 1, 0.0) for k in (0, 1)])}, [(None, 20)])
    names = (ASLEEP, input_basket(0))
    held = [bins.values() for s in states(run) for name, bins in s.counts.items() if name.endswith(names)]
    rows = sum(bin.rows for bins in held for bin in bins)
    assert rows == len(many) + 2
    before = reading(run).evaluated or 0
    run.batch({"s": t.table(COLUMNS, [(20, 21, 0, 1, 0.0)])}, [(None, 30)])
    assert (reading(run).evaluated or 0) - before < 200


def check_waking() -> None:
    """Two of the events sleep until 12: before that nothing of them is read, and from then on the next row is known."""
    run = pieces("snapshot", OutputForm.CHANGELOG, BinSizes(awake_upto=0))
    run.batch({"s": t.table(COLUMNS, [(0, end, 1, 1, 0.0) for end in (8, 12, 13)])}, [(None, 4)])
    evaluated = []
    for c in (10, 11, 12):
        run.batch({"s": t.table(COLUMNS, [])}, [(None, c)])
        evaluated.append(reading(run).evaluated)
        assert reading(run).due == 13
    assert asleep(run) == 0 and evaluated[0] == evaluated[1] < evaluated[2]


def test_sleeping_events_wake_when_their_slot_begins() -> None:
    check_waking()


def test_a_run_that_sends_rows_at_once_wakes_all() -> None:
    """It goes on from the state of one in which events sleep."""
    quiet = pieces("snapshot", OutputForm.CHANGELOG, BinSizes(awake_upto=0))
    s = sq.intervals(t.table(COLUMNS, []), start="start", end="end", name="s", progress=sq.explicit())
    plan = rewrite(number_sources(PIECES["snapshot"](s).plan)[0]).plan
    early = compiled(plan, OutputForm.CHANGELOG, buckets=1, early=True)
    rows = [(i, 100 + 3 * i, 1, i, 0.0) for i in range(20)]
    quiet.batch({"s": t.table(COLUMNS, rows)}, [(None, 50)])
    assert asleep(quiet) > 0
    run = replace(quiet.restart(), program=early)
    run.batch({"s": t.table(COLUMNS, [])}, [(None, 60)])
    assert asleep(run) == 0


# the slots of the wheel

instants = st.integers(MINUS_INFINITY + 1, INFINITY - 1)


@given(instants, st.lists(instants, min_size=1), st.integers(-3, 3))
def test_a_slot_starts_after_now_and_not_after_its_instants(now: int, at: list[int], parts: int) -> None:
    later = np.array([max(now + 1, min(INFINITY - 1, t)) for t in at])
    slot = slots(later, now, parts)
    assert (slot > now).all() and (slot <= later).all()


def test_slots_are_few_and_the_narrower_the_nearer() -> None:
    at = np.arange(1, 1_000_000)
    slot = slots(at, 0, 2)
    starts, sizes = np.unique(slot, return_counts=True)
    assert len(starts) < 100
    assert (sizes <= np.maximum(1, starts // 3)).all()
