"""A model of what sources admit: which arriving items are dropped, adjusted, invalid or duplicates, and which events are left.

It follows SEMANTICS sections 6 and 7 item by item and forgets nothing, so it is for small inputs; it shares no code with the
implementation that it is compared with. It holds for *plain* input (:func:`is_plain`): in physical streams inserts come before
the retractions that name them, and no two events of one start agree in all columns; of edges, no two of one kind and key have
the same time.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamq.choices import Late
from streamq.operators import (
    AlterLifetime,
    Edges,
    Intervals,
    JoinTable,
    Physical,
    Points,
    Select,
    Source,
    TopK,
    Union,
    Where,
    WindowAggregate,
    WindowedJoin,
)
from streamq.operators.lifetime_change import Start
from streamq.plan.node import Node, fold, nodes
from streamq.plan.schema import Field
from streamq.policies import SourcePolicy
from streamq.runtime.event import CTI, INSERT, RETRACT
from streamq.testing.arrival import OPEN, Item, closed, is_event, time_columns
from streamq.testing.case import Case
from streamq.testing.python_values import comparable
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows import Hopping

DROPPED, ADJUSTED, INVALID, DUPLICATES = "dropped", "adjusted", "invalid", "duplicates"
"""The reasons under which items are counted that are not admitted as they came."""

NOTHING = "a retraction that matches nothing"

Promises = Sequence[Sequence[tuple[str | None, int]]]
"""The CTIs that are sent from outside after each micro-batch: pairs of a source (None: all sources) and the CTI."""


@dataclass
class Admitted:
    """What one source admits of a case."""

    events: list[Item] = field(default_factory=list)
    """The events that the query sees, as intervals."""

    counts: Counter[str] = field(default_factory=Counter)
    """How many items were dropped, adjusted, invalid and duplicates."""

    late: int = 0

    sure_duplicates: int = 0
    """How many duplicates must count as duplicates: those of events that have not ended before c. Others may count as late."""

    contradicted: bool = False
    """Whether two rows of one id and start differed."""

    come: int = MINUS_INFINITY
    """The greatest start or CTI among its rows."""

    refused: bool = False
    """Whether an item was late under ``late="fail"``, so that the query raises."""

    filtered: bool = False
    """Whether a filter may run before rows are judged, so that late rows that it drops are not counted."""


@dataclass(frozen=True)
class Reach:
    """How far a source has come: the CTI it ``promised`` itself, its CTI ``c`` at the level of consistency, its watermark."""

    c: int = MINUS_INFINITY
    promised: int = MINUS_INFINITY
    w: int = MINUS_INFINITY


def admitted(case: Case, promises: Promises = (), remember: Sequence[int | None] = (None,)) -> dict[str, Admitted]:
    """Return what each source admits of a case; only of sources whose items are late or contradict each other.

    A source that is not plain is left out, too. ``remember`` is for how long history is remembered in each micro-batch (None:
    for ever); after its last entry it begins again.
    """
    batches = list(_batches(case))
    reaches = _reaches(case, batches, [*promises, *([()] * len(batches))], remember)
    result = {}
    for name, source in case.sources.items():
        if not is_plain(source, case.arrived(name)):
            continue
        grid = _grid(case.plan, source)
        parts = []
        # the last of its reaches is past all micro-batches
        for batch, reach in zip([*batches, []], reaches, strict=True):
            c, promised = reach[name].c, reach[name].promised
            if grid is not None:
                c, promised = _window_end(grid, c), _window_end(grid, promised)
            items = [item for of, item in batch if of == name and item.kind != CTI]
            parts.append((items, Reach(c, promised)))
        model = _Model.of(source)
        for items, at in parts:
            model.take(items, at)
        one = model.end()
        if one.late or one.contradicted:
            result[name] = one
            rows = [item for item in case.arrived(name) if is_event(item)]
            one.come = max(_start(item) for item in rows if _brings_start(item) or item.kind == CTI)
            one.filtered = source.insert_only and not source.ids and _filtered(case.plan, source)
    return result


def limits(case: Case, promises: Promises, blocks: Sequence[int | None]) -> list[int]:
    """Return for each micro-batch the instant from which on items are still held after it.

    ``blocks`` is how many ticks items may be held in each micro-batch (None: until the CTI); after its last entry it begins
    again. An item is let go once the CTI of all sources is past its sync time, or their watermark is that many ticks past it. An
    item that was let go at one level is not held again at another.
    """
    batches = list(_batches(case))
    reaches = _reaches(case, batches, [*promises, *([()] * len(batches))], [None])[1:]
    sources, least, instants = case.sources, MINUS_INFINITY, []
    for reach, block in zip(reaches, itertools.cycle(blocks), strict=False):
        speak = [name for name in sources if _leader(sources, name) == name]
        w = min(max(reach[name].promised, reach[name].w) for name in speak)
        least = max(least, min(reach[name].promised for name in sources))
        if block and w > MINUS_INFINITY:
            least = max(least, w - block + 1)
        elif block == 0:
            least = max([least, *(one.w + 1 for one in reach.values() if one.w > MINUS_INFINITY)])
        instants.append(INFINITY if block == 0 else least)
    return instants


def legal(case: Case, seen: Mapping[str, Admitted]) -> Case:
    """Return a case without late items and with the same answer: sources in ``seen`` bring just the events that they admit."""
    events = [(name, item) for name, item in case.arrival if name not in seen]
    events += [(name, item) for name, one in seen.items() for item in one.events]

    def visit(node: Node, inputs: list[Node]) -> Node:
        if not isinstance(node, Source):
            return node.with_children(inputs)
        return _with_intervals(node) if node.table in seen else node

    return replace(case, plan=fold(case.plan, visit), arrival=tuple(events), cut=(len(events),))


def _with_intervals(source: Source) -> Points | Intervals:
    """Return a source, without policy, for the events that another one admits: points for points, else intervals."""
    if isinstance(source, Points):
        return replace(source, policy=SourcePolicy(None), ids=())
    names = [f.name for f in source.payload]
    start, end = _unused("start", names), _unused("end", names)
    time = next(f.type for f in source.columns if f.name == time_columns(source)[0])
    columns = (Field(start, time), Field(end, time), *source.payload)
    return Intervals(source.table, columns, start, end, policy=SourcePolicy(None))


def _unused(name: str, columns: Sequence[str]) -> str:
    """A name, with underscores appended until no column has it."""
    while name.lower() in {c.lower() for c in columns}:
        name += "_"
    return name


def is_plain(source: Source, items: Sequence[Item]) -> bool:
    """Whether the model holds for what arrives at a source, as the module says."""
    items = [item for item in items if item.kind != CTI and is_event(item)]
    match source:
        case Edges(key=key):
            edges = [(tuple(comparable(i.payload[n]) for n in key), i.start, i.kind) for i in items]
            return len(set(edges)) == len(edges)
        case Physical():
            model = _Physical(source)
            inserts = [model.name(item) for item in items if item.kind == INSERT]
            ends: dict[Any, int] = {}
            moved = set(inserts)
            for item in items:
                name = model.name(item)
                if item.kind == RETRACT and name in moved and ends.get(name) != closed(item.end):
                    return False
                ends[name] = closed(item.end if item.kind == INSERT else item.new_end)
            return len(moved) == len(inserts)
    return True


def _batches(case: Case) -> Iterator[list[tuple[str, Item]]]:
    """The micro-batches of a case."""
    items = iter(case.arrival)
    for n in case.cut:
        yield list(itertools.islice(items, n))


# progress


def _reaches(
    case: Case,
    batches: Sequence[Sequence[tuple[str, Item]]],
    promises: Sequence[Sequence[tuple[str | None, int]]],
    remember: Sequence[int | None],
) -> list[dict[str, Reach]]:
    """How far each source had come before each micro-batch, and, last, after all of them."""
    sources = case.sources
    w = dict.fromkeys(sources, MINUS_INFINITY)
    own = dict.fromkeys(sources, MINUS_INFINITY)
    counts = dict.fromkeys(sources, MINUS_INFINITY)
    reaches = [{name: Reach() for name in sources}]
    for batch, ctis, most in zip(batches, promises, itertools.cycle(remember), strict=False):
        for name, source in sources.items():
            items = [item for of, item in batch if of == name and is_event(item)]
            w[name] = max([w[name], *(_start(item) for item in items if _brings_start(item))])
            policy = source.policy
            if policy.delay is not None and w[name] > MINUS_INFINITY:
                own[name] = max(own[name], (w[name] - policy.delay) // policy.every * policy.every)
            if policy.explicit:
                own[name] = max([own[name], *(_start(item) for item in items if item.kind == CTI)])
            own[name] = max([own[name], *(c for of, c in ctis if of in (None, name))])
        promised = {name: own[_leader(sources, name)] for name in sources}
        if not batch and not ctis:
            # nobody is called in a micro-batch that brings nothing, so no level makes itself felt
            reaches.append(reaches[-1])
            continue
        speak = [name for name in sources if _leader(sources, name) == name]
        least = min(max(own[name], w[name]) for name in speak)
        for name in sources:
            counts[name] = max(counts[name], promised[name])
            if most is not None and least not in (INFINITY, MINUS_INFINITY):
                counts[name] = max(counts[name], least - most)
        reaches.append({name: Reach(counts[name], promised[name], w[name]) for name in sources})
    return reaches


def _leader(sources: Mapping[str, Source], name: str) -> str:
    """The source at the end of the chain of ``follow``: the one whose progress a source has."""
    follow = sources[name].policy.follow
    return name if follow is None else _leader(sources, follow)


def _brings_start(item: Item) -> bool:
    """Whether an item's start moves the watermark: not that of an end edge or a CTI."""
    return item.kind in (INSERT, RETRACT, OPEN)


def _start(item: Item) -> int:
    assert item.start is not None
    return item.start


# the grid of a hopping window that is the first stateful operator over a source


def _chains(plan: Node, source: Source) -> list[tuple[list[Node], Node | None]]:
    """For each way from a source to the first stateful operator: the steps on it, and that operator (None: the result)."""
    chains: list[tuple[list[Node], Node | None]] = []
    stateless = (Where, Select, Union, JoinTable, AlterLifetime)

    def follow(node: Node, steps: list[Node]) -> None:
        above = [parent for parent in nodes(plan) for child in parent.children if child.digest == node.digest]
        if node.digest == plan.digest:
            chains.append((steps, None))
        for parent in above:
            if isinstance(parent, stateless):
                follow(parent, [*steps, parent])
            else:
                chains.append((steps, parent))

    follow(source, [])
    return chains


def _grid(plan: Node, source: Source) -> Hopping | None:
    """The hopping windows that alone read a source, by which its items then are late; None if it has other readers, too."""
    chains = _chains(plan, source)
    if len(chains) != 1 or not source.insert_only or isinstance(source, Edges):
        return None
    steps, first = chains[0]
    if any(isinstance(step, AlterLifetime) and step.start != Start() for step in steps):
        return None
    if isinstance(first, WindowAggregate | TopK | WindowedJoin) and isinstance(first.window, Hopping):
        return first.window
    return None


def _filtered(plan: Node, source: Source) -> bool:
    """Whether a filter stands between a source and a first stateful operator."""
    return any(isinstance(step, Where) for steps, _ in _chains(plan, source) for step in steps)


def _window_end(grid: Hopping, c: int) -> int:
    """The greatest end of a window that is not after c."""
    if c in (INFINITY, MINUS_INFINITY):
        return c
    return c - (c - grid.offset - grid.size) % grid.hop


# sources


class _Model:
    """The model of one source: call ``take`` with each micro-batch, in order, then ``end`` for what it admits."""

    @staticmethod
    def of(source: Source) -> _Model:
        match source:
            case Points() | Intervals():
                return _InsertOnly(source)
            case Physical():
                return _Physical(source)
            case Edges():
                return _Edges(source)
        raise AssertionError(type(source).__name__)

    def __init__(self, source: Source):
        self.source, self.admitted = source, Admitted()

    def take(self, items: Sequence[Item], at: Reach) -> None:
        """Process a micro-batch; ``at`` is how far the source had come before it."""
        self._pass(at)
        events = [item for item in items if is_event(item)]
        self._count(INVALID, len(items) - len(events))
        self._take(events, at)

    def end(self) -> Admitted:
        """End the input; return what the source admits."""
        self._pass(Reach(INFINITY, INFINITY))
        return self.admitted

    def _pass(self, at: Reach) -> None:
        """Decide on items that wait for one (a retraction for its event, an end for its start) that now cannot come in time."""

    def _take(self, items: Sequence[Item], at: Reach) -> None:
        """Process the items of a micro-batch that are events."""
        raise NotImplementedError

    def _count(self, reason: str, n: int = 1) -> None:
        if n:
            self.admitted.counts[reason] += n

    def _acts(self, sync: int, at: Reach) -> bool:
        """Whether an item takes effect, if only from c on: it is in time by the CTI promised, or the policy is to adjust it."""
        policy = self.source.policy.late
        if sync < at.promised:
            self.admitted.refused |= policy == Late.FAIL
            return policy == Late.ADJUST
        return True


class _InsertOnly(_Model):
    """Points and intervals. With ids, a repeated row is a duplicate, and one that differs from the first of its id is invalid."""

    def __init__(self, source: Source):
        super().__init__(source)
        self.standing: dict[Any, Any] = {}
        self.seen: set[Any] = set()

    def _take(self, items: Sequence[Item], at: Reach) -> None:
        by_name: dict[Any, list[Item]] = {}
        for item in items if self.source.ids else ():
            by_name.setdefault(self._name(item), []).append(item)
        for name, some in by_name.items():
            self.standing.setdefault(name, self._whole(_least(some)))
        for item in items:
            start, end, whole = _start(item), closed(item.end), self._whole(item)
            if self.source.ids and self.standing[self._name(item)] != whole:
                self.admitted.contradicted = True
                self._count(INVALID)
                continue
            if self.source.ids and whole in self.seen:
                self._count(DUPLICATES)
                self.admitted.sure_duplicates += end >= at.c
                continue
            self.seen.add(whole)
            if start >= at.c:
                self.admitted.events.append(item)
                continue
            self.admitted.late += 1
            if self._acts(start, at) and end > at.c:
                self._count(ADJUSTED)
                self.admitted.events.append(replace(item, start=at.c))
            else:
                self._count(DROPPED)

    def _name(self, item: Item) -> Any:
        return (item.start, *(comparable(item.payload[name]) for name in self.source.ids))

    @staticmethod
    def _whole(item: Item) -> Any:
        return (item.start, closed(item.end), _payload(item))


def _least(rows: Sequence[Item]) -> Item:
    """Of rows of one id and start in one micro-batch, the one that counts as the first: the least by end, then by payload."""
    first, *_ = rows
    differ = [n for n in first.payload if any(comparable(r.payload[n]) != comparable(first.payload[n]) for r in rows)]
    return min(rows, key=lambda row: (closed(row.end), *(row.payload[n] for n in differ)))


@dataclass
class _Event:
    """An event of a physical stream: its end as the source sees it, and the pieces of it that the query sees.

    A retraction moves the end of the last piece; ``gone``: the event was dropped, and so are all further retractions of it.
    """

    start: int
    end: int
    payload: Mapping[str, Any]
    pieces: list[tuple[int, int]]
    gone: bool = False


class _Physical(_Model):
    """Inserts and retractions; a micro-batch is a bag, in which inserts come first."""

    def __init__(self, source: Source):
        super().__init__(source)
        self.live: dict[Any, _Event] = {}
        self.waiting: list[tuple[Item, bool]] = []

    def name(self, item: Item) -> Any:
        """The key by which a retraction is matched with its event: the id, or else the start and the payload."""
        assert isinstance(self.source, Physical)
        return comparable(item.payload[self.source.id]) if self.source.id else (item.start, _payload(item))

    def _take(self, items: Sequence[Item], at: Reach) -> None:
        for item in items:
            if item.kind == INSERT:
                self._insert(item, at)
        for item in items:
            if item.kind == RETRACT:
                self._retract(item, at)

    def _insert(self, item: Item, at: Reach) -> None:
        start, end = _start(item), closed(item.end)
        event = _Event(start, end, item.payload, [(start, end)])
        self.live[self.name(item)] = event
        if start >= at.c:
            return
        self.admitted.late += 1
        if not self._acts(start, at):
            event.gone, event.pieces = True, []
            self._count(DROPPED)
            return
        event.pieces = [(at.c, max(at.c, end))]
        self._count(ADJUSTED if end > at.c else DROPPED)

    def _retract(self, item: Item, at: Reach) -> None:
        event = self.live.get(self.name(item))
        end, new_end = closed(item.end), closed(item.new_end)
        if event is None or event.end != end:
            self._wait(item, at)
            return
        event.end = new_end
        late = item.sync < at.c
        self.admitted.late += late
        if event.gone:
            self._count(DROPPED)
            return
        if late and not self._acts(item.sync, at):
            # past its end it goes on as an event of its own from c on: that is dropped, with all that follows
            event.gone = end < at.c <= new_end
            self._count(DROPPED)
            return
        start, own_end = event.pieces[-1]
        if late:
            new_end = max(new_end, at.c)
        if own_end <= at.c and min(end, own_end) < at.c:
            # what ended before c is settled: only what is added from c on is seen, and that is what later ones move
            event.pieces.append((at.c, new_end))
            if late and new_end == at.c:
                self._count(DROPPED)
                return
        else:
            event.pieces[-1] = (start, max(start, new_end))
        if late:
            self._count(ADJUSTED)

    def _wait(self, item: Item, at: Reach) -> None:
        """Keep a retraction whose event has not come, to wait for it; if c shows that the event has ended, decide at once."""
        late = item.sync < at.c
        self.admitted.late += late
        acts = not late or self._acts(item.sync, at)
        if acts and closed(item.end) >= at.c:
            self.waiting.append((item, late))
        elif acts:
            self._begin(item, at)
        else:
            self._count(DROPPED)

    def _pass(self, at: Reach) -> None:
        over = [(item, late) for item, late in self.waiting if closed(item.end) < at.c or at.c == INFINITY]
        self.waiting = [pair for pair in self.waiting if pair not in over]
        for item, late in over:
            if closed(item.end) >= at.promised < INFINITY:
                # the source could still have sent its event in time
                self.admitted.late += 1
                self._begin(item, at)
            else:
                self._count(DROPPED if late else INVALID)

    def _begin(self, item: Item, at: Reach) -> None:
        """Admit the part from c on of an event that is known only by a retraction, because its insert did not come in time."""
        start, end = _start(item), closed(item.new_end)
        self.live[self.name(item)] = _Event(start, end, item.payload, [(at.c, max(at.c, end))])
        self._count(ADJUSTED if end > at.c else DROPPED)

    def end(self) -> Admitted:
        super().end()
        for event in self.live.values():
            for start, end in event.pieces:
                if start < end:
                    until = None if end == INFINITY else end
                    self.admitted.events.append(Item(INSERT, start, until, payload=event.payload))
        return self.admitted


@dataclass
class _Edge:
    """An edge: its ``time``, and the instant ``since`` which it has effect, later if it came late and was adjusted.

    ``opens``: it is a start; ``gone``: it was dropped; ``passed``: it is an end whose time c has passed.
    """

    time: int
    since: int
    opens: bool
    payload: Mapping[str, Any]
    gone: bool = False
    passed: bool = False


class _Edges(_Model):
    """Starts and ends, in a chain for each key: an event lasts until the first instant at which a later edge has effect."""

    def __init__(self, source: Source):
        super().__init__(source)
        self.chains: dict[Any, list[_Edge]] = {}

    def _take(self, items: Sequence[Item], at: Reach) -> None:
        assert isinstance(self.source, Edges)
        late: list[tuple[list[_Edge], _Edge]] = []
        for item in items:
            key = tuple(comparable(item.payload[name]) for name in self.source.key)
            chain = self.chains.setdefault(key, [])
            edge = _Edge(_start(item), _start(item), item.kind == OPEN, item.payload)
            if edge.time < at.c:
                self.admitted.late += 1
                edge.since, edge.gone = at.c, not self._acts(edge.time, at)
                late.append((chain, edge))
            chain.append(edge)
            chain.sort(key=lambda e: (e.time, e.opens))
        for chain, edge in late:
            lifetimes = _lifetimes(chain)
            changes = self._events(chain) != self._events([e for e in chain if e is not edge])
            # an event that it opens, or the payload that it brings to one, may be equal to what was there
            changes |= any(edge is opened for _, _, opened, _ in lifetimes)
            changes |= self._brings_payload and any(edge is by for *_, by in lifetimes) and not edge.opens
            self._count(ADJUSTED if changes and not edge.gone else DROPPED)

    def _pass(self, at: Reach) -> None:
        for chain in self.chains.values():
            over = [e for e in chain if e.time < at.c and e.since == e.time and not e.opens and not e.passed]
            lost = [edge for edge, gone in zip(chain, _orphaned(chain), strict=True) if gone]
            acting = _acting(chain)
            closing = [after for before, after in itertools.pairwise(acting) if before.opens]
            for edge in over:
                edge.passed = True
                if any(edge is other for other in lost):
                    self._count(DROPPED)
                elif not any(edge is other for other in closing):
                    # its start can still come by the source's own word: it is late by the level
                    level = edge.time >= at.promised
                    self.admitted.late += level
                    self._count(DROPPED if level else INVALID)

    def end(self) -> Admitted:
        super().end()
        for chain in self.chains.values():
            self.admitted.events += self._events(chain)
        return self.admitted

    @property
    def _brings_payload(self) -> bool:
        """Whether the end of an event brings its payload."""
        return isinstance(self.source, Edges) and self.source.payload_from == "end"

    def _events(self, chain: Sequence[_Edge]) -> list[Item]:
        """The events of a chain; a closed event has the payload of its start or of its end, as ``payload_from`` says."""
        events = []
        for start, end, opened, by in _lifetimes(chain):
            closes = self._brings_payload and by is not None and not by.opens
            payload = by.payload if closes and by is not None else opened.payload
            events.append(Item(INSERT, start, None if end == INFINITY else end, payload=payload))
        return events


def _orphaned(chain: Sequence[_Edge]) -> list[bool]:
    """For each edge of a chain, whether it is the end of a start that was dropped, so that it is dropped, too."""
    return [
        not edge.opens and not edge.gone and i > 0 and _takes_along(chain[i - 1], edge) for i, edge in enumerate(chain)
    ]


def _takes_along(start: _Edge, end: _Edge) -> bool:
    """Whether a start was dropped, and the edge after it with it, as it does not have effect before the start would."""
    return start.opens and start.gone and end.since >= start.since


def _acting(chain: Sequence[_Edge]) -> list[_Edge]:
    """The edges of a chain that have effect: those that were not dropped."""
    return [edge for edge, lost in zip(chain, _orphaned(chain), strict=True) if not (edge.gone or lost)]


def _lifetimes(chain: Sequence[_Edge]) -> list[tuple[int, int, _Edge, _Edge | None]]:
    """For each event of a chain its start, its end, the edge that opens it, and the edge that closes it (None: it is open)."""
    acting = _acting(chain)
    lifetimes = []
    for i, edge in enumerate(acting):
        if not edge.opens:
            continue
        by = min(acting[i + 1 :], key=lambda e: (e.since, e.opens), default=None)
        end = INFINITY if by is None else by.since
        if edge.since < end:
            lifetimes.append((edge.since, end, edge, by))
    return lifetimes


def _payload(item: Item) -> Any:
    return tuple((name, comparable(value)) for name, value in sorted(item.payload.items()))


__all__ = ["Admitted", "admitted", "is_plain", "legal", "limits"]
