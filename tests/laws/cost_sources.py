"""Sources whose cost goes with change, and operators where their rows wait; the items of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.rewriter import rewrite
from streamq.compiler.staged_plan import StagedPlan
from streamq.plan.node import number_sources
from streamq.policies import Level
from tests.laws.cost_operators import COLUMNS, EACH, FAR
from tests.programs import compiled

inverse = sq.udf("double", name="inverse", on_error="quarantine")(lambda v: 1 / v)

KINDS = "kind string, start bigint, end bigint, new_end bigint, k bigint, v bigint"
EDGES = "time bigint, edge string, k bigint, v bigint"


@dataclass(frozen=True)
class Items:
    """A source, the items with which ``groups`` groups begin, and those of a later micro-batch at an instant, for some groups."""

    source: sq.Stream
    columns: str
    bulk: Callable[[int], list[tuple[Any, ...]]]
    trickle: Callable[[int, int], list[tuple[Any, ...]]]


def events(groups: int) -> list[tuple[int, int, int, int]]:
    """EACH events of every group, with starts before 10; those of one instant are many."""
    return [(i, FAR, k, i) for k in range(groups) for i in range(EACH)]


def intervals_with_ids(name: str = "s") -> Items:
    source = sq.intervals(
        t.table(COLUMNS, []), start="start", end="end", id="k", name=name, progress=sq.explicit(), late="adjust"
    )
    return Items(source, COLUMNS, events, lambda at, hot: [(at, FAR, (at + i) % hot, at) for i in range(hot)])


def later_intervals() -> Items:
    """Intervals that start late, so that a blocking level holds them back, and a few that come in time."""
    source = sq.intervals(t.table(COLUMNS, []), start="start", end="end", name="s", progress=sq.explicit())

    def bulk(groups: int) -> list[Any]:
        return [(FAR + start, 2 * FAR, k, v) for start, _, k, v in events(groups)]

    return Items(source, COLUMNS, bulk, lambda at, hot: [(at, FAR, i, at) for i in range(hot)])


def physical(id: str | None = None) -> Items:
    source = sq.physical(t.table(KINDS, []), id=id, name="s", late="adjust")

    def bulk(groups: int) -> list[tuple[Any, ...]]:
        inserts = [("insert", start, end, None, k, 0) for start, end, k, _ in events(groups)]
        return inserts if id is None else [(*row[:4], i, 0) for i, row in enumerate(inserts)]

    def trickle(at: int, hot: int) -> list[tuple[Any, ...]]:
        """Inserts, and retractions of the first events, a tick each time; both before and after they have settled."""
        moves = [("retract", 0, FAR - at + 10, FAR - at + 9, i * (EACH if id else 1), 0) for i in range(hot)]
        return [*moves, *(("insert", at, FAR + i, None, FAR + at * hot + i, 0) for i in range(hot))]

    return Items(source, KINDS, bulk, trickle)


def edges(payload: str = "start") -> Items:
    source = sq.edges(
        t.table(EDGES, []), "time", edge="edge", key="k", payload=payload, name="s", progress=sq.explicit()
    )
    return Items(
        source,
        EDGES,
        lambda groups: [(0, "start", k, k) for k in range(groups)],
        lambda at, hot: [(at, "end" if at % 2 else "start", k, at) for k in range(hot)],
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


def source_program(items: Items, query: OneSource, options: Egress, buckets: int) -> StagedPlan:
    """A query of one source, compiled."""
    plan = rewrite(number_sources(query(items.source).plan)[0]).plan
    return compiled(plan, buckets=buckets, **options)
