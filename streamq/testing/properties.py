"""The rules of a physical stream, and the search for the rows that break each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from streamq.errors import SourceError, sentence
from streamq.runtime.event import CTI
from streamq.testing.folding import NEVER, FoldedChanges, Items, fold_items, history_of, items_of, unmatched
from streamq.testing.history import shown
from streamq.testing.recorded import KINDS, NO_ITEM, Ints, RecordedStream, no_items
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
class Breaches:
    """The rows that break a rule, in order, and the function that describes the k-th of them."""

    rule: str
    rows: Ints
    show: Callable[[int], BreachDisplay]


def breaches_in(
    stream: RecordedStream, shape: str | None, order: str | None, ctis: bool, keyed: bool, verb: str
) -> list[Breaches]:
    """Return the breaches of all rules; raise SourceError if rows without an order must be judged by order or by CTIs in them.

    ``shape``, ``order`` and ``ctis`` are the arguments of ``find_breaches``; ``keyed``: the stream has a key. ``verb`` is the
    function that errors name. A rule may have several entries, or one without rows.
    """
    bad = no_items(stream)
    if not stream.ordered:
        promises = bool((stream.kind == KINDS.index(CTI)).any())
        what = "order" if order else "CTIs" if ctis and promises else ""
        if what:
            hint = "Give batch=..., a column whose numbers or times order them" + (
                ", or ctis=False." if not order else "."
            )
            raise SourceError(sentence(verb, f"rows without an order cannot be judged for {what}", "", hint))
    judge = _Judge.from_stream(stream, np.flatnonzero(bad < 0), ctis)
    breaches = [Breaches("item", np.flatnonzero(bad >= 0), lambda k: BreachDisplay(NO_ITEM[bad[bad >= 0][k]]))]
    breaches += judge.matched(order is not None)
    if ctis:
        breaches += judge.promised()
    if order == "full":
        breaches.append(judge.in_order())
    match shape:
        case "point":
            breaches += judge.points()
        case "edge":
            breaches += judge.edges()
            if keyed:
                breaches.append(judge.one_at_a_time())
        case "signal":
            breaches += judge.signals()
    return breaches


@dataclass(frozen=True)
class _Judge:
    """The items of a stream, prepared for the search: ``rows`` are the rows of inserts and retractions, ``items`` their fields.

    ``ctis`` are the rows of the CTIs; ``c`` holds for each micro-batch the greatest CTI up to its end, ``by`` that CTI's row.
    """

    stream: RecordedStream
    rows: Ints
    items: Items
    ctis: Ints
    c: Ints
    by: Ints

    @classmethod
    def from_stream(cls, stream: RecordedStream, good: Ints, ctis: bool) -> _Judge:
        """Prepare the rows ``good`` of a stream; without ``ctis``, its CTIs are ignored."""
        cti = stream.kind[good] == KINDS.index(CTI)
        rows, promises = good[~cti], good[cti] if ctis else good[:0]
        items = items_of(stream, rows)
        batches = int(stream.batch.max(initial=-1)) + 1
        c = np.full(batches, MINUS_INFINITY)
        np.maximum.at(c, stream.batch[promises], stream.start[promises])
        c = np.maximum.accumulate(c)
        by = np.full(batches, -1)
        reaching = promises[stream.start[promises] == c[stream.batch[promises]]]
        by[stream.batch[reaching]] = reaching
        return cls(stream, rows, items, promises, c, np.maximum.accumulate(by))

    @cached_property
    def changes(self) -> FoldedChanges:
        """The changes that a consumer sees at the end of each micro-batch."""
        return fold_items(self.items)

    # every retraction matches

    def matched(self, causal: bool) -> list[Breaches]:
        """Search retractions that match no event and, if ``causal``, those that come before their event.

        An event may come late, as long as no CTI of an earlier micro-batch is past its start.
        """
        deadline = np.searchsorted(self.c, self.items.start, side="right")
        deadline = np.where(deadline < len(self.c), deadline, NEVER)
        unmatched_rows, early_rows = (np.array(searches, np.int64) for searches in unmatched(self.items, deadline))

        def show(rows: Ints, says: str) -> Callable[[int], BreachDisplay]:
            return lambda k: self._near_items(int(rows[k]), says)

        whose = "id" if self.stream.names.id else "payload"
        searches = [
            Breaches(
                "match", self.rows[unmatched_rows], show(unmatched_rows, f"no event {{}} of this {whose} is there")
            )
        ]
        if causal:
            searches.append(
                Breaches(
                    "order", self.rows[early_rows], show(early_rows, "comes before the event {} that it takes back")
                )
            )
        return searches

    def _near_items(self, at: int, says: str) -> BreachDisplay:
        """Describe a retraction with at most BESIDE items of its id or payload: those of its start, then the nearest.

        ``at`` is its position among the items, ``says`` the message, with ``{}`` for its lifetime.
        """
        i = int(self.rows[at])
        own_end = (int(self.items.start[at]), int(self.items.end[at]))
        others = np.flatnonzero(self.stream.whose[self.rows] == self.stream.whose[i])
        others = others[others != at]
        near = np.sort(others[np.lexsort((np.abs(others - at), self.items.start[others] != own_end[0]))][:BESIDE])
        lines = [(*own_end, "taken back")]
        for n in near:
            start, end, new_end = (int(t[n]) for t in (self.items.start, self.items.end, self.items.new_end))
            kind, row = self.stream.kind_of(int(self.rows[n])), int(self.stream.at[self.rows[n]])
            if self.items.is_retraction[n]:
                lines.append((start, end, f"{kind} to {self._time(new_end)}, row {row}"))
            else:
                lines.append((start, end, f"{kind}, row {row}"))
        return BreachDisplay(says.format(f"[{self._time(own_end[0])}, {self._time(own_end[1])})"), tuple(lines))

    # CTIs and order

    def promised(self) -> list[Breaches]:
        """Search changes before the CTI that held when their micro-batch began, and CTIs that go back: an entry for each."""
        before, by = _shifted(self.c, MINUS_INFINITY), _shifted(self.by, -1)
        back = self.ctis[self.stream.start[self.ctis] < before[self.stream.batch[self.ctis]]]
        changes = self.changes
        late = np.flatnonzero(changes.sync < before[changes.batch])

        def cti(batch: int) -> tuple[int, str]:
            return int(before[batch]), f"cti, row {self.stream.at[by[batch]]}"

        def show_late(k: int) -> BreachDisplay:
            """Describe the k-th late change, with the CTI before it."""
            at = int(late[k])
            c, label = cti(int(changes.batch[at]))
            says = (
                f"{self._together(at)}changes the history at {self._time(int(changes.sync[at]))}, "
                f"after cti {self._time(c)}"
            )
            return BreachDisplay(says, self._change(at), ((c, label),))

        def show_back(k: int) -> BreachDisplay:
            c, label = cti(int(self.stream.batch[back[k]]))
            says = f"goes back from {self._time(c)}"
            return BreachDisplay(says, (), ((int(self.stream.start[back[k]]), "this"), (c, label)))

        return [Breaches("cti", self.rows[changes.row[late]], show_late), Breaches("cti", back, show_back)]

    def in_order(self) -> Breaches:
        """Search changes with a sync time before one of an earlier micro-batch."""
        changes = self.changes
        greatest = np.full(len(self.c), MINUS_INFINITY)
        np.maximum.at(greatest, changes.batch, changes.sync)
        before = _shifted(np.maximum.accumulate(greatest), MINUS_INFINITY)
        late = np.flatnonzero(changes.sync < before[changes.batch])

        def show(k: int) -> BreachDisplay:
            """Describe the k-th late change, with the first change of the greatest sync time before it."""
            at = int(late[k])
            bound = int(before[changes.batch[at]])
            first = int(np.flatnonzero(changes.sync == bound)[0])
            row = self.stream.at[self.rows[changes.row[first]]]
            says = f"has sync time {self._time(int(changes.sync[at]))}, before {self._time(bound)} of row {row}"
            return BreachDisplay(self._together(at) + says, self._change(at), ((bound, f"sync time of row {row}"),))

        return Breaches("order", self.rows[changes.row[late]], show)

    # shapes

    def points(self) -> list[Breaches]:
        """Search inserts longer than a tick, and retractions that do not delete."""
        changes = self.changes
        long = np.flatnonzero(~changes.is_retraction & (changes.end != changes.start + 1))
        moved = np.flatnonzero(changes.is_retraction & (changes.new_end != changes.start))
        return [self._shape(long, "lasts longer than a tick"), self._shape(moved, "moves a point's end")]

    def edges(self) -> list[Breaches]:
        """Search inserts with an end, and retractions other than the one that gives an open event its end.

        Returns nothing for rows of a history and for rows without an order; inserts are searched only if there are no batches.
        """
        # rows of a history, and rows without an order, may be events that have ended
        if self.stream.names.kind is None or not self.stream.ordered:
            return []
        changes = self.changes
        closed = np.flatnonzero(~changes.is_retraction & (changes.end != INFINITY) & (self.stream.names.batch is None))
        again = np.flatnonzero(changes.is_retraction & (changes.end != INFINITY))
        gone = np.flatnonzero(changes.is_retraction & (changes.end == INFINITY) & (changes.new_end == changes.start))
        open = np.flatnonzero(changes.is_retraction & (changes.end == INFINITY) & (changes.new_end == INFINITY))
        return [
            self._shape(closed, "an edge event is inserted without an end"),
            self._shape(again, "the event has got its end before"),
            self._shape(gone, "an edge event ends after its start"),
            self._shape(open, "takes back an open event and leaves it open"),
        ]

    def one_at_a_time(self) -> Breaches:
        """Search events of the history that start while another of their key is alive."""
        row, key, start, end = self._history()
        rank = np.unique(end, return_inverse=True)[1]
        wide = int(rank.max(initial=0)) + 1
        latest = np.maximum.accumulate(key * wide + rank)
        before = _shifted(latest, -1)
        ends = np.unique(end)
        inside = np.flatnonzero((before // wide == key) & (ends[before % wide] > start) if len(key) else key)

        def show(k: int) -> BreachDisplay:
            """Describe the k-th such event, with the one that is alive when it starts."""
            at = int(inside[k])
            holder = int(np.flatnonzero(latest == before[at])[0])
            other = (int(start[holder]), int(end[holder]), f"alive, row {self.stream.at[row[holder]]}")
            this = (int(start[at]), int(end[at]), "this")
            return BreachDisplay("starts while another event of its key is alive", (other, this))

        return _sorted(Breaches("shape", row[inside], show))

    def signals(self) -> list[Breaches]:
        """Search events of the history that do not end where the next one of their key starts.

        The last one of a key must be endless, or end where no CTI has passed, as the sample that ends it may still come.
        """
        row, key, start, end = self._history()
        last = np.flatnonzero((np.diff(start, append=0) != 0) | (np.diff(key, append=-1) != 0))
        follows = last[np.searchsorted(last, np.arange(len(row)))] + 1 if len(row) else row
        there = np.append(key, -1)[follows] == key
        expected = np.where(there, np.append(start, 0)[follows], INFINITY)
        # the sample that ends the last one of a key may still come
        still = ~there & (end >= (self.c[-1] if len(self.c) else MINUS_INFINITY))
        wrong = np.flatnonzero((end != expected) & ~still)

        def show(k: int) -> BreachDisplay:
            """Describe the k-th such event, with its key's next one, if there is one."""
            at = int(wrong[k])
            this = (int(start[at]), int(end[at]), "this")
            if not there[at]:
                return BreachDisplay(f"ends at {self._time(int(end[at]))}, where no sample of its key starts", (this,))
            after = int(follows[at])
            other = (int(start[after]), int(end[after]), f"the next sample, row {self.stream.at[row[after]]}")
            says = f"its key's next sample starts at {self._time(other[0])}"
            return BreachDisplay(says, (this, other))

        return [_sorted(Breaches("shape", row[wrong], show))]

    def _history(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the events of the history, ordered by key and start: the row that set the end, the key, start, end."""
        events = history_of(self.items)
        # with ids, only inserts need to have the payload
        key = self.stream.key[self.rows[events.insert]]
        order = np.lexsort((events.end, events.start, key))
        return self.rows[events.row][order], key[order], events.start[order], events.end[order]

    # messages

    def _shape(self, at: Ints, says: str) -> Breaches:
        """Return the changes at these positions as breaches of the rule "shape", with the same message."""
        changes = self.changes
        return Breaches(
            "shape",
            self.rows[changes.row[at]],
            lambda k: BreachDisplay(self._together(int(at[k])) + says, self._change(int(at[k]))),
        )

    def _together(self, at: int) -> str:
        """Return the part of a message that names the other row of a retraction made of a delete and an insert; else ""."""
        row, other = int(self.changes.row[at]), int(self.changes.other[at])
        if other in (-1, row):
            return ""
        return (
            f"with row {self.stream.at[self.rows[other]]} a retraction to {self._time(int(self.changes.new_end[at]))}; "
        )

    def _change(self, at: int) -> tuple[tuple[int, int, str], ...]:
        """Return the lifetimes to draw for a change: the one inserted, or the one taken back and what is left of it."""
        changes = self.changes
        start, end, new_end = int(changes.start[at]), int(changes.end[at]), int(changes.new_end[at])
        if not changes.is_retraction[at]:
            return ((start, end, "inserted"),)
        left = ((start, new_end, "left"),) if new_end > start else ()
        return ((start, end, "taken back"), *left)

    def _time(self, t: int) -> str:
        return shown(t, self.stream.axis)


def _shifted(values: Ints, first: int) -> Ints:
    """Return, for each value, the one before it; ``first`` for the first."""
    return np.concatenate([np.array([first]), values])[: len(values)]


def _sorted(breaches: Breaches) -> Breaches:
    """Return the breaches in the order of the stream."""
    order = np.argsort(breaches.rows, kind="stable")
    return Breaches(breaches.rule, breaches.rows[order], lambda k: breaches.show(int(order[k])))
