"""Hypothesis strategies for cases: random queries over sources of every kind, and the items of a given query's sources.

Needs ``hypothesis``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.compiler.results import Results
from streamq.errors import PlanError, UnknownColumn, nearest
from streamq.operators import AlterLifetime, Clip, Except, Join, JoinTable, Select, Source, Union
from streamq.plan.expr import Col, fold
from streamq.plan.node import Node, expanded, nodes, number_sources
from streamq.plan.schema import Field
from streamq.runtime.deltas import CTI, RETRACT
from streamq.testing.arrival import TICKS, Item, Scale, delay_for
from streamq.testing.case import Arrival, Case
from streamq.testing.drawn_lifetimes import forbids_overlap
from streamq.testing.intent import ANYTHING, Draw, Intent
from streamq.testing.lateness import (
    ON_TIME,
    double_events,
    late_intents,
    manners,
    speculative,
    with_invalid,
    with_policy,
)
from streamq.testing.payload_values import IDS, growing_value, in_one_form, numbered_value, twin
from streamq.testing.payloads import NO_USES, Uses, near, palettes, uses
from streamq.testing.program import variables_of
from streamq.testing.program_text import free_name
from streamq.testing.progress_policies import clock_ctis
from streamq.testing.query_scale import meeting_intents, scale
from streamq.testing.sources.room import ArrivalPlan, room_of, room_of_shape, rooms
from streamq.time import INTEGER, TIMESTAMP, ticks

KINDS = tuple(shape for room in rooms().values() for shape in room.shapes)
"""Kinds of sources."""

WITH_IDS = tuple(shape for room in rooms().values() for shape in room.shapes_on_request)
"""Kinds of sources that are drawn on request only."""


@st.composite
def arriving(
    draw: Draw,
    source: Source,
    intent: Intent,
    scale: Scale = TICKS,
    compared: Sequence[Any] = (),
    causal: bool | None = None,
    used: Uses = NO_USES,
    late: bool = False,
    twins: int | None = None,
) -> tuple[Source, list[Item]]:
    """Draw a policy and items for a source; return the source with this policy, and the items in order of arrival.

    ``late``: some items may be late, and some rows no events. ``compared``: values that the query compares with. ``causal`` as in
    :class:`ArrivalPlan`. ``used``: the columns that the query computes with. ``twins``: n if every n-th item has its values in
    another form, 0 for none (None: drawn). If the query sees the bits of values, all other items have theirs in one form.
    """
    manner = draw(manners(intent)) if late else ON_TIME
    if manner != ON_TIME:
        intent, causal = draw(late_intents(intent, source, manner)), True
    room = room_of(source)
    id = room.id_of(source)
    number = _numbering(source, id)
    payloads = draw(palettes([f for f in source.payload if f.name != id], intent, compared, used))
    every = draw(st.sampled_from(TWINS)) if twins is None else twins

    def in_turn(items: list[Item]) -> list[Item]:
        if used.sees_bits:
            items = [_in_form(in_one_form, item, intent) for item in items]
        return [_in_form(twin, item, intent) if every and i % every == 0 else item for i, item in enumerate(items)]

    is_explicit = CTI in room.items and draw(st.booleans())
    how = ArrivalPlan(payloads, intent, scale, id, number, is_explicit, causal)
    items = draw(room.arriving(source, how))
    if late:
        items = draw(with_invalid(source, items, payloads, intent, scale, number=number, manner=manner))
    kinds = {f.name: f.type for f in source.columns if f.name in source.beside}
    # an item without a place in the order was drawn as such
    free = kinds.keys() - {*source.order_by}
    items = [
        replace(item, beside={n: growing_value(kinds[n], i // 2) if n in free else None for n in kinds} | item.beside)
        for i, item in enumerate(items)
    ]
    return draw(with_policy(source, in_turn(items), intent, scale, manner, is_explicit))


TWINS = (0, 0, 2, 3)
"""Choices of n where every n-th item has its values in another representation, such as -0.0 for 0.0; 0: no item."""


def _in_form(form: Callable[[Any], Any], item: Item, intent: Intent) -> Item:
    """Return the item with its values in the form that a function returns, except those that the user gave."""
    values = {name: value if name in intent.payload else form(value) for name, value in item.payload.items()}
    return replace(item, payload=values)


def _numbering(source: Source, id: str | None) -> Callable[[int], Any]:
    """Return the function from a number to an id of the column's type, or to itself if there is no id column.

    One of the ids is NULL. Raises PlanError for types that cannot hold ids.
    """
    kinds = {f.name: f.type for f in source.columns}
    if id is None:
        return lambda n: n
    if type(kinds[id]) in {type(kind) for kind in IDS.values()}:
        return lambda n: numbered_value(kinds[id], n)
    instead = f"column {id!r} is {kinds[id].simpleString()}"
    raise PlanError("testing", "an id column needs a type with many values and without fields", instead)


@st.composite
def interleaved(draw: Draw, streams: Mapping[str, Sequence[Item]]) -> Arrival:
    """Draw one order of arrival for the items of several sources; each source's items keep theirs.

    Some sources end long before others. There must be at least one source, with or without items.
    """
    left = [[(name, item) for item in items] for name, items in streams.items()]
    arrival: list[tuple[str, Item]] = []
    turns = itertools.cycle(draw(st.lists(st.integers(0, len(left) - 1), max_size=8)) or [0])
    while any(left):
        turn = next(turns)
        arrival.append((left[turn] or next(items for items in left if items)).pop(0))
    return tuple(arrival)


SINGLY = 12
"""The greatest number of micro-batches of one row in a case."""


def cuts(n: int, finely: bool = False) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw the lengths of the micro-batches that ``n`` rows are cut into; ``finely``: never into one only.

    Items become late by what came in earlier micro-batches. In two or three long ones, several are late together. More than ten
    micro-batches are rare, as each costs time. Those of one row are the first and the last ones, together at most SINGLY. One
    micro-batch may be empty; for no rows there is none.
    """
    if n < 2:
        return st.just((n,) if n else ())
    # a single micro-batch tests nothing incremental, so it is drawn least
    singly, some = (
        st.just({*range(1, SINGLY // 2), *range(max(1, n - SINGLY // 2), n)} & set(range(1, n))),
        st.sets(st.integers(1, n - 1), min_size=1),
    )
    step = -(-n // 10)
    evenly = st.integers(1, step).map(lambda first: set(range(first, n, step)))
    few = st.sets(st.integers(1, n - 1), min_size=1, max_size=2)
    kinds = [singly, evenly, some, few] if finely else [st.just(set()), evenly, some, singly, few, some]
    places = st.sampled_from(kinds).flatmap(lambda kind: kind)
    lengths = places.map(lambda at: tuple(b - a for a, b in itertools.pairwise([0, *sorted(at), n])))
    # now and then a micro-batch is empty
    empty = st.sampled_from([None, None, None, None, 0, 1, 2])
    return st.builds(lambda cut, at: cut if at is None else (*cut[:at], 0, *cut[at:]), lengths, empty)


def cases_of(
    plan: Node,
    intent: Intent = ANYTHING,
    tables: Mapping[str, Any] | None = None,
    intents: Mapping[str, Intent] | None = None,
    calls: str = "",
    *,
    may_fail: bool = False,
) -> st.SearchStrategy[Case]:
    """Return the strategy for cases of a given query, with input as an intent describes it.

    ``tables`` are those that the query looks up. ``intents`` are the intents of single sources; ``intent`` completes what they
    leave open. ``calls`` are the statements that make the query, as of a :class:`Case`. ``may_fail``: some cases have values
    whose sums overflow. The plan may be the root over several queries.

    The query's sources get policies, and an intent with speculation or duplicates adds operators above the sources; nothing
    else of the query changes.
    """
    plan, names = number_sources(without_surroundings(plan))
    _check_payload(plan, intent)
    tables = {names.get(name, name): table for name, table in (tables or {}).items()}
    query_scale = scale(plan)
    if intent.unit is not None:
        query_scale = query_scale.with_unit(ticks(intent.unit, plan.schema.axis, "Intent"))
    used = replace(uses(plan), may_overflow=may_fail)
    may_lack = any(_has_rows_of_one(node) for node in nodes(plan))
    return _cases_of(plan, intent, tables, intents or {}, calls, query_scale, near(plan), used, may_lack)


def without_surroundings(plan: Node) -> Node:
    """Return a plan whose tables stay as they are, and whose sources read times in UTC: elsewhere an hour may be there twice."""

    def visit(node: Node, inputs: list[Node]) -> Node:
        if isinstance(node, JoinTable):
            return replace(node, input=inputs[0], refresh=None)
        return replace(node, zone=None) if isinstance(node, Source) and node.zone else node.with_children(inputs)

    return fold(plan, visit)


@st.composite
def _cases_of(
    draw: Draw,
    plan: Node,
    intent: Intent,
    tables: Mapping[str, Any],
    intents: Mapping[str, Intent],
    calls: str,
    query_scale: Scale,
    compared: Sequence[Any],
    used: Uses,
    may_lack: bool,
) -> Case:
    """Draw a case of a query, as :func:`cases_of` returns them, by what follows from the query alone.

    ``may_lack``: the query may have rows where one of its sources has no items.
    """
    close = draw(meeting_intents(plan, intent, query_scale, compared))
    intent_of = {**close, **{n: i.completed(close.get(n, intent)) for n, i in intents.items()}}
    # a retraction changes any of several equal events: if the query sees the bits in which they differ, several answers are right
    twins = draw(st.sampled_from([0, 1])) if used.sees_bits else None
    arrivals = {
        n.table: draw(
            arriving(n, intent_of.get(n.table, intent), query_scale, compared, used=used, late=True, twins=twins)
        )
        for n in nodes(plan)
        if isinstance(n, Source)
    }
    speculate = draw(st.sampled_from({True: [True], False: [False], None: [False] * 5 + [True]}[intent.speculation]))
    rarely = [False] * 5 + [True] * (not forbids_overlap(intent))
    double = draw(st.sampled_from({True: [True], False: [False], None: rarely}[intent.duplicates]))

    def visit(node: Node, inputs: list[Node]) -> Node:
        """Return a source with its policy, below the operators that the intent adds; any other node over its inputs."""
        if not isinstance(node, Source):
            return node.with_children(inputs)
        above: Node = arrivals[node.table][0]
        if speculate and RETRACT not in room_of(node).items:
            above = speculative(above)
        return double_events(above) if double else above

    if calls:
        variables = variables_of([plan])
        altered = [
            f"{variables[name]} = t.{verb}({variables[name]})"
            for name, (source, _) in arrivals.items()
            for verb, holds in (
                ("make_speculative", speculate and RETRACT not in room_of(source).items),
                ("inject_duplicates", double),
            )
            if holds
        ]
        calls = "\n".join([*altered, calls])
    streams = {name: items for name, (_, items) in arrivals.items()}
    if may_lack and len(streams) > 1 and draw(st.sampled_from([False] * 9 + [True])):
        # a source without items
        streams[draw(st.sampled_from(sorted(streams)))] = []
    arrival = draw(interleaved(streams))
    looked_up = {n.table: tables[n.table] for n in nodes(plan) if isinstance(n, JoinTable)}
    finely = any(_delay(source) < delay_for(items) for source, items in arrivals.values())
    case = Case(fold(plan, visit), arrival, draw(cuts(len(arrival), finely)), static=looked_up, calls=calls)
    case = draw(with_clock(case, query_scale))
    return replace(case, until=draw(untils(case, query_scale)))


def _has_rows_of_one(node: Node) -> bool:
    """True if an operator may have rows where one of its inputs has none."""
    return isinstance(node, Union | Except | Clip | Results) or (
        isinstance(node, Join) and node.how in ("left", "anti")
    )


def _delay(source: Source) -> int:
    """Return the least number of ticks by which a source's CTIs stay behind the greatest start or, if it has one, the clock."""
    progress = source.policy.progress
    return progress.lag if progress.clock is None else min(progress.lag, progress.clock.delay)


@st.composite
def with_clock(draw: Draw, case: Case, scale: Scale) -> Case:
    """Draw a clock for a case whose sources follow it: mostly at the greatest start so far, else ahead of it, or set back.

    A case in which none does is returned as it is.
    """
    if not case.follows_clock:
        return case
    unit = scale.units[0]
    ahead = st.sampled_from([0, 0, 0, scale.step, unit, 5 * unit, 30 * unit, -scale.step, -3 * unit])
    return replace(case, clock=tuple(draw(st.lists(ahead, min_size=1, max_size=4))))


def untils(case: Case, scale: Scale) -> st.SearchStrategy[int | None]:
    """Draw ``until``, the bound on windows of endless lifetimes: None, far beyond all instants, or near the last or a window's.

    If the query alters lifetimes it is None or far. It is not before the last start or CTI: windows that time has reached are
    reported whatever the bound is.
    """
    far = case.latest + scale.reach
    if any(isinstance(node, AlterLifetime) for node in nodes(expanded(case.plan))):
        # moved events may start later than any that arrives
        return st.sampled_from([None, far])
    starts = [item.start for _, item in case.arrival if item.start is not None]
    least = max([*starts, *(cti for ctis in clock_ctis(case) for _, cti in ctis)], default=0)
    near = {edge + by for edge in scale.edges(least) for by in (-1, 0, 1)} | {case.latest, case.latest + 1}
    beside = sorted(at for at in near if at >= least)
    return st.one_of(st.none(), st.just(far), st.sampled_from(beside or [far]))


def _check_payload(plan: Node, intent: Intent) -> None:
    """Raise UnknownColumn if an intent has values for a column that no source has."""
    there = sorted({f.name for n in nodes(plan) if isinstance(n, Source) for f in n.payload})
    for name in intent.payload:
        if name not in there:
            raise UnknownColumn(
                "Intent", f"no source has a column {name!r}", f"there are: {', '.join(there)}", nearest(name, there)
            )


# random queries


@st.composite
def source_of(draw: Draw, name: str, kind: str, fields: tuple[Field, ...], axis: str = INTEGER) -> Node:
    """Draw a source of a kind (of KINDS or WITH_IDS) with these payload columns; a select removes its id, if any.

    The column of the id is called ``id``, or ``id2``, ``id3``, ... if a payload column is called so.
    """
    time = t.TimestampType() if axis == TIMESTAMP else t.LongType()
    named: tuple[Field, ...] = ()
    if kind.endswith("_ids"):
        id = free_name("id", {f.name.lower() for f in fields})
        named = (Field(id, draw(st.sampled_from([IDS["int"]] * 8 + list(IDS.values())))),)
    source: Source = room_of_shape(kind).drawn(draw, name, time, fields, named)
    return Select(source, tuple((f.name, Col(f.name)) for f in fields)) if named else source
