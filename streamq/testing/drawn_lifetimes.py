"""Hypothesis strategies for lifetimes that an intent describes, at the scale of a query, and for the order of their arrival.

Each event is placed relative to the ones before it; shrinking leads to few events in order.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from streamq.errors import PlanError
from streamq.runtime.deltas import CTI, INSERT, RETRACT
from streamq.testing.arrival import Item, Scale, bounds, comparable, end_ticks
from streamq.testing.intent import Draw, Intent
from streamq.time import INFINITY

COARSE = 4
"""The spacing, in units, of the grid to which starts are rounded so that some coincide."""

APART = {"none", "back_to_back", "off_by_one"}
"""Values of an intent's ``overlap`` for which events share at most a tick."""

LONGEST = {"point": 0, "short": 5, "long": 30, "infinite": 1_000_000}
"""The greatest length of a finite lifetime, in units, for each value of an intent's ``duration``."""


SHORTEST = {"point": 0, "short": 1, "long": 10}
"""The least length, in units, of a lifetime of each finite duration."""


@dataclass(frozen=True)
class _Placement:
    """The position of one event relative to another instant, and its length.

    ``place``: the kind of instant, and the distance of the start from it in units (of ``unit`` ticks), ticks and steps.
    ``lasts``: the length in units and ticks, None for an endless event; ``lasts_steps``: steps added to it. ``meets``: the number
    of the instant after the start at which the event ends, and a distance from it in steps; None if it ends at none.
    """

    place: tuple[str, int, int, int]
    unit: int
    lasts: tuple[int, int] | None
    lasts_steps: int
    meets: tuple[int, int] | None = None

    @property
    def exact(self) -> bool:
        """True if the start is at a window's bound, or one of the query's lengths away from another instant."""
        return bool(self.place[2]) or self.place[0] == "edge"

    def lifetime(
        self, before: tuple[int, int] | None, latest: int, scale: Scale, instants: Sequence[int], longest: int
    ) -> tuple[int, int]:
        """Return start and end in ticks.

        ``before`` is the previous event (None: this is the first), ``latest`` the greatest finite end so far, ``instants`` are
        all instants so far. ``longest`` is the greatest length, in units, of an event that ends at or beside another instant.
        """
        where, units, exactly, steps = self.place
        by = units * self.unit + exactly + steps * scale.step
        match where:
            case "edge":
                start = exactly + steps * scale.step
            case "end" if before and before[1] < INFINITY:
                start = before[1] + by
            case "start" | "end" if before:
                start = before[0] + by
            case "latest" if before:
                start = max(latest, before[0] + scale.step) + by
            case _:
                start = scale.anchor + by
        if self.lasts is None:
            return start, INFINITY
        units, exactly = self.lasts
        if self.meets is not None:
            which, beside = self.meets
            last = start + longest * self.unit
            after = [end for t in instants if start < (end := t + beside * scale.step) <= last]
            if after:
                return start, max(start + scale.step, after[which % len(after)])
        return start, start + max(scale.step, units * self.unit + exactly + self.lasts_steps * scale.step)


def _places(overlap: str, scale: Scale) -> st.SearchStrategy[tuple[str, int, int, int]]:
    """Draw the ``place`` of an event for an overlap: the kind of instant, and units, ticks and steps from it to the start."""
    beside, zero = st.sampled_from([0, 0, -1, 1]), st.just(0)
    match overlap:
        case "none":
            return st.tuples(st.just("latest"), st.integers(0, 4), zero, zero)
        case "low":
            return st.tuples(st.just("start"), st.integers(2, 12), zero, beside)
        case "medium":
            return st.tuples(st.just("anchor"), st.integers(-12, 25), zero, beside if scale.is_coarse else zero)
        case "boundary" if scale.lengths:
            away = st.tuples(st.sampled_from(["start", "end"]), zero, st.sampled_from(scale.lengths), beside)
            edges = scale.edges(scale.anchor)
            return st.one_of(away, st.tuples(st.just("edge"), zero, st.sampled_from(edges), beside)) if edges else away
        case "high" | "boundary":
            near = st.tuples(st.sampled_from(["start", "end"]), zero, zero, beside)
            return st.one_of(st.tuples(st.just("anchor"), st.integers(0, 4), zero, beside), near)
        case "back_to_back":
            return st.tuples(st.just("end"), zero, zero, zero)
        case _:
            return st.tuples(st.just("end"), zero, zero, st.sampled_from([1, -1]))


def _of_duration(duration: str) -> st.SearchStrategy[tuple[int, int] | None]:
    """Draw the length of an event that lasts as long as a duration says, as :func:`_lengths` does."""
    if duration == "infinite":
        return st.none()
    return st.tuples(st.integers(SHORTEST[duration], LONGEST[duration]), st.just(0))


def _lengths(duration: str, scale: Scale) -> st.SearchStrategy[tuple[int, int] | None]:
    """Draw the length of an event for a duration, in units and ticks: (0, 0) for a point, None for an endless event."""
    point, short, long = map(_of_duration, SHORTEST)
    if scale.lengths:
        short = st.one_of(short, st.tuples(st.just(0), st.sampled_from(scale.lengths)))
    # if windows are many ticks long, draw points seldom
    spans = [short] * 4 if scale.is_coarse else [short]
    match duration:
        case "point":
            return point
        case "short":
            return st.one_of(point, *spans)
        case "long":
            return st.one_of(point, *spans, *[long] * len(spans))
        case _:
            return st.one_of(point, *spans, *[long] * len(spans), st.none(), *[st.none()] * scale.is_coarse)


@functools.lru_cache(128)
def _placements(
    overlaps: tuple[str, ...], durations: tuple[str, ...], prevailing: str | None, scale: Scale, most: int
) -> st.SearchStrategy[list[_Placement]]:
    """Return the strategy for at most ``most`` events, each with any of these overlaps and durations.

    Half of the events have the length of the duration ``prevailing``, if there is one. The strategy is cached: building it anew
    took a third of the time of drawing.
    """
    steps = st.sampled_from([0, 0, 0, -1, 1]) if scale.is_coarse else st.just(0)
    # many events end where another one begins or ends
    meets = st.tuples(st.integers(0, 5), st.sampled_from([0, 0, -1, 1]))
    meeting: st.SearchStrategy[tuple[int, int] | None] = st.one_of(st.none(), st.none(), meets)
    lasting = st.one_of(*(_lengths(duration, scale) for duration in durations))
    if prevailing is not None:
        # a list of two, as one_of would weigh the parts of the second one by one
        lasting = st.sampled_from([_of_duration(prevailing), lasting]).flatmap(lambda length: length)
    placed = st.builds(
        lambda place, unit, lasts, by, meets: _Placement(
            place, unit, lasts, by if lasts and any(lasts) else 0, meets if lasts and any(lasts) else None
        ),
        st.one_of(*(_places(overlap, scale) for overlap in overlaps)),
        st.sampled_from(scale.units),
        lasting,
        steps,
        st.none() if set(overlaps) <= APART else meeting,
    )
    return long_lists(placed, most)


@st.composite
def lifetimes(draw: Draw, intent: Intent, scale: Scale) -> list[tuple[int, int]]:
    """Draw starts and ends in ticks, each event placed relative to the ones before it, or as the intent's pattern yields them.

    Where events are not to overlap, only the last one may be endless. Their order is that of drawing: starts need not rise.
    """
    if intent.pattern is not None:
        many, seed = draw(st.integers(0, intent.events)), draw(st.integers(0, 2**32 - 1))
        return _checked_pattern(intent.pattern(random.Random(seed), many))
    overlaps, durations = intent.choices("overlap"), intent.choices("duration")
    every = (draw(st.sampled_from(overlaps)),) if draw(st.booleans()) else tuple(overlaps)
    prevailing = draw(st.sampled_from([None] * 4 + list(durations)))
    apart = set(every) <= APART
    spans: list[tuple[int, int]] = []
    latest = -INFINITY
    longest = max(LONGEST[duration] for duration in durations)
    instants = set(scale.edges(scale.anchor))
    # if events start anywhere, hardly two starts coincide, so half of the time starts are rounded to a grid
    grid = (
        COARSE * scale.units[0] if {"medium", "high", "boundary"} & set(every) and draw(st.booleans()) else scale.step
    )
    recipes = draw(_placements(every, tuple(durations), prevailing, scale, intent.events))
    for i, recipe in enumerate(recipes):
        start, end = recipe.lifetime(spans[-1] if spans else None, latest, scale, sorted(instants), longest)
        early = 0 if recipe.exact else (start - scale.anchor) % grid
        span = (start - early, end - early if end < INFINITY else end)
        if apart and span[1] == INFINITY and i < len(recipes) - 1:
            # an endless event would overlap all that follow
            span = (span[0], span[0] + scale.units[0])
        spans.append(span)
        instants |= {time for time in span if time < INFINITY}
        latest = max(latest, span[1]) if span[1] < INFINITY else latest
    return spans


def _checked_pattern(pairs: Any) -> list[tuple[int, int]]:
    """Return the lifetimes that a user's pattern yields, an end of None as INFINITY.

    Raises PlanError if one is not a pair of whole ticks with the start before the end.
    """
    wrong = "a pattern yields pairs (start, end) in whole ticks, where end is greater than start, or None"
    try:
        spans = [(start, end_ticks(end)) for start, end in pairs]
    except (TypeError, ValueError) as error:
        raise PlanError("Intent", wrong, f"found {pairs!r}") from error
    for start, end in spans:
        if not (isinstance(start, int) and isinstance(end, int) and start < end):
            raise PlanError("Intent", wrong, f"found {(start, None if end == INFINITY else end)!r}")
    return spans


def long_lists(elements: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[list[Any]]:
    """Draw lists of one to ``most`` elements, mostly of at least half as many; Hypothesis' own lists are mostly very short."""
    long = st.lists(elements, min_size=most // 2, max_size=most)
    return st.one_of(st.lists(elements, min_size=min(1, most), max_size=most), long, long)


def forbids_overlap(intent: Intent) -> bool:
    """True if an intent allows no two events to be alive at once, save for a tick."""
    return intent.overlap is not None and set(intent.choices("overlap")) <= APART


# arrival


def copies(intent: Intent) -> st.SearchStrategy[int]:
    """Draw how many times an item is delivered: one to three times if the intent asks for duplicates, else mostly once.

    It is always once if the intent forbids duplicates, or leaves them open and forbids overlap.
    """
    if intent.duplicates is None and forbids_overlap(intent):
        return st.just(1)
    match intent.duplicates:
        case True:
            return st.sampled_from([2, 1, 3])
        case False:
            return st.just(1)
    return st.sampled_from([1, 1, 1, 2])


class DuplicateFilter:
    """Rejects repeated events if the intent forbids duplicates."""

    def __init__(self, intent: Intent):
        self.seen: set[Any] | None = set() if intent.duplicates is False else None

    def is_new(self, item: Item) -> bool:
        """True if duplicates are allowed, or no equal event has been passed to this method before."""
        if self.seen is None:
            return True
        event = (item.start, item.end, *((n, comparable(v)) for n, v in sorted(item.payload.items())))
        new = event not in self.seen
        self.seen.add(event)
        return new


SLIGHT, OUT_OF_ORDER, HIGHLY = 2, 5, 12
"""The greatest number of places by which an item is delayed."""


@st.composite
def arranged(draw: Draw, items: Sequence[tuple[int, Item]], intent: Intent, causal: bool) -> list[Item]:
    """Order (chain, item) pairs by sync time, then delay some of them; if ``causal``, the items of one chain keep their order.

    Where the intent allows much disorder, all retractions may follow all events, so that they change windows already reported,
    and unless ``causal`` the retractions of one event may come in reverse. Equal items are mostly delayed alike.
    """
    kind = draw(st.sampled_from(intent.choices("disorder")))
    most = {"in_order": 0, "slight": SLIGHT, "out_of_order": OUT_OF_ORDER}.get(kind, HIGHLY)
    lags = draw(st.lists(st.integers(0, most), max_size=8, min_size=min(most, 4))) if most else []
    far = most >= OUT_OF_ORDER and any(item.kind == RETRACT for _, item in items)
    afterwards = far and draw(st.booleans())
    backwards = far and not causal and draw(st.sampled_from([False, True, True, True]))
    firsts = {chain: i for i, (chain, _) in reversed(list(enumerate(items)))}
    # an event that was moved follows its deletion directly
    behind = [i - (item.kind == INSERT and firsts[chain] < i) for i, (chain, item) in enumerate(items)]
    order = sorted(range(len(items)), key=lambda i: (afterwards and firsts[items[i][0]] != i, items[behind[i]][1].sync))
    if lags:
        late_by = [i + lag for i, lag in zip(range(len(order)), itertools.cycle(lags))]
        if draw(st.sampled_from([True, True, False])):
            # equal items stay together, so that they are late together
            for i in range(1, len(order)):
                if items[order[i]][1] == items[order[i - 1]][1]:
                    late_by[i] = late_by[i - 1]
        order = [order[i] for i in sorted(range(len(order)), key=lambda i: (late_by[i], i))]
    if backwards:
        order = _backwards(items, order)
    if not causal:
        return [items[i][1] for i in order]
    chains: dict[int, list[int]] = {}
    for i in sorted(order):
        chains.setdefault(items[i][0], []).append(i)
    return [items[chains[items[i][0]].pop(0)][1] for i in order]


def _backwards(items: Sequence[tuple[int, Item]], order: Sequence[int]) -> list[int]:
    """Return ``order`` with the retractions of each event, by its chain, put latest first among the places they take."""
    moves: dict[int, list[int]] = {}
    for i in range(len(items)):
        if items[i][1].kind == RETRACT:
            moves.setdefault(items[i][0], []).append(i)
    return [moves[items[i][0]].pop() if items[i][1].kind == RETRACT else i for i in order]


@st.composite
def with_ctis(draw: Draw, items: list[Item], intent: Intent, scale: Scale) -> list[Item]:
    """Return the items with CTIs between them, each as high as the following items allow, or some units less.

    CTIs are rounded down to ``scale.step`` and never decrease; one after all items is at most five units beyond the last instant.
    """
    liveliness = draw(st.sampled_from(intent.choices("ctis")))
    places: list[tuple[int, int]]
    match liveliness:
        case "none":
            places = []
        case "lazy":
            places = draw(st.lists(st.tuples(st.integers(0, len(items)), st.sampled_from([1, 3, 5])), max_size=2))
        case _:
            often = st.tuples(st.integers(0, len(items)), st.sampled_from([0, 0, 1]))
            every = [(i, 0) for i in range(len(items) + 1)]
            places = every if intent.ctis == "eager" or draw(st.booleans()) else draw(st.lists(often, max_size=5))
    greatest = max((time for item in items for time in item.times), default=scale.anchor)
    least = [greatest + 5 * scale.units[0]]
    for bound in reversed(bounds(items)):
        least.append(min(least[-1], bound))
    least.reverse()
    items_and_ctis: list[Item] = []
    progress = -INFINITY
    places = sorted(places, key=lambda place: place[0])
    for i in range(len(items) + 1):
        for _, slack in (place for place in places if place[0] == i):
            progress = max(progress, (least[i] - slack * scale.units[0]) // scale.step * scale.step)
            items_and_ctis.append(Item(CTI, progress))
        items_and_ctis += items[i : i + 1]
    return items_and_ctis
