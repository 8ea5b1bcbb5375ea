"""Random cases, as Hypothesis strategies: queries over sources of every kind, and what arrives at a given query's sources.

Needs ``hypothesis``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.errors import PlanError, UnknownColumn, nearest, sentence
from streamq.operators import AlterLifetime, JoinTable, Select, Source
from streamq.plan.expr import Col
from streamq.plan.folding import fold
from streamq.plan.node import Node, expanded, nodes, numbered
from streamq.plan.schema import Field, Schema
from streamq.runtime.event import CTI, RETRACT
from streamq.testing.arrival import Item, delay_for
from streamq.testing.case import Arrival, Case, Meant
from streamq.testing.column_uses import NO_USES, Uses, near, uses
from streamq.testing.drawn_expressions import matched
from streamq.testing.drawn_lifetimes import apart
from streamq.testing.intent import ANYTHING, Intent
from streamq.testing.lateness import ON_TIME, manners, modelled, policed, with_invalid
from streamq.testing.meetings import met
from streamq.testing.payload_types import IDS, NESTED, NUMBERS, OTHERS, key_types, value_types
from streamq.testing.payload_values import numbered_value, twin
from streamq.testing.payloads import palettes
from streamq.testing.queries import queries
from streamq.testing.scale import TICKS, Scale, scale
from streamq.testing.sources.room import Arriving, room_of, room_of_shape, rooms
from streamq.testing.speculative import doubled, speculative
from streamq.testing.static_tables import static
from streamq.time import INTEGER, TIMESTAMP, ticks

Draw = Callable[[st.SearchStrategy[Any]], Any]

TYPES: Mapping[str, t.DataType] = {**OTHERS, **NUMBERS, **NESTED, "decimal": NUMBERS["decimal(5,2)"]}
"""Types of columns ``k`` and ``v`` by name."""

KINDS = tuple(shape for room in rooms().values() for shape in room.shapes)
"""Kinds of sources."""

WITH_IDS = tuple(shape for room in rooms().values() for shape in room.shapes_on_request)
"""Kinds that are drawn where they are asked for."""


@st.composite
def arriving(
    draw: Draw,
    source: Source,
    intent: Intent,
    scale: Scale = TICKS,
    compared: Sequence[Any] = (),
    explicit: bool | None = None,
    causal: bool | None = None,
    used: Uses = NO_USES,
    late: bool = False,
) -> tuple[Source, list[Item]]:
    """What arrives at a source, in order, and the source with its policy; nothing of it is late, or no event, but if ``late``.

    ``compared``: values that the query compares with; ``explicit``: whether CTIs come as items, where they can (None:
    drawn); ``causal`` as in :func:`streamq.testing.events.physical`; ``used``: what the query does with columns.
    """
    manner = draw(manners(intent)) if late else ON_TIME
    if manner != ON_TIME:
        intent, causal = modelled(intent, source, manner), True
    room = room_of(source)
    id = room.id_of(source)
    number = _numbering(source, id)
    payloads = draw(palettes([f for f in source.payload if f.name != id], intent, compared, used))
    twins = draw(st.sampled_from(TWINS))

    def in_turn(items: list[Item]) -> list[Item]:
        return [_twin(item, intent) if twins and i % twins == 0 else item for i, item in enumerate(items)]

    if CTI in room.items and explicit is None:
        explicit = draw(st.booleans())
    how = Arriving(payloads, intent, scale, id, number, bool(explicit), causal)
    items = room.arriving(draw, source, how)
    if late:
        items = draw(with_invalid(source, items, payloads, intent, scale, number=number, manner=manner))
    return draw(policed(source, in_turn(items), intent, scale, manner, bool(explicit)))


TWINS = (0, 0, 2, 3)
"""Every how many items one has its values in other bits (0: none), so that equal ones meet: 0.0 and -0.0."""


def _twin(item: Item, intent: Intent) -> Item:
    """The same item with its values in other bits, but for those that a user gave."""
    values = {name: value if name in intent.payload else twin(value) for name, value in item.payload.items()}
    return replace(item, payload=values)


def _numbering(source: Source, id: str | None) -> Callable[[int], Any]:
    kinds = {f.name: f.type for f in source.columns}
    if id is None:
        return lambda n: n
    if type(kinds[id]) in {type(kind) for kind in IDS.values()}:
        return lambda n: numbered_value(kinds[id], n)
    instead = f"column {id!r} is {kinds[id].simpleString()}"
    raise PlanError(sentence("testing", "ids of a type that has too few values, or parts", instead))


@st.composite
def interleaved(draw: Draw, streams: Mapping[str, Sequence[Item]]) -> Arrival:
    """What arrives at several sources, in one order; each keeps its own. Some fall silent long before others do."""
    left = [[(name, item) for item in items] for name, items in streams.items()]
    arrival: list[tuple[str, Item]] = []
    turns = itertools.cycle(draw(st.lists(st.integers(0, len(left) - 1), max_size=8)) or [0])
    while any(left):
        turn = next(turns)
        arrival.append((left[turn] or next(items for items in left if items)).pop(0))
    return tuple(arrival)


def cuts(n: int, finely: bool = False) -> st.SearchStrategy[tuple[int, ...]]:
    """Lengths of the micro-batches that a sequence of ``n`` rows is cut into; ``finely``: half of the time one row or two each.

    An item is late by what came in earlier micro-batches. More than ten are seldom: a micro-batch takes longer than its rows.
    """
    if n < 2:
        return st.just((n,) if n else ())
    # all at once there is nothing to be incremental about: that is the dullest, so it comes least
    singly, some = st.just(set(range(1, n))), st.sets(st.integers(1, n - 1), min_size=1)
    step = -(-n // 10)
    evenly = st.integers(1, step).map(lambda first: set(range(first, n, step)))
    kinds = [singly, evenly, some, some] if finely else [st.just(set()), evenly, some, singly, evenly, some]
    places = st.sampled_from(kinds).flatmap(lambda kind: kind)
    lengths = places.map(lambda at: tuple(b - a for a, b in itertools.pairwise([0, *sorted(at), n])))
    # now and then a micro-batch brings nothing
    empty = st.sampled_from([None, None, None, None, 0, 1, 2])
    return st.builds(lambda cut, at: cut if at is None else (*cut[:at], 0, *cut[at:]), lengths, empty)


@st.composite
def cases_of(
    draw: Draw,
    plan: Node,
    intent: Intent = ANYTHING,
    tables: Mapping[str, Any] | None = None,
    intents: Mapping[str, Intent] | None = None,
    meant: Meant | None = None,
) -> Case:
    """A given query over what an intent describes; ``tables`` are those that it looks up.

    ``intents`` say of single sources what the common one leaves open; ``meant`` is what the query's verbs mean, where they have
    made another plan.

    The query is as given but for its sources' policies, and for what an intent of speculation or duplicates puts above
    its sources.
    """
    plan, names = numbered(plan)
    _check_payload(plan, intent)
    tables = {names.get(name, name): table for name, table in (tables or {}).items()}
    query_scale = scale(plan)
    if intent.unit is not None:
        query_scale = query_scale.of(ticks(intent.unit, plan.schema.axis, "Intent"))
    compared, used = near(plan), uses(plan)
    close = draw(met(plan, intent, query_scale, compared))
    intent_of = {**close, **{n: i.completed(close.get(n, intent)) for n, i in (intents or {}).items()}}
    arrivals = {
        n.table: draw(arriving(n, intent_of.get(n.table, intent), query_scale, compared, used=used, late=True))
        for n in nodes(plan)
        if isinstance(n, Source)
    }
    speculate = draw(st.sampled_from({True: [True], False: [False], None: [False] * 5 + [True]}[intent.speculation]))
    rarely = [False] * 5 + [True] * (not apart(intent))
    double = draw(st.sampled_from({True: [True], False: [False], None: rarely}[intent.duplicates]))

    if meant is not None:
        # so that the verbs as they were called are over the sources themselves
        speculate = double = False

    def visit(node: Node, inputs: list[Node]) -> Node:
        if not isinstance(node, Source):
            return node.with_children(inputs)
        if node.table not in arrivals:
            # verbs name it, and the plan that they have made is without it
            return node
        above: Node = arrivals[node.table][0]
        if speculate and RETRACT not in room_of(node).items:
            above = speculative(above)
        return doubled(above) if double else above

    streams = {name: items for name, (_, items) in arrivals.items()}
    if len(streams) > 1 and draw(st.sampled_from([False] * 9 + [True])):
        # a source that brings nothing
        streams[draw(st.sampled_from(sorted(streams)))] = []
    arrival = draw(interleaved(streams))
    looked_up = {n.table: tables[n.table] for n in nodes(plan) if isinstance(n, JoinTable)}
    finely = any(source.policy.progress.lag < delay_for(items) for source, items in arrivals.values())
    if meant is not None:
        meant = replace(meant, plan=fold(meant.plan, visit))
    case = Case(fold(plan, visit), arrival, draw(cuts(len(arrival), finely)), static=looked_up, meant=meant)
    return replace(case, until=draw(untils(case, query_scale)))


def untils(case: Case, scale: Scale) -> st.SearchStrategy[int | None]:
    """Bounds on windows of lifetimes without an end: none, far beyond them all, where windows begin or end, or beside that.

    What time has reached is reported whatever the bound is, so it does not lie before the last start, or CTI.
    """
    far = case.latest + scale.reach
    if any(isinstance(node, AlterLifetime) for node in nodes(expanded(case.plan))):
        # what it moves may start later than any event that arrives
        return st.sampled_from([None, far])
    come = max((item.start for _, item in case.arrival if item.start is not None), default=0)
    near = {edge + by for edge in scale.edges(come) for by in (-1, 0, 1)} | {case.latest, case.latest + 1}
    beside = sorted(at for at in near if at >= come)
    return st.one_of(st.none(), st.just(far), st.sampled_from(beside or [far]))


def _check_payload(plan: Node, intent: Intent) -> None:
    """Values for a column that no source has would be given to nobody."""
    there = sorted({f.name for n in nodes(plan) if isinstance(n, Source) for f in n.payload})
    for name in intent.payload:
        if name not in there:
            raise UnknownColumn(
                sentence(
                    "Intent", f"no source has a column {name!r}", f"there are: {', '.join(there)}", nearest(name, there)
                )
            )


# random queries


@dataclass(frozen=True)
class DrawnSource:
    """A source, what arrives at it, and a plan over it with payload ``k, v``."""

    source: Source
    items: tuple[Item, ...]
    plan: Node


@st.composite
def source_of(draw: Draw, name: str, kind: str, fields: tuple[Field, ...], axis: str = INTEGER) -> Node:
    """A source of a kind (of KINDS or WITH_IDS) with a payload; ids are then left out again."""
    time = t.TimestampType() if axis == TIMESTAMP else t.LongType()
    named = (
        (Field("id", draw(st.sampled_from([IDS["int"]] * 8 + list(IDS.values())))),) if kind.endswith("_ids") else ()
    )
    source: Source = room_of_shape(kind).drawn(draw, name, time, fields, named)
    return Select(source, tuple((f.name, Col(f.name)) for f in fields)) if named else source


@st.composite
def sources(
    draw: Draw,
    name: str,
    kind: str = "intervals",
    key: t.DataType = OTHERS["string"],
    value: t.DataType = NUMBERS["int"],
    axis: str = INTEGER,
    causal: bool | None = None,
    intent: Intent = ANYTHING,
) -> DrawnSource:
    """A source of a kind (of KINDS or WITH_IDS) under whose policy nothing is late."""
    plan = draw(source_of(name, kind, (Field("k", key), Field("v", value)), axis))
    bare = nodes(plan)[0]
    assert isinstance(bare, Source)
    source, items = draw(arriving(bare, intent, causal=causal))
    return DrawnSource(source, tuple(items), plan.with_children([source]) if plan.children else source)


@st.composite
def cases(
    draw: Draw,
    kinds: Sequence[str] = KINDS,
    values: Sequence[str] | None = None,
    axes: Sequence[str] = (INTEGER, TIMESTAMP),
    most_sources: int = 2,
    depth: int = 2,
    reads_end: bool = True,
    causal: bool | None = None,
    query: Callable[[Sequence[Node]], st.SearchStrategy[Node]] | None = None,
    intent: Intent = ANYTHING,
) -> Case:
    """A query over one or two sources called ``a`` and ``b``, what arrives at them, and a cut of it.

    ``kinds`` of sources, ``values``: types of column ``v`` by name (None: any), ``axes`` of time;
    ``reads_end`` as in :func:`queries`; ``causal``
    as in :func:`streamq.testing.events.physical`; ``query``: plans over the inputs, if not any of :func:`queries`.
    """
    key = draw(key_types())[0]
    value = draw(value_types())[0] if values is None else TYPES[draw(st.sampled_from(values))]
    axis = draw(st.sampled_from(axes))
    if not matched(Schema((Field("k", key),), axis), ["k"]):
        kinds = [kind for kind in kinds if not room_of_shape(kind).goes_by_key] or ["intervals"]
    drawn_sources = [
        draw(sources(name, draw(st.sampled_from(kinds)), key, value, axis=axis, causal=causal, intent=intent))
        for name in "ab"[: draw(st.integers(1, most_sources))]
    ]
    inputs = [a.plan for a in drawn_sources]
    plan = draw(query(inputs) if query else queries(inputs, depth, reads_end))
    arrival = draw(interleaved({a.source.table: a.items for a in drawn_sources}))
    looked_up = {n.table: static(n.table) for n in nodes(plan) if isinstance(n, JoinTable)}
    return Case(plan, arrival, draw(cuts(len(arrival))), static=looked_up)


__all__ = [
    "KINDS",
    "TYPES",
    "WITH_IDS",
    "DrawnSource",
    "arriving",
    "cases",
    "cases_of",
    "cuts",
    "interleaved",
    "source_of",
    "sources",
    "untils",
]
