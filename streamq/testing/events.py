"""Hypothesis strategies for the items of a source, in arrival order, as an intent describes them: a function for each shape.

All items are legal: retractions match, none is late, rows are events. Rows that a source can recognize as repetitions, by an
id or as edges, are delivered more than once. Shrinking leads to few events in order, without corrections. (Test framework,
section 5.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from streamq.runtime.event import INSERT, RETRACT
from streamq.testing.arrival import CLOSE, OPEN, Item
from streamq.testing.arrival_order import arranged, with_ctis
from streamq.testing.drawn_lifetimes import Draw, forbids_overlap, lifetimes, long_lists
from streamq.testing.intent import Intent
from streamq.testing.python_values import comparable
from streamq.testing.scale import Scale
from streamq.time import INFINITY

Payloads = st.SearchStrategy[dict[str, Any]]


@st.composite
def intervals(
    draw: Draw,
    payloads: Payloads,
    intent: Intent,
    scale: Scale,
    id: str | None = None,
    numbered: Callable[[int], Any] = lambda n: n,
) -> list[Item]:
    """Draw inserts only. ``id``: a column, filled by ``numbered``, that distinguishes events of one start; copies repeat."""
    chained: list[tuple[int, Item]] = []
    once = _Duplicates(intent)
    number: dict[int, int] = {}
    for start, end in draw(lifetimes(intent, scale)):
        payload = draw(payloads)
        if id:
            # events of different starts may have one id
            number[start] = number.get(start, -1) + 1
            payload = {**payload, id: numbered(number[start])}
        item = Item(INSERT, start, _end_or_none(end), payload=payload)
        if once.is_new(item):
            chained += [(len(chained), item)] * draw(_copies(intent))
    return draw(arranged(chained, intent, causal=False))


@st.composite
def points(
    draw: Draw,
    payloads: Payloads,
    intent: Intent,
    scale: Scale,
    id: str | None = None,
    numbered: Callable[[int], Any] = lambda n: n,
) -> list[Item]:
    """Draw events of one tick; ``id`` as in :func:`intervals`."""
    unit_intervals = draw(intervals(payloads, intent.but(duration=("point",)), scale, id, numbered))
    return [Item(INSERT, item.start, item.start + 1, payload=item.payload) for item in unit_intervals]


@st.composite
def physical(
    draw: Draw,
    payloads: Payloads,
    intent: Intent,
    scale: Scale,
    explicit: bool = True,
    id: str | None = None,
    numbered: Callable[[int], Any] = lambda n: n,
    causal: bool | None = None,
) -> list[Item]:
    """Draw inserts, chains of retractions that shorten, extend, open or delete, corrections of deleted events, and CTIs.

    ``explicit``: CTIs are among the items. ``id``: a column with an id for each event, made by ``numbered``. ``causal``: a
    retraction arrives after the item that it retracts (None: drawn).
    """
    lengths, ends = (
        (["shorten"], ["delete"])
        if forbids_overlap(intent)
        else (["shorten", "extend", "step", "meet", "pass", "pass"], ["delete", "delete", "open"])
    )
    moves = st.one_of(
        st.tuples(st.sampled_from(lengths), st.integers(0, 12)), st.tuples(st.sampled_from(ends), st.just(0))
    )
    most = 0 if intent.speculation is False else 3
    moved = st.lists(moves, max_size=most, min_size=1 if intent.speculation else 0)
    chained: list[tuple[int, Item]] = []
    chain = 0
    once = _Duplicates(intent)
    spans = draw(lifetimes(intent, scale))
    if intent.overlap is None and intent.pattern is None and draw(st.sampled_from([False, True])):
        spans = _in_pairs(spans)
    confined = forbids_overlap(intent) or intent.pattern is not None
    moving = most > 0 and not confined and draw(st.sampled_from([False, False, False, True]))
    instants = sorted({time for span in spans for time in span if time < INFINITY} | set(scale.edges(scale.anchor)))
    for start, end in spans:
        payload, chosen = draw(payloads), draw(moved)
        if moving and draw(st.booleans()):
            chosen = [("delete", 0)]
        if not once.is_new(Item(INSERT, start, payload=payload)):
            continue
        for copy in range(draw(_copies(intent))):
            own_payload = {**payload, id: numbered(chain)} if id else payload
            # a copy is mostly not retracted; else both copies change, each in its own way
            copy_moves = draw(moved) if copy and draw(st.booleans()) else ()
            others = [other for at, other in spans if at == start and other not in (end, start + scale.step, INFINITY)]
            items = _chain(start, end, copy_moves if copy else chosen, own_payload, scale, instants, others)
            if id:
                items = _before_repetition(items)
                items += _redelivered(items, draw(st.integers(0, len(items) - 1))) if draw(_copies(intent)) > 1 else []
            chained += [(chain, item) for item in items]
            chain += 1
        last = items[-1]
        if last.kind == RETRACT and last.new_end == start and (moving or draw(st.booleans())):
            # move the event: insert it again a step before or after another event's start
            to = draw(st.sampled_from(spans))[0] + draw(st.sampled_from([-1, 1])) * scale.step
            moved_to = Item(INSERT, to, _end_or_none(end if end == INFINITY else end - start + to), payload=payload)
            if to != start and not confined and once.is_new(Item(INSERT, to, payload=payload)):
                own_payload = {**payload, id: numbered(chain)} if id else payload
                # it belongs to the chain of its deletion, which it follows
                chained.append((chain - 1, replace(moved_to, payload=own_payload)))
                chain += 1
        elif last.kind == RETRACT and last.new_end == start and draw(st.booleans()):
            # correct the deleted event: insert it with another payload, or with one column changed
            corrected = draw(payloads)
            if id is None and draw(st.booleans()):
                corrected = {**payload, **_single_column(corrected, draw(st.integers(0, len(corrected) - 1)))}
            if once.is_new(Item(INSERT, start, payload=corrected)):
                own_payload = {**corrected, id: numbered(chain)} if id else corrected
                chained.append((chain, Item(INSERT, start, last.end, payload=own_payload)))
                chain += 1
    causal = draw(st.sampled_from([False, False, True])) if causal is None else causal
    items = draw(arranged(chained, intent, causal))
    return draw(with_ctis(items, intent, scale)) if explicit else items


def _chain(
    start: int,
    end: int,
    moved: Sequence[tuple[str, int]],
    payload: Mapping[str, Any],
    scale: Scale,
    instants: Sequence[int],
    others: Sequence[int],
) -> list[Item]:
    """Return an insert and its retractions, each of which names the end that the item before it set.

    ``moved`` lists (kind of move, by) for each retraction. ``instants`` are starts and ends of all events, ``others`` the finite
    ends of events with the same start.
    """
    items = [Item(INSERT, start, _end_or_none(end), payload=payload)]
    step, unit = scale.step, scale.units[0]
    for kind, by in moved:
        by, to = max(by, int(scale.is_coarse)), end
        if kind == "shorten" and end - start > step:
            to = start + step + (by * unit if end == INFINITY else by * unit % (end - start - step) // step * step)
        elif kind == "extend" and end < INFINITY:
            to = end + step + by * unit
        elif kind == "step" and end < INFINITY:
            # a small move, mostly within the same window
            to = max(start + step, end + (by % 4 - 1) * step)
        elif kind == "pass" and others:
            # move the end past that of another event of this start
            other = others[by % len(others)]
            to = other + step if end <= other else max(start + step, other - step)
        elif kind in ("meet", "pass") and (after := [time for time in instants if time > start]):
            to = after[by % len(after)]
        elif kind == "open":
            to = INFINITY
        elif kind == "delete":
            to = start
        if to != end:
            items.append(Item(RETRACT, start, _end_or_none(end), _end_or_none(to), payload))
        end = to
        if end == start:
            break
    return items


def _in_pairs(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Move every second lifetime to the start of the one before it, so that only their ends order them."""
    paired = []
    for i, (start, end) in enumerate(spans):
        to = spans[i - 1][0] if i % 2 else start
        paired.append((to, end if end == INFINITY else end - start + to))
    return paired


def _single_column(payload: Mapping[str, Any], which: int) -> dict[str, Any]:
    """Return the payload's column at position ``which``."""
    return dict([list(payload.items())[which]])


def _before_repetition(items: list[Item]) -> list[Item]:
    """Return the items before the first retraction that equals an earlier one; with ids it would count as a repetition."""
    moves = [(item.end, item.new_end) for item in items]
    first = next((i for i, move in enumerate(moves) if i and move in moves[1:i]), len(items))
    return items[:first]


def _redelivered(items: list[Item], since: int) -> list[Item]:
    """Return the items of an event that are delivered again: those from ``since`` on.

    If the event had one end twice, only its insert is delivered again.
    """
    ends = [items[0].end, *(item.new_end for item in items[1:])]
    return items[since:] if len(set(ends)) == len(ends) else items[:1]


@st.composite
def _edges_of_lifetimes(
    draw: Draw, payloads: Payloads, key: Sequence[str], intent: Intent, scale: Scale
) -> list[tuple[int, Item]]:
    """Draw lifetimes as edges; within a key, a lifetime ends at the latest where the next one starts."""
    chains: dict[Any, dict[int, tuple[int, dict[str, Any]]]] = {}
    for start, end in sorted(draw(lifetimes(intent, scale))):
        payload = draw(payloads)
        chains.setdefault(tuple(comparable(payload[name]) for name in key), {})[start] = (end, payload)
    edge_items: list[Item] = []
    for chain in chains.values():
        following = [*list(chain)[1:], INFINITY]
        for (start, (end, payload)), after in zip(chain.items(), following, strict=True):
            edge_items.append(Item(OPEN, start, payload=payload))
            if end < after or (end == after < INFINITY and draw(st.booleans())):
                edge_items.append(Item(CLOSE, end, payload=payload))
    return list(enumerate(item for item in edge_items for _ in range(draw(_copies(intent)))))


@st.composite
def edges(draw: Draw, payloads: Payloads, key: Sequence[str], intent: Intent, scale: Scale) -> list[Item]:
    """Draw edges of each key: starts, ends, an end with a start at one instant, starts that end the event before.

    If the intent names a duration, an overlap or a pattern, the edges are those of lifetimes drawn by it.
    """
    if intent.duration is not None or intent.overlap is not None or intent.pattern is not None:
        return draw(arranged(draw(_edges_of_lifetimes(payloads, key, intent, scale)), intent, causal=False))
    at: dict[Any, int] = {}
    living: set[Any] = set()
    chained: list[tuple[int, Item]] = []
    steps = st.tuples(
        payloads, st.integers(1, 6), st.sampled_from(["start", "end", "both"]), st.sampled_from(scale.units)
    )
    beside = st.sampled_from([0, 0, 0, -1, 1]) if scale.is_coarse else st.just(0)
    for (payload, gap, kind, unit), by in draw(long_lists(st.tuples(steps, beside), intent.events)):
        k = tuple(comparable(payload[name]) for name in key)
        if k not in at:
            at[k] = scale.anchor + draw(st.integers(-12, 5)) * unit
        at[k] += gap * unit + by * scale.step
        both = (CLOSE, OPEN) if kind == "both" else (OPEN if kind == "start" else CLOSE,)
        for edge in both if k in living else (OPEN,):
            chained += [(len(chained), Item(edge, at[k], payload=payload))] * draw(_copies(intent))
            (living.add if edge == OPEN else living.discard)(k)
    return draw(arranged(chained, intent, causal=False))


def _copies(intent: Intent) -> st.SearchStrategy[int]:
    if intent.duplicates is None and forbids_overlap(intent):
        return st.just(1)
    match intent.duplicates:
        case True:
            return st.sampled_from([2, 1, 3])
        case False:
            return st.just(1)
    return st.sampled_from([1, 1, 1, 2])


class _Duplicates:
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


def _end_or_none(end: int) -> int | None:
    return None if end == INFINITY else end


__all__ = ["Payloads", "edges", "intervals", "physical", "points"]
