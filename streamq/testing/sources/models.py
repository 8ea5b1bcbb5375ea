"""The model of physical sources: inserts, and retractions, each of which refers to an event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamq.choices import CountReason
from streamq.runtime.event import CTI, INSERT, RETRACT
from streamq.sources.physical import Physical
from streamq.testing.arrival import Item, comparable, comparable_payload, count_distinct, end_ticks, start_of
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
