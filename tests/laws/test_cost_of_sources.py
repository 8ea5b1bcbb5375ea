"""Cost goes with change at the sources, and where rows wait: not with what waits or is open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from streamq.policies import Level
from streamq.runtime.group_bins import BinSizes
from tests.laws.cost_mutants import EVERY_GROUP, EVERY_TIME
from tests.laws.cost_operators import BATCHES, COLUMNS, EACH, FAR, HOT, NOTED, WARM, Work, work, work_since
from tests.mutation.mutant import Mutant
from tests.programs import compiled

pytestmark = pytest.mark.slow

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
        if n == WARM:
            before = work(live)
        live.batch({"s": t.table(items.columns, items.trickle(10 + n))}, [(None, 6 + n)])
    return work_since(before, live)


def check_rows(name: str, mutant: Mutant | None = None) -> None:
    """Raise AssertionError if the work goes with what waits or is open; the many rows are those of a ``mutant``, if any."""
    few = work_of_items(*INGRESS[name], FEW_OF_SOURCE)
    with mutant.in_place() if mutant else nullcontext():
        many = work_of_items(*INGRESS[name], MANY_OF_SOURCE)
    assert many.evaluated <= 1.1 * few.evaluated + BATCHES * BinSizes().whole_upto, (
        "a bin with few rows is read as a whole"
    )
    assert many.bins <= 4 * few.bins + 4, "each group may lie in a bin of its own"
    assert many.noted <= few.noted + NOTED


@pytest.mark.parametrize("name", INGRESS)
def test_what_waits_or_is_open_at_a_source_costs_nothing(name: str) -> None:
    check_rows(name)


WAITING = (
    "settle", "settle endless rows", "CTIs", "attempt", "blocked rows", "blocked edges", "both blocked and settled",
    "blocked edges with payloads of ends",
)  # fmt: skip
"""The sources whose rows lie in bins by the instant that they wait for."""
BROKEN: dict[str, tuple[str, Mutant]] = {
    **{f"{name}, every group": (name, EVERY_GROUP) for name in INGRESS if name != "blocked rows"},
    **{f"{name}, every time": (name, EVERY_TIME) for name in WAITING},
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_source_that_evaluates_everything_breaks_the_law(broken: str) -> None:
    name, mutant = BROKEN[broken]
    with pytest.raises(AssertionError):
        check_rows(name, mutant)
