"""Retractions applied to the live events that they name: the lifetime sent for an event follows its end as far as c allows.

Each retraction moves an end, so the retractions of one event form a chain from end to end. The events that a micro-batch
concerns are read from bins by event and written back; an insert without an id concerns other rows only if retractions wait,
so it is added to its bin without reading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.choices import CountReason
from streamq.runtime.arrow.columnar import codes, concat, ints, is_matching, with_column
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.deltas import LE, NEW_END, RE
from streamq.runtime.groups import HASH, distinct_hashes, least_by_group, with_hashes
from streamq.runtime.kernel import Judge, Totals
from streamq.runtime.state.agenda import agenda_of
from streamq.runtime.state.baskets import BinSizes, KernelBaskets
from streamq.runtime.state.group_bins import GroupBins, with_timed_hashes
from streamq.runtime.time.lateness import Judgement, count_late, error_of_rows, is_behind, judgement
from streamq.runtime.time.progress_rule import saturating
from streamq.time import INFINITY, MINUS_INFINITY

EVENT = "__event"
"""The column of a row's event number; rows are matched by it, never by their values."""

BEHIND = "__behind"
"""The column that is true for a retraction that was late when it came."""

EventRow = dict[str, Any]
"""A retraction, or a live event, without its payload."""

Moves = list[tuple[int, EventRow]]
"""Retractions by their numbers in the micro-batch."""

Lifetimes = list[tuple[int, int]]
"""Starts and ends of the lifetimes sent for an event; one that ends where it starts is empty."""

RowPlace = tuple[int, int]
"""An event, by its number, at one of its ends."""


def with_lateness(retractions: pa.Table, c: int) -> pa.Table:
    """Return retractions with BEHIND: true if the lesser of their two ends lies behind c."""
    sync = np.minimum(ints(retractions, RE), ints(retractions, NEW_END))
    return with_column(retractions, BEHIND, is_behind(sync, c))


def event_place(row: EventRow) -> RowPlace:
    """Return the end at which a retraction finds its event: the end that it moves."""
    return (row[EVENT], row[RE])


def destination(move: EventRow) -> RowPlace:
    """Return the end at which a retraction leaves its event, and the next one of its chain finds it."""
    return (move[EVENT], move[NEW_END])


def numbered_event_rows(
    tables: Sequence[pa.Table], names: Sequence[str], technical: frozenset[str]
) -> list[list[EventRow]]:
    """Return the rows of each table as dictionaries, with an event number; rows of equal ``names`` are one event in all tables.

    A dictionary has the columns in ``technical``, and none of the payload.
    """
    number, _ = codes(concat([t.select(names).cast(tables[0].select(names).schema) for t in tables]), names)
    rows = []
    for table in tables:
        part, number = number[: table.num_rows], number[table.num_rows :]
        without_payload = table.select([n for n in table.column_names if n in technical])
        rows.append(with_column(without_payload, EVENT, part).to_pylist())
    return rows


def without_cycles(moves: Moves) -> Moves:
    """Return the moves without those that together lead an event back to the same end.

    Retractions of one event that arrive out of order may be matched in another order than they were made; those left over then
    form cycles, and add up to nothing.
    """
    left = dict(moves)
    leaving: dict[RowPlace, list[int]] = {}
    for number, move in moves:
        leaving.setdefault(event_place(move), []).append(number)
    for first in [number for number, _ in moves]:
        path: list[int] = []
        seen: dict[RowPlace, int] = {}
        at: int | None = first if first in left else None
        while at is not None:
            seen[event_place(left[at])] = len(path)
            path.append(at)
            there = destination(left[at])
            if there in seen:
                for number in path[seen[there] :]:
                    del left[number]
                break
            at = next((n for n in leaving.get(there, ()) if n in left), None)
    return [(number, move) for number, move in moves if number in left]


def is_cut_off(moves: Sequence[EventRow], is_lost: Mask) -> Mask:
    """Mark the lost moves that no chain of moves from a kept one leads to."""
    is_lost = is_lost.copy()
    reached = {destination(move) for move, lost in zip(moves, is_lost, strict=True) if not lost}
    going = True
    while going:
        going = False
        for i, move in enumerate(moves):
            if is_lost[i] and event_place(move) in reached:
                is_lost[i], going = False, True
                reached.add(destination(move))
    return is_lost


def lifetimes_without(some: Sequence[Lifetimes], others: Sequence[Lifetimes]) -> list[tuple[int, int, int]]:
    """Return the lifetimes of events that are not among the ``others`` of the same event, as (event number, start, end).

    Empty ones are left out.
    """
    return [
        (i, start, end)
        for i, (mine, same) in enumerate(zip(some, others, strict=True))
        for start, end in mine
        if end > start and (start, end) not in same
    ]


OWN_LE, OWN_RE = "__own_le", "__own_re"
"""The lifetime sent for an event. Equal: no part of it from c on. OWN_RE DROPPED: later retractions are dropped, too."""
DROPPED = MINUS_INFINITY
FIRST, MOST = "__first", "__most"
"""With ids: the end with which the event was inserted (its start, if the insert is unknown), and the greatest finite end that it
has had (its start, if none)."""


@dataclass(eq=False, repr=False)
class SourceBatch:
    """A micro-batch of a source: its policy, its c, and the CTI that it has promised, before the micro-batch and now."""

    judge: Judge
    c: int
    promised: int
    c_now: int
    promised_now: int
    totals: Totals
    out: list[pa.Table]

    def judged(self, items: pa.Table, times: Ints) -> Judgement:
        """Judge items with these sync times."""
        return judgement(self.judge, times, self.c, self.promised, error_of_rows(self.judge, items, self.promised))

    def count(self, items: pa.Table, mask: Mask, reason: CountReason, c: int | None = None) -> None:
        """Count the items of a mask as dropped or adjusted behind ``c``, which is the CTI before the micro-batch by default."""
        count_late(items, mask, reason, self.judge, self.c if c is None else c, self.totals)


@dataclass(eq=False, repr=False)
class Matching:
    """Live events ``rows`` with retractions ``moves`` applied to them, and the outcome; has_ids: events have ids.

    pieces: sent lifetimes of an event that stay, as (its row, start, end). The other lists are numbers of retractions: applied,
    and among these dropped and adjusted; repeated ones repeat an applied one.
    """

    rows: list[EventRow]
    moves: pa.Table
    has_ids: bool
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    applied: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    adjusted: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)

    @property
    def lifetimes(self) -> list[Lifetimes]:
        """The lifetimes currently emitted for each row, its own first; an empty one is not sent."""
        lifetimes = [[(row[OWN_LE], row[OWN_RE])] for row in self.rows]
        for i, start, end in self.pieces:
            lifetimes[i].append((start, end))
        return lifetimes

    def apply(self, open_moves: Moves, batch: SourceBatch) -> Moves:
        """Apply moves to the live ends that they name until none matches; return those that are left over.

        The rows, ``pieces`` and the lists of numbers change; a move that is late under the policy "fail" raises LateEvent.
        """
        where: dict[RowPlace, list[int]] = {}
        for i, row in enumerate(self.rows):
            where.setdefault(event_place(row), []).append(i)
        while True:
            unmatched: Moves = []
            for number, move in open_moves:
                events = where.get(event_place(move))
                if not events:
                    unmatched.append((number, move))
                    continue
                i = events.pop()
                self._move(i, number, move[NEW_END], batch)
                self.applied.append(number)
                where.setdefault(event_place(self.rows[i]), []).append(i)
            if len(unmatched) == len(open_moves):
                return open_moves
            open_moves = unmatched

    def _move(self, i: int, number: int, new: int, batch: SourceBatch) -> None:
        """Move the end of the live row ``i`` to ``new``; the lifetime sent follows as far as c allows.

        ``number`` is the retraction's: it is added to the dropped or adjusted ones if it is late, and to the dropped ones if the
        event itself has been dropped. A sent lifetime that is settled, or stays beside a dropped part, is put into ``pieces``.
        """
        row, c = self.rows[i], batch.c
        old, row[RE] = row[RE], new
        if self.has_ids and new != INFINITY:
            row[MOST] = max(row[MOST], new)
        if row[OWN_RE] == DROPPED:
            self.dropped.append(number)
            return
        # this holds for waiting ones, too: one whose event came on time is on time
        is_late = min(old, new) < c
        if is_late and batch.judged(self.moves.slice(number, 1), np.array([min(old, new)])).is_dropped[0]:
            if old < c <= new:
                # the dropped part is an event of its own: the lifetime sent stays, later retractions are dropped with that part
                self.pieces.append((i, row[OWN_LE], row[OWN_RE]))
                row[OWN_RE] = DROPPED
            self.dropped.append(number)
            return
        end = max(new, c) if is_late else new
        is_settled = min(old, row[OWN_RE]) < c >= row[OWN_RE]
        if is_settled:
            # the settled lifetime stays; the part that the retraction adds from c on, maybe none, is an event of its own
            self.pieces.append((i, row[OWN_LE], row[OWN_RE]))
            row[OWN_LE], row[OWN_RE] = c, end
        else:
            row[OWN_RE] = max(end, row[OWN_LE])
        if is_late:
            (self.dropped if is_settled and end == c else self.adjusted).append(number)


LIVE, WAITING, APPLIED = "live", "waiting", "applied"
CHANGED = "__changed"
"""The CTI after the micro-batch in which a live row was last changed."""
_NO_HASHES = np.zeros(0, np.uint32)


class PhysicalState:
    """The live rows, the retractions that wait and, with ids, those applied, of the events that a micro-batch concerns."""

    def __init__(self, state: KernelBaskets, payload: Sequence[str], id: str | None):
        """Open the bins in ``state``; without ``id`` an event is its start and ``payload``."""
        self.values, self.id = state.values, id
        self._state, self._event = state, [LE, *payload] if id is None else [id]
        self._bins = GroupBins(state, BinSizes(slack=0))
        self.live: list[pa.Table] = []
        self.waiting: pa.Table | None = None
        self.applied: list[pa.Table] = []

    @property
    def rows(self) -> int:
        return sum(table.num_rows for tables in self._tables.values() for table in tables)

    @property
    def _tables(self) -> dict[str, list[pa.Table]]:
        return {LIVE: self.live, WAITING: [] if self.waiting is None else [self.waiting], APPLIED: self.applied}

    def hashed(self, items: pa.Table) -> pa.Table:
        """Return items with the hashes of their events."""
        if self.id is not None:
            return with_hashes(items, self._event)
        return with_timed_hashes(items, self._event, self._state)

    def read(self, inserts: Sequence[pa.Table], retractions: Sequence[pa.Table], c: int) -> None:
        """Read the rows of the events that items, with hashes, concern, and of those in which something is due at ``c``."""
        concerned = [i.filter(pa.array(self._bins.has_rows(WAITING, i) | (self.id is not None))) for i in inserts]
        self._bins.open(distinct_hashes([*concerned, *retractions]), c)
        live, waiting, applied = (self._bins.events(basket) for basket in (LIVE, WAITING, APPLIED))
        self.live, self.waiting, self.applied = _listed(live), waiting, _listed(applied)
        settled_at = int(self.values.get("settled_at", MINUS_INFINITY))
        promised = int(self.values.get("promised_then", MINUS_INFINITY))
        self._forget_settled(settled_at, promised, changed_before=settled_at)

    def settle(self, c: int, promised: int) -> None:
        """Forget the settled events, because the CTI has moved to ``c``; the source has sent ``promised``."""
        self.values["settled_at"], self.values["promised_then"] = c, promised
        self._forget_settled(c, promised, changed_before=INFINITY)

    def write(self, c: int) -> None:
        """Write the rows, and the CTIs at which their events must be looked at; at the end of the stream forget all."""
        if c == INFINITY:
            self._bins.drop([LIVE, WAITING, APPLIED])
            return
        for basket, tables in self._tables.items():
            table = concat(tables) if tables else None
            if table is None:
                self._bins.replace_events(basket, None)
                continue
            is_active = self._bins.is_active(table)
            self._bins.replace_events(basket, table.filter(pa.array(is_active)))
            self._bins.add(basket, table.filter(pa.array(~is_active)))
        self._bins.write_agenda(self._agenda(c), [LIVE, WAITING])
        self._bins.close([LIVE, WAITING], c)

    def _agenda(self, c: int) -> pa.Table:
        """Return the CTIs at which events must be looked at: a retraction stops waiting, or one that has ended is forgotten.

        Other events are forgotten when their bins are cleaned.
        """
        hashes, dues = [_NO_HASHES], [np.zeros(0, np.int64)]
        if self.waiting is not None:
            ends = ints(self.waiting, RE)
            hashes.append(self.waiting.column(HASH).to_numpy()[ends >= c])
            dues.append(ends[ends >= c])
        for live in self.live:
            ended = live.filter(pa.array(ints(live, RE) < c))
            hashes.append(ended.column(HASH).to_numpy())
            dues.append(np.maximum(self._last_end(ended), c))
        distinct, place = np.unique(np.concatenate(hashes), return_inverse=True)
        due = least_by_group(len(distinct), (place, np.concatenate(dues)), otherwise=INFINITY)
        return agenda_of(distinct, c=saturating(due, 1))

    def _last_end(self, live: pa.Table) -> Ints:
        """Return the instant until which each live row is needed: the greatest of its end, the end sent, and its finite ends."""
        end = np.maximum(ints(live, RE), ints(live, RE if self.id is None else MOST))
        return np.maximum(end, ints(live, OWN_RE))

    def _forget_settled(self, c: int, promised: int, *, changed_before: int) -> None:
        """Forget the events that are settled at ``c``, and the retractions applied to these.

        An event is settled once c has passed its end, the end sent and, with ids, all its finite ends; at c INFINITY all are.
        Those changed at the CTI ``changed_before`` or later are left, as it has not moved since.
        """
        if not self.live:
            return
        live = concat(self.live)
        # a retraction of a dropped event may be on time for its source, though late by the level
        over = np.where(ints(live, OWN_RE) == DROPPED, min(c, promised), c)
        is_needed = (self._last_end(live) >= over) & (c != INFINITY)
        live = live.filter(pa.array(is_needed | (ints(live, CHANGED) >= changed_before)))
        self.live = [live]
        if self.applied and self.id is not None:
            applied = concat(self.applied)
            self.applied = [applied.filter(pa.array(is_matching(applied, live, [self.id])))]


def _listed(table: pa.Table | None) -> list[pa.Table]:
    return [] if table is None else [table]
