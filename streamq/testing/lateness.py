"""Late items and rows that are no events, drawn: policies under which what arrives is late by a tick, or just is not.

What becomes of them is the business of ``streamq.testing.admission``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from streamq.choices import Invalid
from streamq.operators import Source
from streamq.operators.source_policy import SourcePolicy
from streamq.plan.keys import has_equality
from streamq.progress.explicit import ExplicitCtis
from streamq.progress.generate import GeneratedCtis, PartitionCtis
from streamq.runtime.event import CTI, INSERT
from streamq.runtime.late_policies import LATE_POLICIES
from streamq.testing.arrival import CLOSE, Item, closed, delay_for, is_event
from streamq.testing.events import Payloads
from streamq.testing.intent import Intent
from streamq.testing.late_policies import ROOMS, WEIGHTS, fails
from streamq.testing.progress.room import MINUTE
from streamq.testing.scale import Scale
from streamq.testing.sources.room import is_plain, room_of, unmatched

Draw = Callable[[st.SearchStrategy[Any]], Any]

ON_TIME = "none"
"""Nothing is late."""

NEVER = 1_000_000
"""How many units progress lags behind where it is not to be lively."""

FRESH = 100
"""The first number of ids that no event has."""

SMALL = 100
"""Numbers below have others beside them in any type."""

BESIDE = (0, 1, 0, -1, 2)
"""How many steps beyond an instant of an item progress is when it arrives: at it the item is on time, one beyond late."""


def manners(intent: Intent) -> st.SearchStrategy[str]:
    """What of a source is late, and its policy: mostly nothing is, for what is late is mostly gone."""
    words = intent.choices("late")
    often = {ON_TIME: 5, **WEIGHTS}
    return st.sampled_from([word for word in words for _ in range(often[word])])


def modelled(intent: Intent, source: Source, manner: str) -> Intent:
    """The intent for late items: far out of order; only sources whose events are never corrected deliver rows again."""
    disorder = tuple(word for word in intent.choices("disorder") if word not in ("in_order", "slight"))
    again = not fails(manner) and source.insert_only
    return intent.but(disorder=disorder or intent.disorder, duplicates=intent.duplicates if again else False)


@st.composite
def policed(
    draw: Draw, source: Source, items: list[Item], intent: Intent, scale: Scale, manner: str, explicit: bool
) -> tuple[Source, list[Item]]:
    """A source with its policy and what arrives at it, late as ``manner`` says; ``explicit``: its CTIs are its progress."""
    # what is on time no policy changes
    policies = st.sampled_from([policy for policy, room in ROOMS.items() for _ in range(room.weight_on_time)])
    late = draw(policies) if manner == ON_TIME else LATE_POLICIES[manner]
    invalid = Invalid.DROP if unmatched(source, items) else None
    if explicit:
        items = items if manner == ON_TIME else draw(_broken(items, scale))
        return replace(source, policy=SourcePolicy(progress=ExplicitCtis(), late=late, invalid=invalid)), items
    # where something is to be late to the tick, progress mostly counts ticks
    every = draw(st.sampled_from([1] * (3 if manner == ON_TIME else 12) + [2, 3, *scale.units]))
    if manner == ON_TIME:
        lag = draw(st.sampled_from({"none": [NEVER], "lazy": [5, 1], "eager": [0]}[draw(liveliness(intent))]))
        delay = delay_for(items) + lag * scale.units[0]
    else:
        if room_of(source).late_by_start and not delay_for(items):
            items = draw(_one_behind(items))
        delay = draw(_short(items, scale))
    progress = draw(_per_partition(source, GeneratedCtis(delay=delay, every=every), manner == ON_TIME))
    return replace(source, policy=SourcePolicy(progress=progress, late=late, invalid=invalid)), items


@st.composite
def _per_partition(draw: Draw, source: Source, progress: GeneratedCtis, often: bool) -> GeneratedCtis:
    """Draw now and then the same for each partition of a source, some of which may fall idle; then little is late."""
    columns = [f.name for f in source.payload if has_equality(f.type)]
    if not columns or not draw(st.sampled_from([False] * (3 if often else 5) + [True])):
        return progress
    per = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2, unique=True))
    micro_batches = draw(st.sampled_from([None, 1, 2, 3]))
    idle_after = None if micro_batches is None else micro_batches * MINUTE
    return PartitionCtis(progress.delay, progress.every, idle_after=idle_after, per=tuple(per))


def liveliness(intent: Intent) -> st.SearchStrategy[str]:
    """How lively progress is: before the end nothing happens where there is none, so that comes least."""
    words = intent.choices("ctis")
    return st.sampled_from([w for w in words if w != "none"] * 3 + [w for w in words if w == "none"])


@st.composite
def _one_behind(draw: Draw, items: list[Item]) -> list[Item]:
    """Items that came in order, one of them behind another that starts later, if they do not all start together."""
    starts = [(i, item.start) for i, item in enumerate(items) if item.start is not None and is_event(item)]
    greatest = max((start for _, start in starts), default=0)
    earlier = [i for i, start in starts if start < greatest]
    if not earlier:
        return items
    i = draw(st.sampled_from(earlier))
    place = draw(st.integers(max(j for j, start in starts if start == greatest), len(items) - 1))
    return [*items[:i], *items[i + 1 : place + 1], items[i], *items[place + 1 :]]


@st.composite
def _short(draw: Draw, items: Sequence[Item], scale: Scale) -> int:
    """A delay that some item overruns: when it arrives, progress is at one of its instants, or a step or two beside it.

    Or at an instant of an item that came before it, and lies behind it. Or where a window ends that it starts in, or that it
    goes on behind: in front of windows lateness goes by those.
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
            # where others begin or end that came before it, and lie behind it
            beyond |= {greatest - time for time in instants if item.sync < time <= greatest}
            if item.end is not None and item.start < greatest:
                # what is left from there on is nothing, or a tick
                left = [by * scale.step for by in (0, 1) if item.start < item.end - by * scale.step]
                ends |= {greatest - item.end + by for by in left if greatest + by >= item.end}
            passed = [end for end in scale.edges(item.start) if item.start < end <= greatest]
            windows |= {greatest - end for end in passed}
            # what is left of it lies in the window that begins there
            crossed |= {greatest - end for end in passed if item.kind == INSERT and end < closed(item.end)}
        instants.update(item.times)
        if item.kind != CLOSE:
            greatest = item.start if greatest is None else max(greatest, item.start)
    if not behind:
        return 0
    # in front of windows hardly anything is late but by their ends
    often = [behind, beyond, ends] * 2 if not windows else [behind, beyond, ends, *[windows] * 2, *[crossed] * 3]
    candidates = draw(st.sampled_from([some for some in often if some]))
    if candidates is ends or candidates is crossed:
        return draw(st.sampled_from(sorted(candidates)))
    return max(0, draw(st.sampled_from(sorted(candidates))) - draw(st.sampled_from(BESIDE)) * scale.step)


@st.composite
def _broken(draw: Draw, items: list[Item], scale: Scale) -> list[Item]:
    """With one CTI more, or two, that items which follow break: at one of their instants, or a step or two beside it."""
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
    """Now and then a row or two between them that are no events; ``number`` makes an id.

    Where nothing is late as ``manner`` says, such a row may have the id and start of an event, and differ from it.
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
            # an event that happens to have its start and payload may be what it names
            items = more if is_plain(source, more) or not is_plain(source, items) else items
    return items


@st.composite
def _with_contrary(draw: Draw, source: Source, items: list[Item], intent: Intent, scale: Scale) -> list[Item]:
    """Insert a copy of one item behind it, with another end or another value in one column.

    The source keeps the lesser if both come in one micro-batch, else the first. Columns whose values a user gives stay.
    """
    i = draw(st.integers(0, len(items) - 1))
    start, end, payload = items[i].start, items[i].end, items[i].payload
    assert start is not None
    free = [name for name in payload if name not in source.ids and name not in intent.payload]
    neighbours = {name: value for name in free if (value := _beside(payload[name])) is not None}
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


def _beside(value: Any) -> Any:
    """Another value of its type; None for one that may have none, or none that Python orders as Spark does."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < SMALL:
        return value - 1
    if isinstance(value, float) and abs(value) < SMALL:
        return value - 0.25
    return f"{value}a" if isinstance(value, str) and value.isascii() else None


@st.composite
def _invalid(draw: Draw, source: Source, items: Sequence[Item], payload: Any, scale: Scale) -> Item:
    starts = sorted({item.start for item in items if item.start is not None}) or [scale.anchor]
    return room_of(source).invalid(draw, items, draw(st.sampled_from(starts)), payload, scale)


__all__ = ["NEVER", "ON_TIME", "liveliness", "manners", "modelled", "policed", "with_invalid"]
