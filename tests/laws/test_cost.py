"""Cost goes with change: a micro-batch computes with the rows that came, the groups they touch, and what falls due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import nodes, number_sources
from streamq.plan.statements import Opened, statements_of
from streamq.policies import Level
from streamq.runtime.agenda import Agenda
from streamq.runtime.basket import Baskets
from streamq.runtime.group_bins import BinSizes, GroupBins
from streamq.runtime.kernels.condensing import CondensingKernel
from streamq.testing.operators.scan import RESETTING_SUM
from tests.programs import compiled, with_sizes

COLUMNS = "start bigint, end bigint, k bigint, v bigint"
FAR = 1_000_000
HOT = 3
"""The number of groups that rows of later micro-batches touch."""
EACH = 3
"""The events of a group when the trickle begins."""
BATCHES, NEW = 5, 4
SIZES = BinSizes(split_above=2_048, whole_upto=128)
"""Bins a quarter of a run's, so that they fill with a quarter of the groups."""
FEW, MANY = 50, 1_000
"""The groups with open events that are compared; many of them fill several bins."""


@sq.uda("bigint", name="spread")
def spread(v: pd.Series) -> int:
    return int(v.max() - v.min())


@sq.udo("top bigint", name="greatest")
def greatest(v: pd.Series) -> list[dict[str, int]]:
    return [{"top": int(v.max())}]


Query = Callable[[sq.Stream, sq.Stream], sq.Stream]

OPERATORS: dict[str, Query] = {
    "session": lambda a, b: a.group_by("k").session_window(5).select(n=sq.count(), s=sq.sum("v")),
    "snapshot": lambda a, b: a.group_by("k").snapshot_window().select(n=sq.count(), m=sq.max("v")),
    "sliding": lambda a, b: a.group_by("k").sliding_window(FAR).select(n=sq.count()),
    "count": lambda a, b: a.group_by("k").count_window(2).select(n=sq.count()),
    "rows": lambda a, b: a.group_by("k").rows_window(2, 1).select(n=sq.count()),
    "landmark": lambda a, b: a.group_by("k").landmark_window(FAR, start=0).select(n=sq.count()),
    "top_k": lambda a, b: a.group_by("k").session_window(5).top_k(1, by="v"),
    "top_k of snapshots": lambda a, b: a.group_by("k").snapshot_window().top_k(2, by="v"),
    "uda": lambda a, b: a.group_by("k").session_window(5).select(x=spread("v")),
    "uda of counted": lambda a, b: a.group_by("k").count_window(2).select(x=spread("v")),
    "median": lambda a, b: a.group_by("k").session_window(5).select(x=sq.median("v")),
    "udo": lambda a, b: a.group_by("k").session_window(5).select(greatest("v")),
    "hopping": lambda a, b: a.group_by("k").hopping_window(FAR, FAR // 4).select(n=sq.count(), m=sq.max("v")),
    "hopping uda": lambda a, b: a.group_by("k").tumbling_window(FAR).select(x=spread("v")),
    "scan": lambda a, b: a.to_points().group_by("k").scan(RESETTING_SUM("v")),
    "inner join": lambda a, b: a.join(b, on="k", suffixes=("", "_b")),
    "left join": lambda a, b: a.join(b, on="k", how="left", suffixes=("", "_b")),
    "semi join": lambda a, b: a.join(b, on="k", how="semi"),
    "anti join": lambda a, b: a.left_anti_join(b, on="k"),
    "windowed_join": lambda a, b: a.windowed_join(b, on="k", size=FAR, hop=FAR, suffixes=("", "_b")),
    "except_": lambda a, b: a.select("k").except_(b.select("k")),
    "clip": lambda a, b: a.clip(b, on="k"),
    "to_signal": lambda a, b: a.to_signal("k"),
    "chop": lambda a, b: a.chop(FAR),
    "distinct_ids": lambda a, b: a.distinct_ids(FAR, id="k"),
    "unless": lambda a, b: sq.cedr("EVENT E WHEN UNLESS(A, B, 1000) WHERE A.k = B.k", A=a, B=b),
    "first consume": lambda a, b: sq.cedr(
        "EVENT E WHEN SEQUENCE(A FIRST CONSUME, B FIRST CONSUME, 1000) WHERE A.k = B.k", A=a, B=b
    ),
}


def source(name: str) -> sq.Stream:
    return sq.intervals(t.table(COLUMNS, []), start="start", end="end", name=name, progress=sq.generate(0))


def opens(query: Query, part: Opened) -> bool:
    """True if an operator of the query states that it opens this part of its state."""
    plan = rewrite(number_sources(query(source("a"), source("b")).plan)[0]).plan
    return any(statements_of(node).state.opened is part for node in nodes(plan))


WHOLE_GROUPS = [name for name, query in OPERATORS.items() if opens(query, Opened.WHOLE_GROUPS)]
"""The operators that read all open events of a group that is touched: a user's function sees all of them, and each may have a
row together with those of the other side (of a pattern, within its scope)."""
PARTS = [name for name in OPERATORS if name not in WHOLE_GROUPS]


def rows(*events: tuple[int, int, int, int]) -> Any:
    return t.table(COLUMNS, list(events))


class Work(NamedTuple):
    """The work of some micro-batches: rows that all kernels together compute with, bins that they read, bytes beside the bins."""

    evaluated: int
    bins: int
    noted: int
    """The bytes of the manifests, which are read and written in each micro-batch."""


def work_of_trickle(query: Query, groups: int) -> Work:
    """The work of all operators in micro-batches that touch HOT of the groups."""
    a, b = source("a"), source("b")
    plan = rewrite(number_sources(query(a, b).plan)[0]).plan
    live = LocalRun(with_sizes(compiled(plan, buckets=1), SIZES))
    # ends differ, so that what bounds windows of endless lifetimes cannot be one instant
    bulk = [(i, FAR + k * EACH + i, k, i) for k in range(groups) for i in range(EACH)]
    live.batch({"a": rows(*bulk), "b": rows(*((i, FAR, k, v + 1) for i, _, k, v in bulk))})
    for n in range(BATCHES):
        if n == 2:
            # by now the windows in which the bulk begins have fallen due
            before = work(live)
        at = 10 + n
        new = [(at, FAR, (n + i) % HOT, n) for i in range(NEW)]
        live.batch({"a": rows(*new), "b": rows(*new)})
    return work_since(before, live)


def work(live: LocalRun) -> Work:
    """The work since the beginning."""
    kernels = live.readings.of_kernels.values()
    noted = sum(len(store[Baskets.MANIFEST]) for store in live.stores.values())
    return Work(sum(k.evaluated or 0 for k in kernels), sum(k.bins_read or 0 for k in kernels), noted)


def work_since(before: Work, live: LocalRun) -> Work:
    after = work(live)
    return Work(after.evaluated - before.evaluated, after.bins - before.bins, after.noted)


NOTED = 4_000
"""The bytes by which manifests may differ: some bins more, of 200 bytes at most. A number for each event would be several
times as much."""


def test_a_kernel_that_evaluates_everything_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupBins, "_rows_of", lambda bins, basket, leaf, groups: bins._whole(basket, leaf))
    monkeypatch.setattr(Agenda, "is_due", lambda *_: True)
    query = OPERATORS["session"]
    assert work_of_trickle(query, MANY).evaluated > 5 * work_of_trickle(query, FEW).evaluated


GROUPS, LIVES = 200, 75
TIMES = 5
"""The times that the rows of a group may be evaluated for each of its events: when it comes, and when its start and end, or those
of its window, fall due. If all groups were evaluated in each micro-batch, it would be 6.5 to 30 times."""


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_rows_evaluated_are_those_that_came_were_touched_or_fell_due(operator: str) -> None:
    """Over a random history with a row in each micro-batch."""
    random = np.random.default_rng(7)
    count = 2 * GROUPS + LIVES
    start = np.concatenate([np.arange(2 * GROUPS) % 5, 10 + np.arange(LIVES)])
    end = start + random.integers(1, LIVES, count)
    groups = np.concatenate([np.arange(2 * GROUPS) % GROUPS, random.integers(0, GROUPS, LIVES)])
    events = [(int(a), int(z), int(k), i) for i, (a, z, k) in enumerate(zip(start, end, groups, strict=True))]
    a, b = source("a"), source("b")
    program = compiled(rewrite(number_sources(OPERATORS[operator](a, b).plan)[0]).plan, buckets=1)
    live = LocalRun(with_sizes(program, BinSizes(whole_upto=0)))
    live.batch({"a": rows(*events[: 2 * GROUPS]), "b": rows(*events[: 2 * GROUPS])})
    for event in events[2 * GROUPS :]:
        live.batch({"a": rows(event), "b": rows(event)})
    _, sizes = np.unique(groups, return_counts=True)
    assert work(live).evaluated <= len(live.readings.of_kernels) * TIMES * int((sizes**2).sum())


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_is_open_costs_nothing(operator: str) -> None:
    few, many = (work_of_trickle(OPERATORS[operator], groups) for groups in (FEW, MANY))
    assert many.evaluated <= 1.1 * few.evaluated + 100
    assert many.bins <= 4 * few.bins, "each group may lie in a bin of its own, and have a place in the agenda"
    assert many.noted <= few.noted + NOTED


IN_GROUP = (25, 500)
"""The events that a group has open, few and many."""


def work_of_hot_groups(query: Query, each: int, **options: Any) -> Work:
    """The work of all operators in micro-batches that touch all groups; each of these has so many events open."""
    a, b = source("a"), source("b")
    program = compiled(rewrite(number_sources(query(a, b).plan)[0]).plan, buckets=1, **options)
    live = LocalRun(with_sizes(program, BinSizes(whole_upto=0, awake_upto=16)))
    bulk = [(i, FAR + k + i * 13, k, i) for k in range(HOT) for i in range(each)]
    live.batch({"a": rows(*bulk), "b": rows(*((i, FAR, k, v + 1) for i, _, k, v in bulk[:1]))})
    for n in range(BATCHES):
        if n == 2:
            before = work(live)
        new = [(each + n, FAR, (n + i) % HOT, n) for i in range(NEW)]
        live.batch({"a": rows(*new), "b": rows(*new[:1])})
    return work_since(before, live)


@pytest.mark.parametrize("operator", PARTS)
def test_what_is_open_in_a_touched_group_costs_nothing(operator: str) -> None:
    few, many = (work_of_hot_groups(OPERATORS[operator], each) for each in IN_GROUP)
    assert many.evaluated <= 1.1 * few.evaluated + 100
    assert many.noted <= few.noted + NOTED


@pytest.mark.parametrize("operator", WHOLE_GROUPS)
def test_what_is_open_in_a_touched_group_costs_where_groups_are_opened_as_a_whole(operator: str) -> None:
    few, many = (work_of_hot_groups(OPERATORS[operator], each) for each in IN_GROUP)
    assert many.evaluated > 3 * few.evaluated


def sums_of_floats(a: sq.Stream, b: sq.Stream) -> sq.Stream:
    return a.group_by("k").snapshot_window().select(s=sq.sum(sq.col("v") / 7), d=sq.stddev(sq.col("v") / 7))


def test_sums_of_floats_cost_as_others_before_they_are_final() -> None:
    few, many = (work_of_hot_groups(sums_of_floats, each, output=OutputForm.CHANGELOG) for each in IN_GROUP)
    assert many.evaluated <= 1.1 * few.evaluated + 100


NOT_CONDENSED: dict[str, tuple[Query, dict[str, Any]]] = {
    "early snapshots": (OPERATORS["snapshot"], {"early": True}),
    "early sessions": (OPERATORS["session"], {"early": True}),
    "early top_k": (OPERATORS["top_k"], {"early": True}),
}


@pytest.mark.parametrize(("query", "options"), NOT_CONDENSED.values(), ids=NOT_CONDENSED.keys())
def test_the_statement_names_the_runs_in_which_all_events_of_a_group_are_opened(
    query: Query, options: dict[str, Any]
) -> None:
    plan = rewrite(number_sources(query(source("a"), source("b")).plan)[0]).plan
    assert any("all its events" in statements_of(node).state.opens for node in nodes(plan))
    few, many = (work_of_hot_groups(query, each, output=OutputForm.CHANGELOG, **options) for each in IN_GROUP)
    assert many.evaluated > 3 * few.evaluated


def test_without_sleep_snapshots_break_the_law_of_hot_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CondensingKernel, "_has_wheel", False)
    few, many = (work_of_hot_groups(OPERATORS["snapshot"], each) for each in IN_GROUP)
    assert many.evaluated > 10 * few.evaluated


# ingress, and rows that wait

FEW_OF_SOURCE, MANY_OF_SOURCE = 200, 4_000
"""The groups that are compared where bins have the sizes of a run."""

inverse = sq.udf("double", name="inverse", on_error="quarantine")(lambda v: 1 / v)

KINDS = "kind string, start bigint, end bigint, new_end bigint, k bigint, v bigint"
EDGES = "time bigint, edge string, k bigint, v bigint"


@dataclass(frozen=True)
class Items:
    """A source, the items with which ``groups`` groups begin, and those of a later micro-batch at an instant."""

    source: sq.Stream
    columns: str
    bulk: Callable[[int], list[tuple[Any, ...]]]
    trickle: Callable[[int], list[tuple[Any, ...]]]


def events(groups: int) -> list[tuple[int, int, int, int]]:
    """EACH events of every group, with starts before 10; those of one instant are many."""
    return [(i, FAR, k, i) for k in range(groups) for i in range(EACH)]


def intervals_with_ids(name: str = "s") -> Items:
    source = sq.intervals(
        t.table(COLUMNS, []), start="start", end="end", id="k", name=name, progress=sq.explicit(), late="adjust"
    )
    return Items(source, COLUMNS, events, lambda at: [(at, FAR, (at + i) % HOT, at) for i in range(HOT)])


def later_intervals() -> Items:
    """Intervals that start late, so that a blocking level holds them back, and a few that come in time."""
    source = sq.intervals(t.table(COLUMNS, []), start="start", end="end", name="s", progress=sq.explicit())

    def bulk(groups: int) -> list[Any]:
        return [(FAR + start, 2 * FAR, k, v) for start, _, k, v in events(groups)]

    return Items(source, COLUMNS, bulk, lambda at: [(at, FAR, i, at) for i in range(HOT)])


def physical(id: str | None = None) -> Items:
    source = sq.physical(t.table(KINDS, []), id=id, name="s", late="adjust")

    def bulk(groups: int) -> list[tuple[Any, ...]]:
        inserts = [("insert", start, end, None, k, 0) for start, end, k, _ in events(groups)]
        return inserts if id is None else [(*row[:4], i, 0) for i, row in enumerate(inserts)]

    def trickle(at: int) -> list[tuple[Any, ...]]:
        """Inserts, and retractions of the first events, a tick each time; both before and after they have settled."""
        moves = [("retract", 0, FAR - at + 10, FAR - at + 9, i * (EACH if id else 1), 0) for i in range(HOT)]
        return [*moves, *(("insert", at, FAR + i, None, FAR + at * HOT + i, 0) for i in range(HOT))]

    return Items(source, KINDS, bulk, trickle)


def edges(payload: str = "start") -> Items:
    source = sq.edges(
        t.table(EDGES, []), "time", edge="edge", key="k", payload=payload, name="s", progress=sq.explicit()
    )
    return Items(
        source,
        EDGES,
        lambda groups: [(0, "start", k, k) for k in range(groups)],
        lambda at: [(at, "end" if at % 2 else "start", k, at) for k in range(HOT)],
    )


def ending_edges(payload: str = "start") -> Items:
    """Edges that a blocking level holds back: each event has an end that lies far ahead."""
    items = edges(payload)

    def bulk(groups: int) -> list[Any]:
        return [edge for k in range(groups) for edge in ((0, "start", k, k), (FAR, "end", k, k))]

    return replace(items, bulk=bulk)


OneSource = Callable[[sq.Stream], sq.Stream]
Egress = dict[str, Any]
CHANGES: Egress = {"output": OutputForm.CHANGELOG}

INGRESS: dict[str, tuple[Items, OneSource, Egress]] = {
    "ids": (intervals_with_ids(), lambda s: s, CHANGES),
    "physical": (physical(), lambda s: s, CHANGES),
    "physical with ids": (physical("k"), lambda s: s, CHANGES),
    "edges": (edges(), lambda s: s, CHANGES),
    "edges with payloads of ends": (edges("end"), lambda s: s, CHANGES),
    "hopping over physical": (physical(), lambda s: s.tumbling_window(FAR // 4).select(n=sq.count()), CHANGES),
    "settle": (physical(), lambda s: s, {}),
    "settle endless rows": (edges(), lambda s: s, {}),
    "CTIs": (physical(), lambda s: s.where(sq.end() > 5), {**CHANGES, "ctis": True}),
    "attempt": (physical(), lambda s: s.select(x=inverse("v")), {**CHANGES, "late_output": True}),
    "blocked rows": (later_intervals(), lambda s: s, {**CHANGES, "level": Level(None)}),
    "blocked by id": (intervals_with_ids(), lambda s: s, {**CHANGES, "level": Level(None)}),
    "blocked retractions": (physical(), lambda s: s, {**CHANGES, "level": Level(None)}),
    "blocked edges": (ending_edges(), lambda s: s, {**CHANGES, "level": Level(None)}),
    "blocked edges with payloads of ends": (ending_edges("end"), lambda s: s, {**CHANGES, "level": Level(None)}),
    "both blocked and settled": (physical("k"), lambda s: s, {"level": Level(None)}),
}


def work_of_items(items: Items, query: OneSource, options: Egress, groups: int) -> Work:
    """The work of all kernels in micro-batches of a few items."""
    plan = rewrite(number_sources(query(items.source).plan)[0]).plan
    live = LocalRun(compiled(plan, buckets=1, **options))
    live.batch({"s": t.table(items.columns, items.bulk(groups))}, [(None, 5)])
    for n in range(BATCHES):
        if n == 2:
            before = work(live)
        live.batch({"s": t.table(items.columns, items.trickle(10 + n))}, [(None, 6 + n)])
    return work_since(before, live)


@pytest.mark.parametrize(("items", "query", "options"), INGRESS.values(), ids=INGRESS.keys())
def test_what_waits_or_is_open_at_a_source_costs_nothing(items: Items, query: OneSource, options: Egress) -> None:
    few, many = (work_of_items(items, query, options, groups) for groups in (FEW_OF_SOURCE, MANY_OF_SOURCE))
    assert many.evaluated <= 1.1 * few.evaluated + BATCHES * BinSizes().whole_upto, (
        "a bin with few rows is read as a whole"
    )
    assert many.bins <= 4 * few.bins + 4, "each group may lie in a bin of its own"
    assert many.noted <= few.noted + NOTED
