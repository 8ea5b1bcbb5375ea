"""Hypothesis strategies for late items and invalid rows; transformations of plans that give queries retractions or duplicates.

Policies are such that items are late by a tick, or just on time. Test framework, section 5.2: instead of writing retractions
by hand, put existing operators above the input that produce them, so that the query above these reads a stream rich in
corrections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.choices import ClipInput, Invalid, Stamp
from streamq.errors import PlanError, check_keywords
from streamq.operators import Select, Source, TopK, Union
from streamq.operators.source_arguments import SourcePolicy
from streamq.operators.top_k import RANK
from streamq.plan.expr import Col, Lit
from streamq.plan.node import Node
from streamq.progress_policies import ExplicitCtis
from streamq.runtime.deltas import CTI, INSERT
from streamq.runtime.kernel import FAIL, LATE_POLICIES
from streamq.stream import Stream
from streamq.testing.arrival import CLOSE, Item, Scale, delay_for, end_ticks, is_event
from streamq.testing.drawn_lifetimes import forbids_overlap
from streamq.testing.intent import Draw, Intent
from streamq.testing.progress_policies import policies_behind
from streamq.testing.sources.room import WEIGHTS, WEIGHTS_ON_TIME, Payloads, is_plain, room_of, unmatched
from streamq.windows import Snapshot

ON_TIME = "none"
"""The manner of a source without late items; other manners are names of late policies."""

NEVER = 1_000_000
"""The lag of progress, in units, under which no CTI passes an event before the end."""

FRESH = 100
"""The number from which ids are given to invalid rows, above those of all events."""

SMALL = 100
"""Numbers with a smaller absolute value have neighbours in every type."""

BESIDE = (0, 1, 0, -1, 2)
"""Steps by which progress has passed an instant of an item when it arrives; at 0 the item is on time, at 1 it is late."""


def manners(intent: Intent) -> st.SearchStrategy[str]:
    """Draw a word of the intent's ``late``; "none" is drawn most often, as late items mostly do not reach the answer."""
    words = intent.choices("late")
    often = {ON_TIME: 5, **{policy.name: weight for policy, weight in WEIGHTS.items()}}
    return st.sampled_from([word for word in words for _ in range(often[word])])


@st.composite
def late_intents(draw: Draw, intent: Intent, source: Source, manner: str) -> Intent:
    """Draw the intent for a source with late items: items are far out of order, and often come several times, so late together.

    Rows are delivered again only if events are never corrected and late items do not fail the query, as the model requires.
    """
    disorder = tuple(word for word in intent.choices("disorder") if word not in ("in_order", "slight"))
    again = manner != FAIL.name and source.insert_only
    often = again and intent.duplicates is None and not forbids_overlap(intent) and draw(st.booleans())
    return intent.but(disorder=disorder or intent.disorder, duplicates=often or (intent.duplicates if again else False))


@st.composite
def with_policy(
    draw: Draw, source: Source, items: list[Item], intent: Intent, scale: Scale, manner: str, explicit: bool
) -> tuple[Source, list[Item]]:
    """Draw the source's policy and return the source with it, and its items, late as ``manner`` says.

    ``explicit``: the CTIs among the items are the source's progress; else a policy is drawn that makes CTIs of starts or of the
    time of day. Under every policy, rows that are not events are dropped. Of ``intent`` only the liveliness of CTIs counts.
    """
    # no policy changes items that are on time
    policies = st.sampled_from([policy for policy, weight in WEIGHTS_ON_TIME.items() for _ in range(weight)])
    late = draw(policies) if manner == ON_TIME else LATE_POLICIES[manner]
    invalid = Invalid.DROP if unmatched(source, items) else None
    if explicit:
        items = items if manner == ON_TIME else draw(_with_violated_ctis(items, scale))
        return replace(source, policy=SourcePolicy(progress=ExplicitCtis(), late=late, invalid=invalid)), items
    # for items to be late by one tick, CTIs must mostly advance by single ticks
    every = draw(st.sampled_from([1] * (3 if manner == ON_TIME else 12) + [2, 3, *scale.units]))
    if manner == ON_TIME:
        lag = draw(st.sampled_from({"none": [NEVER], "lazy": [5, 1], "eager": [0]}[draw(liveliness(intent))]))
        delay = delay_for(items) + lag * scale.units[0]
    else:
        if room_of(source).late_by_start and not delay_for(items):
            items = draw(_with_one_delayed(items))
        delay = draw(_short_delays(items, scale))
    progress = draw(policies_behind(source, delay, every))
    return replace(source, policy=SourcePolicy(progress=progress, late=late, invalid=invalid)), items


def liveliness(intent: Intent) -> st.SearchStrategy[str]:
    """Draw a word of the intent's ``ctis``; rarely "none", as without CTIs nothing is reported before the end."""
    words = intent.choices("ctis")
    return st.sampled_from([w for w in words if w != "none"] * 3 + [w for w in words if w == "none"])


@st.composite
def _with_one_delayed(draw: Draw, items: list[Item]) -> list[Item]:
    """Return the items with one that starts earlier moved behind all that start last; as they are if all start together."""
    starts = [(i, item.start) for i, item in enumerate(items) if item.start is not None and is_event(item)]
    greatest = max((start for _, start in starts), default=0)
    earlier = [i for i, start in starts if start < greatest]
    if not earlier:
        return items
    i = draw(st.sampled_from(earlier))
    place = draw(st.integers(max(j for j, start in starts if start == greatest), len(items) - 1))
    return [*items[:i], *items[i + 1 : place + 1], items[i], *items[place + 1 :]]


@st.composite
def _short_delays(draw: Draw, items: Sequence[Item], scale: Scale) -> int:
    """Draw a delay that is too short for some item: progress has then reached one of the item's instants, or is beside it.

    Return 0 if the instants of each item lie after all starts before it.

    It may also have reached an instant of an earlier item that lies after this one, or, as lateness before windows depends on
    the windows' ends, the end of a window that the item starts in or lasts beyond.
    """
    greatest: int | None = None
    behind: set[int] = set()
    windows: set[int] = set()
    crossed: set[int] = set()
    ends: set[int] = set()
    beyond: set[int] = set()
    instants: set[int] = set()
    for item in items:
        if item.kind == CTI or item.start is None or not is_event(item):
            continue
        if greatest is not None:
            behind |= {greatest - time for time in (item.sync, *item.times) if greatest >= time}
            # instants of earlier items between this item and the greatest start
            beyond |= {greatest - time for time in instants if item.sync < time <= greatest}
            if item.end is not None and item.start < greatest:
                # nothing, or one step, remains of the item after progress
                left = [by * scale.step for by in (0, 1) if item.start < item.end - by * scale.step]
                ends |= {greatest - item.end + by for by in left if greatest + by >= item.end}
            passed = [end for end in scale.edges(item.start) if item.start < end <= greatest]
            windows |= {greatest - end for end in passed}
            # the item continues into the next window
            crossed |= {greatest - end for end in passed if item.kind == INSERT and end < end_ticks(item.end)}
        instants.update(item.times)
        if item.kind != CLOSE:
            greatest = item.start if greatest is None else max(greatest, item.start)
    if not behind:
        return 0
    # before windows, lateness depends mostly on their ends
    often = [behind, beyond, ends] * 2 if not windows else [behind, beyond, ends, *[windows] * 2, *[crossed] * 3]
    candidates = draw(st.sampled_from([delays for delays in often if delays]))
    if candidates is ends or candidates is crossed:
        return draw(st.sampled_from(sorted(candidates)))
    return max(0, draw(st.sampled_from(sorted(candidates))) - draw(st.sampled_from(BESIDE)) * scale.step)


@st.composite
def _with_violated_ctis(draw: Draw, items: list[Item], scale: Scale) -> list[Item]:
    """Return the items with one or two CTIs that an item soon after them violates, or just keeps: at or beside its instants.

    Items without events are returned as they are.
    """
    places = [i for i, item in enumerate(items) if item.kind != CTI and is_event(item)]
    if not places:
        return items
    chosen = draw(st.lists(st.sampled_from(places), min_size=1, max_size=2, unique=True))
    ctis = []
    for i in chosen:
        time = draw(st.sampled_from([items[i].sync, *items[i].times]))
        before = draw(st.integers(0, min(i, 2)))
        ctis.append((i - before, Item(CTI, time + draw(st.sampled_from(BESIDE)) * scale.step)))
    for place, cti in sorted(ctis, key=lambda pair: pair[0], reverse=True):
        items = [*items[:place], cti, *items[place:]]
    return items


# rows that are no events


@st.composite
def with_invalid(
    draw: Draw,
    source: Source,
    items: Sequence[Item],
    payloads: Payloads,
    intent: Intent,
    scale: Scale,
    number: Any,
    manner: str = ON_TIME,
) -> list[Item]:
    """Return the items with one or two invalid rows inserted, rarely or as the intent says; ``number`` makes an id of a number.

    If no item is late by ``manner``, the row may have the id and start of an event but differ from it. A row that would match an
    event by chance is left out.
    """
    rarely = {True: [True], False: [False], None: [False] * 4 + [True]}[intent.invalid]
    if not draw(st.sampled_from(rarely)):
        return list(items)
    items = list(items)
    id = room_of(source).id_of(source)
    if source.insert_only and id is not None and items and manner == ON_TIME and draw(st.booleans()):
        return draw(_with_contrary(source, items, intent, scale))
    for n in range(draw(st.integers(1, 2))):
        payload = draw(payloads)
        if id is not None:
            payload = {**payload, id: number(FRESH + n)}
        item = draw(_invalid(source, items, payload, scale))
        if n == 0 or item.kind != CLOSE:
            place = draw(st.integers(0, len(items)))
            more = [*items[:place], item, *items[place:]]
            # leave the row out if it would match an event by chance, which the model does not cover
            items = more if is_plain(source, more) or not is_plain(source, items) else items
    return items


@st.composite
def _with_contrary(draw: Draw, source: Source, items: list[Item], intent: Intent, scale: Scale) -> list[Item]:
    """Return the items with, somewhere after one of them, a copy of it with another end or another value in one column.

    The source keeps the lesser of the two if both arrive in one micro-batch, else the first. Columns for which the intent has
    values do not change; points without another column to change are returned as they are.
    """
    i = draw(st.integers(0, len(items) - 1))
    start, end, payload = items[i].start, items[i].end, items[i].payload
    assert start is not None
    free = [name for name in payload if name not in source.ids and name not in intent.payload]
    neighbours = {name: value for name in free if (value := _neighbour(payload[name])) is not None}
    place = draw(st.integers(i + 1, len(items)))
    if neighbours and (source.gives_points or draw(st.booleans())):
        name = draw(st.sampled_from(sorted(neighbours)))
        contrary = replace(items[i], payload={**payload, name: neighbours[name]})
    elif source.gives_points:
        return items
    else:
        by = draw(st.sampled_from([1, -1, 3, -3])) * scale.step
        moved = start + scale.step if end is None else max(start + scale.step, end + by)
        contrary = replace(items[i], end=moved + scale.step if moved == end else moved)
    return [*items[:place], contrary, *items[place:]]


def _neighbour(value: Any) -> Any:
    """Return a neighbouring value of the same type; None if there may be none, or none that Python and Spark order alike."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < SMALL:
        return value - 1
    if isinstance(value, float) and abs(value) < SMALL:
        return value - 0.25
    return f"{value}a" if isinstance(value, str) and value.isascii() else None


@st.composite
def _invalid(draw: Draw, source: Source, items: Sequence[Item], payload: Any, scale: Scale) -> Item:
    """Draw an item that is no event, beside the start of another."""
    starts = sorted({item.start for item in items if item.start is not None}) or [scale.anchor]
    return room_of(source).invalid(draw, items, draw(st.sampled_from(starts)), payload, scale)


@check_keywords
def make_speculative(stream: Stream) -> Stream:
    """Return a stream of the greatest events alive at each instant, whose rows are taken back when input arrives out of order.

    It groups by the first column that is neither nested nor a decimal, and keeps, over snapshots, the events with the greatest
    value in the last column that is not nested: all of them if they are equal in it, or if there is no such column.
    Events that arrive late split snapshots and change which event is the greatest, so that earlier rows are retracted. The result
    has the input's columns, but other lifetimes and fewer events. Raises PlanError for an object that is not a stream.

    >>> import streamq as sq
    >>> from streamq import testing as t
    >>> t.make_speculative(sq.events([(1, 9, {"k": "a", "v": 1}), (4, 6, {"k": "a", "v": 2})])).show()
    k  v  start  end
    a  1      1    4
    a  2      4    6
    a  1      6    9
    """
    events = _stream(stream, "make_speculative", "speculation")
    return events._derive(speculative(events.plan))


def speculative(stream: Node) -> Node:
    """Apply :func:`make_speculative` to a plan; columns are renamed meanwhile if one is called like the rank."""
    fields = stream.schema.fields
    if RANK in stream.schema.names:
        hidden = Select(stream, tuple((f"_{i}", Col(f.name)) for i, f in enumerate(fields)))
        return Select(speculative(hidden), tuple((f.name, Col(f"_{i}")) for i, f in enumerate(fields)))
    nested = (t.ArrayType, t.MapType, t.StructType)
    ordered = [f.name for f in fields if not isinstance(f.type, nested)]
    keys = [f.name for f in fields if not isinstance(f.type, (*nested, t.DecimalType))][:1]
    by = Col(ordered[-1]) if ordered else Lit(0)
    top = TopK(
        stream, tuple(keys), Snapshot(), k=1, by=by, desc=True, ties="keep", clip=ClipInput.FULL, stamp=Stamp.ALIGN
    )
    return Select(top, tuple((f.name, Col(f.name)) for f in fields))


@check_keywords
def inject_duplicates(stream: Stream) -> Stream:
    """Return the union of a stream with itself: every event and every retraction twice.

    Raises PlanError for an object that is not a stream.

    >>> import streamq as sq
    >>> from streamq import testing as t
    >>> t.inject_duplicates(sq.events([(1, 4, {"v": 3})])).show()
    v  start  end
    3      1    4
    3      1    4
    """
    events = _stream(stream, "inject_duplicates", "duplicates")
    return events._derive(double_events(events.plan))


def double_events(stream: Node) -> Node:
    """Apply :func:`inject_duplicates` to a plan."""
    return Union((stream, stream))


def _stream(argument: Any, verb: str, part: str) -> Stream:
    """Return a verb's argument if it is a stream; else raise PlanError, for a scenario with the intent's ``part`` as a hint."""
    if isinstance(argument, Stream):
        return argument
    # a scenario has an argument of its intent for this
    hint = (
        f"Write t.stream({part}=True)."
        if type(argument).__name__ == "Scenario"
        else "Make one, such as by sq.events(...)."
    )
    raise PlanError(verb, "takes a stream", f"found {type(argument).__name__}", hint)
