"""Models of sources whose items refer to each other: of inserts and retractions, and of start and end edges."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamq.choices import CountReason
from streamq.runtime.event import CTI, INSERT, RETRACT
from streamq.runtime.kernel import ADJUST
from streamq.sources.edges import EdgeSource
from streamq.sources.physical import Physical
from streamq.testing.arrival import OPEN, Item, comparable, comparable_payload, count_distinct, end_ticks, start_of
from streamq.testing.sources.room import Admission, Reach, SourceModel
from streamq.time import INFINITY


@dataclass
class _Event:
    """An event of a physical stream: its end in the source, and the pieces of it that the query reads.

    A retraction moves the end of the last piece. ``gone``: the event was dropped, and so will be further retractions of it.
    """

    start: int
    end: int
    payload: Mapping[str, Any]
    pieces: list[tuple[int, int]]
    gone: bool = False


class PhysicalModel(SourceModel[Physical]):
    """Inserts and retractions; a micro-batch is a bag in which inserts count before retractions.

    ``live``: the events by :meth:`name`. ``waiting``: retractions whose event has not come, each with True if it was late.
    """

    def __init__(self, source: Physical):
        super().__init__(source)
        self.live: dict[Any, _Event] = {}
        self.waiting: list[tuple[Item, bool]] = []

    def name(self, item: Item) -> Any:
        """Return the key by which a retraction is matched with its event: the id or, without ids, the start and the payload."""
        return comparable(item.payload[self.source.id]) if self.source.id else (item.start, comparable_payload(item))

    def repeated(self, events: Sequence[Item]) -> int:
        """Count repeated inserts and, of events that would leave an end more often than they reach it, repeated retractions.

        Return 0 for a source without ids.
        """
        if self.source.id is None:
            return 0
        repetitions = 0
        by_id: dict[Any, list[Item]] = {}
        for item in events:
            if item.kind != CTI:
                by_id.setdefault(comparable(item.payload[self.source.id]), []).append(item)
        for items in by_id.values():
            inserts, moves = ([i for i in items if i.kind == kind] for kind in (INSERT, RETRACT))
            totals = Counter(i.new_end for i in moves)
            totals.subtract(i.end for i in moves)
            totals.update(i.end for i in inserts[:1])
            repetitions += len(inserts) - count_distinct(inserts)
            repetitions += len(moves) - count_distinct(moves) if min(totals.values()) < 0 else 0
        return repetitions

    def unmatched(self, events: Sequence[Item]) -> int:
        """Count retractions of an end that their event never had."""
        names = [(i.payload[self.source.id] if self.source.id else (i.start, comparable_payload(i)), i) for i in events]
        ends = {(comparable(n), end_ticks(i.end if i.kind == INSERT else i.new_end)) for n, i in names}
        return sum(i.kind == RETRACT and (comparable(n), end_ticks(i.end)) not in ends for n, i in names)

    def is_plain(self, events: Sequence[Item]) -> bool:
        """True if no two inserts have one id (without ids: one start and payload), and their retractions follow in order.

        In order, each retraction names the end that the item before it set. Retractions of an event without any insert are plain.
        """
        inserts = [self.name(item) for item in events if item.kind == INSERT]
        ends: dict[Any, int] = {}
        moved = set(inserts)
        for item in events:
            name = self.name(item)
            if item.kind == RETRACT and name in moved and ends.get(name) != end_ticks(item.end):
                return False
            ends[name] = end_ticks(item.end if item.kind == INSERT else item.new_end)
        return len(moved) == len(inserts)

    def _take(self, items: Sequence[Item], at: Reach) -> None:
        """Process the inserts of a micro-batch, then its retractions."""
        for item in items:
            if item.kind == INSERT:
                self._insert(item, at)
        for item in items:
            if item.kind == RETRACT:
                self._retract(item, at)

    def _insert(self, item: Item, at: Reach) -> None:
        """Add an event, in place of an earlier one of its name; count a late one, and drop it or let it start at c.

        One that has ended at c or before counts as dropped in either case.
        """
        start, end = start_of(item), end_ticks(item.end)
        event = _Event(start, end, item.payload, [(start, end)])
        self.live[self.name(item)] = event
        if start >= at.c:
            return
        self.admitted.late += 1
        if not self._acts(start, at):
            event.gone, event.pieces = True, []
            self._count(CountReason.DROPPED, item, at.c)
            return
        event.pieces = [(at.c, max(at.c, end))]
        self._count(CountReason.ADJUSTED if end > at.c else CountReason.DROPPED, item, at.c)

    def _retract(self, item: Item, at: Reach) -> None:
        """Move the end of the named event, or wait for it; a late retraction is dropped, or takes effect from c on.

        Late ones are counted, as adjusted or dropped, and so are all retractions of a dropped event, as dropped. A retraction
        that is dropped still moves the end that later ones name.
        """
        event = self.live.get(self.name(item))
        end, new_end = end_ticks(item.end), end_ticks(item.new_end)
        if event is None or event.end != end:
            self._wait(item, at)
            return
        event.end = new_end
        late = item.sync < at.c
        self.admitted.late += late
        if event.gone:
            self._count(CountReason.DROPPED, item, at.c)
            return
        if late and not self._acts(item.sync, at):
            # the part from c on would be an event of its own, which is dropped, so later retractions of it are too
            event.gone = end < at.c <= new_end
            self._count(CountReason.DROPPED, item, at.c)
            return
        start, own_end = event.pieces[-1]
        if late:
            new_end = max(new_end, at.c)
        if own_end <= at.c and min(end, own_end) < at.c:
            # a piece that ended before c is settled; the part from c on is a new piece, which later retractions move
            event.pieces.append((at.c, new_end))
            if late and new_end == at.c:
                self._count(CountReason.DROPPED, item, at.c)
                return
        else:
            event.pieces[-1] = (start, max(start, new_end))
        if late:
            self._count(CountReason.ADJUSTED, item, at.c)

    def _wait(self, item: Item, at: Reach) -> None:
        """Keep a retraction whose event has not come; count it as dropped if it is late and the policy does not adjust it.

        If c has passed the end that it names, it takes effect at once.
        """
        late = item.sync < at.c
        self.admitted.late += late
        acts = not late or self._acts(item.sync, at)
        if acts and end_ticks(item.end) >= at.c:
            self.waiting.append((item, late))
        elif acts:
            self._begin(item, at)
        else:
            self._count(CountReason.DROPPED, item, at.c)

    def _pass(self, at: Reach) -> None:
        """Give up waiting for the events of retractions whose end c has passed; at the end of the input, of all.

        Such a retraction takes effect from c on if its event could come in time by the source's own CTI; else it counts as
        invalid, or as dropped if it was late itself.
        """
        over = [(item, late) for item, late in self.waiting if end_ticks(item.end) < at.c or at.c == INFINITY]
        self.waiting = [pair for pair in self.waiting if pair not in over]
        for item, late in over:
            if end_ticks(item.end) >= at.promised < INFINITY:
                # by the source's own CTI the event could still have come in time
                self.admitted.late += 1
                self._begin(item, at)
            else:
                self._count(*(CountReason.DROPPED, item, at.c) if late else (CountReason.INVALID, item))

    def _begin(self, item: Item, at: Reach) -> None:
        """Admit the part from c on of an event whose insert did not come in time, so that only its retraction is known.

        Counts the retraction as adjusted; as dropped if no part is left.
        """
        start, end = start_of(item), end_ticks(item.new_end)
        self.live[self.name(item)] = _Event(start, end, item.payload, [(at.c, max(at.c, end))])
        self._count(CountReason.ADJUSTED if end > at.c else CountReason.DROPPED, item, at.c)

    def end(self) -> Admission:
        """End the input; return what the source admits, with each piece of an event that is not empty as an event."""
        super().end()
        for event in self.live.values():
            for start, end in event.pieces:
                if start < end:
                    until = None if end == INFINITY else end
                    self.admitted.events.append(Item(INSERT, start, until, payload=event.payload))
        return self.admitted


@dataclass
class _Edge:
    """An edge: its item, and the instant ``since`` which it takes effect, which is later if it was late and adjusted.

    ``place``: that in its chain; ``opens``: it is a start; ``gone``: it was dropped; ``passed``: it is an end, and c has passed
    its time; ``is_none``: c passed it before its start came, so it is forgotten.
    """

    item: Item
    place: Any
    since: int
    gone: bool = False
    passed: bool = False
    is_none: bool = False

    @property
    def time(self) -> int:
        return start_of(self.item)

    @property
    def opens(self) -> bool:
        return self.item.kind == OPEN

    @property
    def payload(self) -> Mapping[str, Any]:
        return self.item.payload


class EdgesModel(SourceModel[EdgeSource]):
    """Start and end edges, a chain for each key: an event lasts until the first instant at which a later edge takes effect."""

    def __init__(self, source: EdgeSource):
        super().__init__(source)
        self.chains: dict[Any, list[_Edge]] = {}

    def repeated(self, events: Sequence[Item]) -> int:
        return len(events) - len({(self._key(item), self._place(item), comparable_payload(item)) for item in events})

    def unmatched(self, events: Sequence[Item]) -> int:
        """Return the number of different edges that share their place in a chain, and of ends without a start before them."""
        chains: dict[Any, dict[Any, set[Any]]] = {}
        for item in events:
            places = chains.setdefault(self._key(item), {})
            places.setdefault(self._place(item), set()).add(comparable_payload(item))
        count = 0
        for places in chains.values():
            count += sum(len(payloads) for payloads in places.values() if len(payloads) > 1)
            opened = False
            for *_, opens in sorted(place for place, payloads in places.items() if len(payloads) == 1):
                count += not opens and not opened
                opened = opens
        return count

    def is_plain(self, events: Sequence[Item]) -> bool:
        """True if no two edges of a key have the same place in its chain."""
        return len({(self._key(item), self._place(item)) for item in events}) == len(events)

    def _key(self, item: Item) -> Any:
        return tuple(comparable(item.payload[name]) for name in self.source.key)

    def _place(self, item: Item) -> Any:
        """Return an edge's place in its chain: its time, its values in the order columns, NULLs first, and if it is a start."""
        values = [item.columns.get(name) for name in self.source.order_by]
        order = [(0,) if v is None else (2,) if v != v else (1, v) for v in values]
        return (start_of(item), *order, item.kind == OPEN)

    def _take(self, items: Sequence[Item], at: Reach) -> None:
        """Add edges to the chains of their keys, and count late ones as adjusted if they change the events, else as dropped.

        A late edge takes effect at c. It is ``gone`` if it lies before the promised CTI and the policy does not adjust it. One
        that changes nothing is counted as dropped, but stays in the chain and takes effect.
        """
        late: list[tuple[list[_Edge], _Edge]] = []
        for item in items:
            chain = self.chains.setdefault(self._key(item), [])
            edge = _Edge(item, self._place(item), start_of(item))
            if edge.time < at.c:
                self.admitted.late += 1
                edge.since, edge.gone = at.c, not self._acts(edge.time, at)
                late.append((chain, edge))
            chain.append(edge)
            chain.sort(key=lambda e: e.place)
        for chain, edge in late:
            lifetimes = self._lifetimes(chain)
            changes = self._events(chain) != self._events([e for e in chain if e is not edge])
            # it also counts as adjusted if the event that it opens, or its payload, equals the one before
            changes |= any(edge is opened for _, _, opened, _ in lifetimes)
            changes |= self._brings_payload and any(edge is by for *_, by in lifetimes)
            self._count(CountReason.ADJUSTED if changes and not edge.gone else CountReason.DROPPED, edge.item, at.c)

    def _pass(self, at: Reach) -> None:
        """Count the ends, among those on time that c has now passed, that close no event; then forget what no later edge needs.

        An end counts as dropped if its event was dropped or has ended before, or if only the level of consistency made it late
        (it then counts as late, too); else as invalid. Invalid ends are forgotten unless late edges are adjusted, for then a late
        start may still come before them; late ends that were dropped, where no event is open.
        """
        for chain in self.chains.values():
            over = [e for e in chain if e.time < at.c and e.since == e.time and not e.opens and not e.passed]
            lost = [edge for edge, gone in zip(chain, _orphaned(chain), strict=True) if gone]
            acting = _acting(chain)
            pairs = [(before, after) for before, after in itertools.pairwise(acting) if before.opens]
            closing = [after for _, after in pairs]
            # nothing is left of an event that ends where it starts
            brief = [after for before, after in pairs if before.time == after.time]
            ends = [by for *_, by in self._lifetimes(chain)]
            for edge in over:
                edge.passed = True
                # its event was dropped, or ended before this edge took effect
                is_idle = any(edge is other for other in closing) and not any(edge is by for by in [*ends, *brief])
                if is_idle or any(edge is other for other in lost):
                    self._count(CountReason.DROPPED, edge.item)
                elif not any(edge is other for other in closing):
                    # by the source's own CTI its start may still come, so the level of consistency made it late
                    level = edge.time >= at.promised
                    self.admitted.late += level
                    self._count(CountReason.DROPPED if level else CountReason.INVALID, edge.item)
                    edge.is_none = not level and self.source.policy.late is not ADJUST
            is_open = any(end >= at.c for _, end, *_ in self._lifetimes(chain))
            for edge in chain:
                edge.is_none |= edge.gone and not edge.opens and not is_open
            # if late edges are dropped, an end without a start is forgotten, so that a later end can close a late start
            chain[:] = [edge for edge in chain if not edge.is_none]

    def end(self) -> Admission:
        """End the input; return what the source admits, with the events that the chains form; open ones stay without an end."""
        super().end()
        for chain in self.chains.values():
            self.admitted.events += self._events(chain)
        return self.admitted

    @property
    def _brings_payload(self) -> bool:
        """True if an event has the payload of its end edge."""
        return self.source.payload_from == "end"

    def _lifetimes(self, chain: Sequence[_Edge]) -> list[tuple[int, int, _Edge, _Edge | None]]:
        """Return, for each event of a chain, its start, its end, its opening edge, and its closing edge.

        An open event has no closing edge and ends at INFINITY. The closing edge is an end or a later start. Of edges that take
        effect at one instant an end is the first, or with ``order_by`` the one that is first in the chain. Events that would be
        empty are left out.
        """
        acting = _acting(chain)
        lifetimes = []
        for i, edge in enumerate(acting):
            if not edge.opens:
                continue
            ends_first = not self.source.order_by
            by = min(acting[i + 1 :], key=lambda e: (e.since, ends_first and e.opens), default=None)
            end = INFINITY if by is None else by.since
            if edge.since < end:
                lifetimes.append((edge.since, end, edge, by))
        return lifetimes

    def _events(self, chain: Sequence[_Edge]) -> list[Item]:
        """Return the events of a chain; the end of an open event is None.

        With ``payload_from="end"`` an event that an end closes has the payload of that end; one that is open, or that the next
        start closes, has its start's.
        """
        events = []
        for start, end, opened, by in self._lifetimes(chain):
            closes = self._brings_payload and by is not None and not by.opens
            payload = by.payload if closes and by is not None else opened.payload
            events.append(Item(INSERT, start, None if end == INFINITY else end, payload=payload))
        return events


def _orphaned(chain: Sequence[_Edge]) -> list[bool]:
    """Return a mask of the edges of a chain that are dropped because they end an event whose start was dropped."""
    return [
        not edge.opens and not edge.gone and i > 0 and _takes_along(chain[i - 1], edge) for i, edge in enumerate(chain)
    ]


def _takes_along(start: _Edge, end: _Edge) -> bool:
    """True if a start was dropped and the end after it with it, because the end takes effect no earlier than the start would."""
    return start.opens and start.gone and end.since >= start.since


def _acting(chain: Sequence[_Edge]) -> list[_Edge]:
    """Return the edges of a chain that take effect: those that were not dropped."""
    return [edge for edge, lost in zip(chain, _orphaned(chain), strict=True) if not (edge.gone or lost)]
