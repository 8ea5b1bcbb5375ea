"""Draws of the order of arrival, CTIs among items, and repeated items."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from streamq.runtime.event import CTI, INSERT, RETRACT
from streamq.testing.arrival import Item, bounds
from streamq.testing.drawn_lifetimes import Draw, forbids_overlap
from streamq.testing.intent import Intent
from streamq.testing.python_values import comparable
from streamq.testing.scale import Scale
from streamq.time import INFINITY


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
