"""The kernel that replaces settled events by partial results: state goes with windows, answers stay what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from streamq.runtime.kernels.condensing import CondensingKernel
from streamq.runtime.readings import KernelReadings
from tests.programs import compiled

FAR = 10_000
EVENTS, NEW = 200, 10

Windows = Callable[[sq.Stream], Any]

KINDS: dict[str, Windows] = {
    "session": lambda s: s.group_by("k").session_window(50),
    "landmark": lambda s: s.group_by("k").landmark_window(FAR, start=0),
    "hopping": lambda s: s.group_by("k").hopping_window(2 * FAR, FAR, stamp="point_at_end"),
    "calendar": lambda s: s.group_by("k").calendar_window("day", zone="UTC"),
}
all_kinds = pytest.mark.parametrize("kind", KINDS)


def events(kind: str, start: Iterable[int]) -> Any:
    """An event of three ticks at each of these instants, in one of two groups."""
    axis = "timestamp" if kind == "calendar" else "bigint"
    rows = [(at, at + 3, at % 2, at % 7, at / 3) for at in start]
    return t.table(f"start {axis}, end {axis}, k bigint, v bigint, x double", rows)


def live(kind: str, output: str = OutputForm.CHANGELOG, **aggregates: Any) -> LocalRun:
    s = sq.intervals(events(kind, []), start="start", end="end", name="s", progress=sq.generate(0))
    aggregates = aggregates or {"n": sq.count(), "s": sq.sum("v"), "a": sq.avg("x"), "m": sq.max("v")}
    plan = rewrite(number_sources(KINDS[kind](s).select(**aggregates).plan)[0]).plan
    return LocalRun(compiled(plan, output, buckets=1))


def reading(run: LocalRun) -> KernelReadings:
    (of_kernel,) = (k for name, k in run.readings.of_kernels.items() if not name.startswith("ingress:"))
    return of_kernel


@all_kinds
def test_settled_events_of_a_window_are_one_row_of_state(kind: str) -> None:
    run, evaluated = live(kind), [0]
    for at in range(0, EVENTS, NEW):
        run.batch({"s": events(kind, range(at, at + NEW))})
        evaluated.append(reading(run).evaluated or 0)
    # the last event is not settled; each group has a row of all others
    assert reading(run).state_rows == 2 + 1
    assert max(b - a for a, b in pairwise(evaluated)) <= NEW + 3


@all_kinds
def test_sums_of_floats_are_the_same_bit_by_bit(kind: str) -> None:
    """A row of settled events comes before the others, so that values are added in the order of the starts."""
    pieces, whole = (live(kind, OutputForm.FINAL, x=sq.sum("x")) for _ in range(2))
    for at in range(0, EVENTS, NEW):
        pieces.batch({"s": events(kind, range(at, at + NEW))})
    whole.batch({"s": events(kind, range(EVENTS))})
    answers = [sorted(run.finish(FAR).to_pylist(), key=repr) for run in (pieces, whole)]
    assert answers[0] == answers[1] and answers[0]


@pytest.mark.parametrize("aggregate", [sq.median("v"), sq.first("v"), sq.time_weighted_avg("v")])
def test_what_reads_single_members_keeps_them(aggregate: Any) -> None:
    run = live("session", x=aggregate)
    run.batch({"s": events("session", range(EVENTS))})
    run.batch({"s": events("session", range(EVENTS, EVENTS + NEW))})
    (stage,) = run.program.stages
    assert not any(isinstance(hosted.kernel, CondensingKernel) for hosted in stage.hosted)
    assert (reading(run).state_rows or 0) >= EVENTS + NEW


def test_a_session_ends_where_the_end_of_its_last_event_moves() -> None:
    """An event of a source that may retract is settled once its end is; until then it may part a session."""
    table = t.table("kind string, start bigint, end bigint, new_end bigint, k bigint, v bigint", [])
    source = sq.physical(table, id=None, name="s")
    query = source.group_by("k").session_window(5).select(n=sq.count())
    run = LocalRun(compiled(rewrite(number_sources(query.plan)[0]).plan, OutputForm.FINAL, buckets=1))
    columns = "kind string, start bigint, end bigint, new_end bigint, k bigint, v bigint"
    rows = [("insert", 0, 2, None, 1, 1), ("insert", 3, 90, None, 1, 1), ("insert", 60, 61, None, 1, 1)]
    run.batch({"s": t.table(columns, rows)}, [(None, 4)])
    run.batch({"s": t.table(columns, [])}, [(None, 10)])
    run.batch({"s": t.table(columns, [("retract", 3, 90, 20, 1, 1)])}, [(None, 11)])
    rows_sent = sorted((r["__le"], r["__re"], r["n"]) for r in run.finish().to_pylist())
    assert rows_sent == [(0, 24, 2), (60, 65, 1)]
