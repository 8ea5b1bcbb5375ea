"""The rules of a physical stream, and the search for the rows that break each."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby

from streamq.errors import SourceError
from streamq.runtime.event import CTI, RETRACT
from streamq.testing.folding import Change, Event, fold_items, history_of, in_order, unmatched
from streamq.testing.history import interval, shown
from streamq.testing.recorded import RecordedRow, RecordedStream
from streamq.time import INFINITY, MINUS_INFINITY

RULES = {
    "item": "every row is an insert, a retraction or a CTI, with a start, an end after it and no new end before it",
    "match": "every retraction matches an event",
    "cti": "no item changes anything before an earlier CTI, and no CTI goes back",
    "order": "items come in the declared order",
    "shape": "events have the declared shape",
}
"""The rules by name; a row that breaks the rule "item" is not judged by the others."""

BESIDE = 3
"""The greatest number of rows that are drawn beside a retraction that matches nothing."""


@dataclass(frozen=True)
class BreachDisplay:
    """The message on a row that breaks a rule, and the lifetimes (start, end, label) and instants (time, label) to draw."""

    says: str
    lifetimes: tuple[tuple[int, int, str], ...] = ()
    instants: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Finding:
    """A row that breaks a rule, and the function that describes it."""

    rule: str
    row: RecordedRow
    show: Callable[[], BreachDisplay]


def breaches_in(
    stream: RecordedStream, shape: str | None, order: str | None, ctis: bool, keyed: bool, verb: str
) -> list[Finding]:
    """Return the breaches of all rules, in the order of the stream.

    Raises SourceError if rows without an order must be judged by order or by CTIs in them. ``shape``, ``order`` and ``ctis`` are
    the arguments of ``find_breaches``; ``keyed``: the stream has a key. ``verb`` is the function that errors name.
    """
    if not stream.ordered:
        what = "order" if order else "CTIs" if ctis and any(row.kind == CTI for row in stream.rows) else ""
        if what:
            hint = f"Give batch=..., a column whose numbers or times order them{'' if order else ', or ctis=False'}."
            raise SourceError(verb, f"rows without an order cannot be judged for {what}", "", hint)
    judge = _Judge(stream, ctis)
    searches: list[Iterator[Finding]] = [judge.items(), judge.matched(order is not None)]
    searches += [judge.late(), judge.going_back()] * ctis
    searches += [judge.in_order()] * (order == "full")
    match shape:
        case "point":
            searches.append(judge.points())
        case "edge":
            searches.append(judge.edges())
            searches += [judge.one_at_a_time()] * keyed
        case "signal":
            searches.append(judge.signals())
    return sorted((finding for search in searches for finding in search), key=lambda finding: in_order(finding.row))


class _Judge:
    """The rows of a stream, prepared for the search: ``rows`` are its inserts and retractions, ``ctis`` its CTIs.

    ``progress`` holds, for each micro-batch, the greatest CTI up to its end, and the row of that CTI, None if there is none.
    """

    def __init__(self, stream: RecordedStream, ctis: bool):
        """Prepare the rows that are items; without ``ctis``, CTIs are ignored."""
        self.stream = stream
        good = [row for row in stream.rows if not row.fault]
        self.rows = [row for row in good if row.kind != CTI]
        self.ctis = [row for row in good if row.kind == CTI] if ctis else []
        self.progress: list[tuple[int, RecordedRow | None]] = []
        c, last = MINUS_INFINITY, iter([*self.ctis, None])
        by, cti = None, next(last)
        for batch in range(1 + max((row.batch for row in stream.rows), default=-1)):
            while cti is not None and cti.batch == batch:
                if _start(cti) >= c:
                    c, by = _start(cti), cti
                cti = next(last)
            self.progress.append((c, by))

    def _cti_before(self, batch: int) -> tuple[int, RecordedRow | None]:
        """Return the CTI that held when a micro-batch began, and its row."""
        return self.progress[batch - 1] if batch else (MINUS_INFINITY, None)

    @cached_property
    def changes(self) -> list[Change]:
        """The changes that a consumer sees at the end of each micro-batch."""
        return fold_items(self.rows)

    @cached_property
    def history(self) -> list[list[Event]]:
        """The events of the history, a list for each key, ordered by start and end; with ids, the inserts have the keys."""
        events: dict[object, list[Event]] = {}
        for event in history_of(self.rows):
            events.setdefault(event.insert.key, []).append(event)
        return [sorted(of_key, key=lambda event: (event.start, event.end)) for of_key in events.values()]

    def items(self) -> Iterator[Finding]:
        """Search rows that are no items."""
        for row in self.stream.rows:
            if row.fault:
                yield Finding("item", row, partial(BreachDisplay, row.fault))

    # every retraction matches

    def matched(self, causal: bool) -> Iterator[Finding]:
        """Search retractions that match no event and, if ``causal``, those that come before their event.

        An event may come late, as long as no CTI of an earlier micro-batch is past its start.
        """
        greatest = [c for c, _ in self.progress]

        def deadline(start: int) -> float:
            batch = bisect_right(greatest, start)
            return batch if batch < len(greatest) else math.inf

        whose = "id" if self.stream.names.id else "payload"
        unmatched_rows, early_rows = unmatched(self.rows, deadline)
        for row in unmatched_rows:
            yield Finding("match", row, partial(self._near_items, row, f"no event {{}} of this {whose} is there"))
        for row in early_rows if causal else ():
            yield Finding("order", row, partial(self._near_items, row, "comes before the event {} that it takes back"))

    def _near_items(self, row: RecordedRow, says: str) -> BreachDisplay:
        """Describe a retraction with at most BESIDE items of its id or payload: those of its start, then the nearest.

        ``says`` is the message, with ``{}`` for its lifetime.
        """
        place = self.rows.index(row)
        others = [(n, other) for n, other in enumerate(self.rows) if other.whose == row.whose and n != place]
        others.sort(key=lambda numbered: (numbered[1].start != row.start, abs(numbered[0] - place)))
        lines = [(_start(row), row.end, "taken back")]
        for _, other in sorted(others[:BESIDE], key=lambda numbered: numbered[0]):
            moved = f" to {self._time(other.new_end)}" if other.kind == RETRACT else ""
            lines.append((_start(other), other.end, f"{other.kind}{moved}, row {other.at}"))
        return BreachDisplay(says.format(interval(_start(row), row.end, self.stream.axis)), tuple(lines))

    # CTIs and order

    def late(self) -> Iterator[Finding]:
        """Search changes before the CTI that held when their micro-batch began."""
        for change in self.changes:
            if change.sync < self._cti_before(change.row.batch)[0]:
                yield Finding("cti", change.row, partial(self._show_late, change))

    def _show_late(self, change: Change) -> BreachDisplay:
        """Describe a late change, with the CTI before it."""
        c, by = self._cti_before(change.row.batch)
        says = f"{self._together(change)}changes the history at {self._time(change.sync)}, after cti {self._time(c)}"
        return BreachDisplay(says, self._change(change), ((c, _cti_label(by)),))

    def going_back(self) -> Iterator[Finding]:
        """Search CTIs that go back."""
        for row in self.ctis:
            c, by = self._cti_before(row.batch)
            if _start(row) < c:
                instants = ((_start(row), "this"), (c, _cti_label(by)))
                yield Finding("cti", row, partial(BreachDisplay, f"goes back from {self._time(c)}", (), instants))

    def in_order(self) -> Iterator[Finding]:
        """Search changes with a sync time before one of an earlier micro-batch."""
        first: Change | None = None
        for _, batch in groupby(self.changes, key=lambda change: change.row.batch):
            changes = list(batch)
            for change in changes:
                if first is not None and change.sync < first.sync:
                    yield Finding("order", change.row, partial(self._show_disorder, change, first))
            greatest = max(changes, key=lambda change: change.sync)
            first = greatest if first is None or greatest.sync > first.sync else first

    def _show_disorder(self, change: Change, first: Change) -> BreachDisplay:
        """Describe a change that comes too late, with the first change of the greatest sync time before it."""
        bound, row = first.sync, first.row.at
        says = f"has sync time {self._time(change.sync)}, before {self._time(bound)} of row {row}"
        return BreachDisplay(self._together(change) + says, self._change(change), ((bound, f"sync time of row {row}"),))

    # shapes

    def points(self) -> Iterator[Finding]:
        """Search inserts longer than a tick, and retractions that do not delete."""
        for change in self.changes:
            if change.new_end is None and change.end != change.start + 1:
                yield self._shape(change, "lasts longer than a tick")
            elif change.new_end is not None and change.new_end != change.start:
                yield self._shape(change, "moves a point's end")

    def edges(self) -> Iterator[Finding]:
        """Search inserts with an end, and retractions other than the one that gives an open event its end.

        Yields nothing for rows of a history and for rows without an order; inserts are searched only if there are no batches.
        """
        # rows of a history, and rows without an order, may be events that have ended
        if self.stream.names.kind is None or not self.stream.ordered:
            return
        for change in self.changes:
            if change.new_end is None:
                if change.end != INFINITY and self.stream.names.batch is None:
                    yield self._shape(change, "an edge event is inserted without an end")
            elif change.end != INFINITY:
                yield self._shape(change, "the event has got its end before")
            elif change.new_end == change.start:
                yield self._shape(change, "an edge event ends after its start")
            elif change.new_end == INFINITY:
                yield self._shape(change, "takes back an open event and leaves it open")

    def one_at_a_time(self) -> Iterator[Finding]:
        """Search events of the history that start while another of their key is alive."""
        for events in self.history:
            holder = events[0]
            for event in events[1:]:
                if event.start < holder.end:
                    alive = (holder.start, holder.end, f"alive, row {holder.row.at}")
                    says = "starts while another event of its key is alive"
                    yield Finding("shape", event.row, partial(BreachDisplay, says, (alive, _this(event))))
                holder = max(holder, event, key=lambda one: one.end)

    def signals(self) -> Iterator[Finding]:
        """Search events of the history that do not end where the next one of their key starts.

        The last one of a key must be endless, or end where no CTI has passed, as the sample that ends it may still come.
        """
        c = self.progress[-1][0] if self.progress else MINUS_INFINITY
        for events in self.history:
            following: Event | None = None
            for _, samples in groupby(reversed(events), key=lambda event: event.start):
                for event in (of_instant := list(samples)):
                    is_right = event.end == (INFINITY if following is None else following.start)
                    if not is_right and (following is not None or event.end < c):
                        yield Finding("shape", event.row, partial(self._show_sample, event, following))
                following = of_instant[-1]

    def _show_sample(self, event: Event, following: Event | None) -> BreachDisplay:
        """Describe a sample that ends wrongly, with its key's next one, if there is one."""
        if following is None:
            return BreachDisplay(f"ends at {self._time(event.end)}, where no sample of its key starts", (_this(event),))
        other = (following.start, following.end, f"the next sample, row {following.row.at}")
        return BreachDisplay(f"its key's next sample starts at {self._time(following.start)}", (_this(event), other))

    # messages

    def _shape(self, change: Change, says: str) -> Finding:
        """Return a change as a breach of the rule "shape"."""
        return Finding("shape", change.row, lambda: BreachDisplay(self._together(change) + says, self._change(change)))

    def _together(self, change: Change) -> str:
        """Return the part of a message that names the other row of a retraction made of a delete and an insert; else ""."""
        if change.other is None or change.other is change.row or change.new_end is None:
            return ""
        return f"with row {change.other.at} a retraction to {self._time(change.new_end)}; "

    def _change(self, change: Change) -> tuple[tuple[int, int, str], ...]:
        """Return the lifetimes to draw for a change: the one inserted, or the one taken back and what is left of it."""
        if change.new_end is None:
            return ((change.start, change.end, "inserted"),)
        left = ((change.start, change.new_end, "left"),) if change.new_end > change.start else ()
        return ((change.start, change.end, "taken back"), *left)

    def _time(self, t: int) -> str:
        return shown(t, self.stream.axis)


def _start(row: RecordedRow) -> int:
    """Return the start of a row that is an item."""
    assert row.start is not None
    return row.start


def _cti_label(row: RecordedRow | None) -> str:
    return "" if row is None else f"cti, row {row.at}"


def _this(event: Event) -> tuple[int, int, str]:
    return event.start, event.end, "this"
