"""Streams of events as an intent describes them, in arrival order, as Hypothesis strategies.

Everything is legal: retractions match, no item is late, rows are events. What a source can tell to be a repetition, by
an id or as an edge, is delivered more than once. Shrinking leads to few events in order, with no correction. (Test
framework, section 5.)
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from streamq.errors import PlanError, sentence
from streamq.runtime.event import CTI, INSERT, RETRACT
from streamq.testing.arrival import CLOSE, OPEN, Item, bounds, closed
from streamq.testing.intent import Intent
from streamq.testing.python_values import comparable
from streamq.testing.scale import Scale
from streamq.time import INFINITY

Draw = Callable[[st.SearchStrategy[Any]], Any]
Payloads = st.SearchStrategy[dict[str, Any]]

COARSE = 4
"""Units from one start to the next, where starts are to meet."""
APART = {"none", "back_to_back", "off_by_one"}
"""Overlaps that are none, or by a tick."""
LONGEST = {"point": 0, "short": 5, "long": 30, "infinite": 1_000_000}
"""How many units the events of a duration live at most, but for those that never end."""
SLIGHT, OUT_OF_ORDER, HIGHLY = 2, 5, 12
"""How many places an item comes late at most."""


@dataclass(frozen=True)
class _Placed:
    """How one event lies: from what, how many units, ticks and steps after it, and how many units and steps it lasts.

    ``lasts``: units and ticks, None: for ever; ``meets``: which of the instants after its start its end is at, or beside,
    if at any.
    """

    place: tuple[str, int, int, int]
    unit: int
    lasts: tuple[int, int] | None
    lasts_steps: int
    meets: tuple[int, int] | None = None

    @property
    def exact(self) -> bool:
        """Whether it starts where windows begin or end, or a length of the query away from another instant."""
        return bool(self.place[2]) or self.place[0] == "edge"

    def lifetime(
        self, before: tuple[int, int] | None, latest: int, scale: Scale, instants: Sequence[int], longest: int
    ) -> tuple[int, int]:
        """Start and end; ``before`` is the event before it, ``latest`` the greatest end so far; ``instants`` are all so far.

        ``longest``: how many units an event lives at most that ends at, or beside, another instant.
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
    """Where an event starts: from what, how many units, ticks and steps after it."""
    beside, zero = st.sampled_from([0, 0, -1, 1]), st.just(0)
    match overlap:
        case "none":
            return st.tuples(st.just("latest"), st.integers(0, 4), zero, zero)
        case "low":
            return st.tuples(st.just("start"), st.integers(2, 12), zero, beside)
        case "medium":
            return st.tuples(st.just("anchor"), st.integers(-12, 25), zero, beside if scale.units[0] > 1 else zero)
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


def _lasting(duration: str, scale: Scale) -> st.SearchStrategy[tuple[int, int] | None]:
    """How many units and ticks an event lives; 0: a point, None: for ever."""
    short, long = (
        st.tuples(st.integers(least, LONGEST[word]), st.just(0)) for least, word in ((1, "short"), (10, "long"))
    )
    point = st.just((0, 0))
    if scale.lengths:
        short = st.one_of(short, st.tuples(st.just(0), st.sampled_from(scale.lengths)))
    match duration:
        case "point":
            return point
        case "short":
            return st.one_of(point, short)
        case "long":
            return st.one_of(point, short, long)
        case _:
            return st.one_of(point, short, long, st.none())


@st.composite
def lifetimes(draw: Draw, intent: Intent, scale: Scale) -> list[tuple[int, int]]:
    """Starts and ends, each event placed beside the ones before it."""
    if intent.pattern is not None:
        many, seed = draw(st.integers(0, intent.events)), draw(st.integers(0, 2**32 - 1))
        return _patterned(intent.pattern(random.Random(seed), many))
    overlaps, durations = intent.choices("overlap"), intent.choices("duration")
    every = [draw(st.sampled_from(overlaps))] if draw(st.booleans()) else overlaps
    steps = st.sampled_from([0, 0, 0, -1, 1]) if scale.units[0] > scale.step else st.just(0)
    apart = set(every) <= APART
    # an end is often where something else begins or ends
    meets = st.tuples(st.integers(0, 5), st.sampled_from([0, 0, -1, 1]))
    meeting: st.SearchStrategy[tuple[int, int] | None] = st.one_of(st.none(), st.none(), meets)
    placed = st.builds(
        lambda place, unit, lasts, by, meets: _Placed(
            place, unit, lasts, by if lasts and any(lasts) else 0, meets if lasts and any(lasts) else None
        ),
        st.one_of(*(_places(overlap, scale) for overlap in every)),
        st.sampled_from(scale.units),
        st.one_of(*(_lasting(duration, scale) for duration in durations)),
        steps,
        st.none() if apart else meeting,
    )
    spans: list[tuple[int, int]] = []
    latest = -INFINITY
    longest = max(LONGEST[duration] for duration in durations)
    instants = set(scale.edges(scale.anchor))
    # of events that start anywhere hardly two start together, or where one of another stream does
    grid = (
        COARSE * scale.units[0] if {"medium", "high", "boundary"} & set(every) and draw(st.booleans()) else scale.step
    )
    recipes = draw(some(placed, intent.events))
    for i, recipe in enumerate(recipes):
        start, end = recipe.lifetime(spans[-1] if spans else None, latest, scale, sorted(instants), longest)
        early = 0 if recipe.exact else (start - scale.anchor) % grid
        span = (start - early, end - early if end < INFINITY else end)
        if apart and span[1] == INFINITY and i < len(recipes) - 1:
            # what has no end overlaps all that follows
            span = (span[0], span[0] + scale.units[0])
        spans.append(span)
        instants |= {time for time in span if time < INFINITY}
        latest = max(latest, span[1]) if span[1] < INFINITY else latest
    return spans


def _patterned(pairs: Any) -> list[tuple[int, int]]:
    """What a user's own pattern gives, checked."""
    wrong = "a pattern gives pairs of start and end, whole ticks, the end greater or None"
    try:
        spans = [(start, closed(end)) for start, end in pairs]
    except (TypeError, ValueError) as error:
        raise PlanError(sentence("Intent", wrong, f"found {pairs!r}")) from error
    for start, end in spans:
        if not (isinstance(start, int) and isinstance(end, int) and start < end):
            raise PlanError(sentence("Intent", wrong, f"found {(start, None if end == INFINITY else end)!r}"))
    return spans


def some(of: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[list[Any]]:
    """Lists, short ones and long ones: mere lists are mostly very short."""
    long = st.lists(of, min_size=most // 2, max_size=most)
    return st.one_of(st.lists(of, max_size=most), long, long)


def apart(intent: Intent) -> bool:
    """Whether an intent says that no two events are alive at once."""
    return intent.overlap is not None and set(intent.choices("overlap")) <= APART


def _copies(intent: Intent) -> st.SearchStrategy[int]:
    if intent.duplicates is None and apart(intent):
        return st.just(1)
    match intent.duplicates:
        case True:
            return st.sampled_from([2, 1, 3])
        case False:
            return st.just(1)
    return st.sampled_from([1, 1, 1, 2])


class _Once:
    """Which events are new, where an intent says that no two are equal."""

    def __init__(self, intent: Intent):
        self.seen: set[Any] | None = set() if intent.duplicates is False else None

    def is_new(self, item: Item) -> bool:
        """Whether no equal one has been asked for."""
        if self.seen is None:
            return True
        event = (item.start, item.end, *((n, comparable(v)) for n, v in sorted(item.payload.items())))
        new = event not in self.seen
        self.seen.add(event)
        return new


def _opened(end: int) -> int | None:
    return None if end == INFINITY else end


# order of arrival


@st.composite
def arranged(draw: Draw, items: Sequence[tuple[int, Item]], intent: Intent, causal: bool) -> list[Item]:
    """Items (chain, item), in order of sync time but for lags; if causal, those of a chain keep their order."""
    kind = draw(st.sampled_from(intent.choices("disorder")))
    most = {"in_order": 0, "slight": SLIGHT, "out_of_order": OUT_OF_ORDER}.get(kind, HIGHLY)
    lags = draw(st.lists(st.integers(0, most), max_size=8, min_size=min(most, 4))) if most else []
    order = sorted(range(len(items)), key=lambda i: items[i][1].sync)
    if lags:
        late_by = [i + lag for i, lag in zip(range(len(order)), itertools.cycle(lags))]
        order = [order[i] for i in sorted(range(len(order)), key=lambda i: (late_by[i], i))]
    if not causal:
        return [items[i][1] for i in order]
    chains: dict[int, list[int]] = {}
    for i in sorted(order):
        chains.setdefault(items[i][0], []).append(i)
    return [items[chains[items[i][0]].pop(0)][1] for i in order]


# shapes


@st.composite
def intervals(
    draw: Draw,
    payloads: Payloads,
    intent: Intent,
    scale: Scale,
    id: str | None = None,
    numbered: Callable[[int], Any] = lambda n: n,
) -> list[Item]:
    """Events that are never corrected; ``id``: a column that tells those of one start apart, copies being repetitions."""
    chained: list[tuple[int, Item]] = []
    once = _Once(intent)
    number: dict[int, int] = {}
    for start, end in draw(lifetimes(intent, scale)):
        payload = draw(payloads)
        if id:
            # one id may come again at another start
            number[start] = number.get(start, -1) + 1
            payload = {**payload, id: numbered(number[start])}
        item = Item(INSERT, start, _opened(end), payload=payload)
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
    """Events of one tick; ``id`` as in :func:`intervals`."""
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
    """Inserts, chains of retractions that shorten, extend, open or delete, corrections of deleted events, and CTIs.

    ``explicit``: with CTIs, all of them kept; ``id``: a column with an id an event, made by ``numbered``; ``causal``:
    whether a retraction may not arrive before what it takes back (None: drawn).
    """
    lengths, ends = (
        (["shorten"], ["delete"]) if apart(intent) else (["shorten", "extend", "meet"], ["delete", "delete", "open"])
    )
    moves = st.one_of(
        st.tuples(st.sampled_from(lengths), st.integers(0, 12)), st.tuples(st.sampled_from(ends), st.just(0))
    )
    most = 0 if intent.speculation is False else 3
    moved = st.lists(moves, max_size=most, min_size=1 if intent.speculation else 0)
    chained: list[tuple[int, Item]] = []
    chain = 0
    once = _Once(intent)
    spans = draw(lifetimes(intent, scale))
    instants = sorted({time for span in spans for time in span if time < INFINITY} | set(scale.edges(scale.anchor)))
    for start, end in spans:
        payload, chosen = draw(payloads), draw(moved)
        if not once.is_new(Item(INSERT, start, payload=payload)):
            continue
        for copy in range(draw(_copies(intent))):
            whose = {**payload, id: numbered(chain)} if id else payload
            # a copy mostly stays; else both move at once, each its own way
            of_copy = draw(moved) if copy and draw(st.booleans()) else ()
            items = _chain(start, end, of_copy if copy else chosen, whose, scale, instants)
            if id:
                items = _apart(items)
                items += _again(items, draw(st.integers(0, len(items) - 1))) if draw(_copies(intent)) > 1 else []
            chained += [(chain, item) for item in items]
            chain += 1
        last = items[-1]
        if last.kind == RETRACT and last.new_end == start and draw(st.booleans()):
            # a correction: another payload takes the place of the one that is deleted, or the same but for a column
            corrected = draw(payloads)
            if id is None and draw(st.booleans()):
                corrected = {**payload, **_one_of(corrected, draw(st.integers(0, len(corrected) - 1)))}
            if once.is_new(Item(INSERT, start, payload=corrected)):
                whose = {**corrected, id: numbered(chain)} if id else corrected
                chained.append((chain, Item(INSERT, start, last.end, payload=whose)))
                chain += 1
    causal = draw(st.booleans()) if causal is None else causal
    items = draw(arranged(chained, intent, causal))
    return draw(_promised(items, intent, scale)) if explicit else items


def _chain(
    start: int,
    end: int,
    moved: Sequence[tuple[str, int]],
    payload: Mapping[str, Any],
    scale: Scale,
    instants: Sequence[int],
) -> list[Item]:
    """An insert and the retractions that follow it, each naming the end that the one before made; ``instants``: of others."""
    items = [Item(INSERT, start, _opened(end), payload=payload)]
    step, unit = scale.step, scale.units[0]
    for kind, by in moved:
        to = end
        if kind == "shorten" and end - start > step:
            to = start + step + (by * unit if end == INFINITY else by * unit % (end - start - step) // step * step)
        elif kind == "extend" and end < INFINITY:
            to = end + step + by * unit
        elif kind == "meet" and (after := [time for time in instants if time > start]):
            to = after[by % len(after)]
        elif kind == "open":
            to = INFINITY
        elif kind == "delete":
            to = start
        if to != end:
            items.append(Item(RETRACT, start, _opened(end), _opened(to), payload))
        end = to
        if end == start:
            break
    return items


def _one_of(payload: Mapping[str, Any], which: int) -> dict[str, Any]:
    """One column of a payload."""
    return dict([list(payload.items())[which]])


def _apart(items: list[Item]) -> list[Item]:
    """The items up to the first retraction that repeats one: with ids, out of order, it could not be told from a repetition."""
    moves = [(item.end, item.new_end) for item in items]
    first = next((i for i, move in enumerate(moves) if i and move in moves[1:i]), len(items))
    return items[:first]


def _again(items: list[Item], since: int) -> list[Item]:
    """What is delivered again of an event: its items from some place on; of one that had an end twice its insert only."""
    ends = [items[0].end, *(item.new_end for item in items[1:])]
    return items[since:] if len(set(ends)) == len(ends) else items[:1]


@st.composite
def _promised(draw: Draw, items: list[Item], intent: Intent, scale: Scale) -> list[Item]:
    """With CTIs between them, each as high as what follows allows, or some way behind that."""
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
    with_ctis: list[Item] = []
    progress = -INFINITY
    places = sorted(places, key=lambda place: place[0])
    for i in range(len(items) + 1):
        for _, slack in (place for place in places if place[0] == i):
            progress = max(progress, (least[i] - slack * scale.units[0]) // scale.step * scale.step)
            with_ctis.append(Item(CTI, progress))
        with_ctis += items[i : i + 1]
    return with_ctis


@st.composite
def _edged(draw: Draw, payloads: Payloads, key: Sequence[str], intent: Intent, scale: Scale) -> list[tuple[int, Item]]:
    """Lifetimes as edges; one of a key ends at the latest where the next of that key starts."""
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
    """Per key starts, ends, ends that meet starts, starts that cut starts; or the lifetimes that an intent speaks of."""
    if intent.duration is not None or intent.overlap is not None or intent.pattern is not None:
        return draw(arranged(draw(_edged(payloads, key, intent, scale)), intent, causal=False))
    at: dict[Any, int] = {}
    living: set[Any] = set()
    chained: list[tuple[int, Item]] = []
    steps = st.tuples(
        payloads, st.integers(1, 6), st.sampled_from(["start", "end", "both"]), st.sampled_from(scale.units)
    )
    for payload, gap, kind, unit in draw(some(steps, intent.events)):
        k = tuple(comparable(payload[name]) for name in key)
        if k not in at:
            at[k] = scale.anchor + draw(st.integers(-12, 5)) * unit
        at[k] += gap * unit
        both = (CLOSE, OPEN) if kind == "both" else (OPEN if kind == "start" else CLOSE,)
        for edge in both if k in living else (OPEN,):
            chained += [(len(chained), Item(edge, at[k], payload=payload))] * draw(_copies(intent))
            (living.add if edge == OPEN else living.discard)(k)
    return draw(arranged(chained, intent, causal=False))


__all__ = ["apart", "arranged", "edges", "intervals", "lifetimes", "physical", "points", "some"]
