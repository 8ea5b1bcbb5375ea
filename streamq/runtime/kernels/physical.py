"""Kernel of physical streams: retractions are applied to the live events that they name; late retractions act from c on.

The lifetime sent for an event follows its end as far as c allows.

State: every live event until it is settled, as the source sees it (start, end) and as it was sent; retractions whose insert has
not come yet. A late retraction of an end that c has passed adds an event of its own, which starts at c; if that is dropped, all
retractions that follow are dropped with it, even if the event is still in state. With ids, an event, alive or deleted, stays
until all finite ends that it ever had are settled, with the retractions applied to it: so a repetition that is on time is
recognized, and a later one is late.

State lies in bins by event. Cost: a micro-batch reads the events that its items concern, those in which something is due, and, to
forget them, bins in which most events are settled. Inserts are columnar; a retraction costs a look-up among the rows that share
its start, or its id. A retraction moves an end, so the retractions of one event form a chain from end to end; an insert without
an id concerns other rows only if retractions wait, so it is added to its bin without reading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import CountReason
from streamq.runtime.arrow.columnar import codes, concat, ints, is_matching, with_column
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.deltas import INSERT, KIND, LE, NEW_END, RE, RETRACT, weighted
from streamq.runtime.groups import HASH, distinct_hashes, least_by_group, with_hashes
from streamq.runtime.kernel import Arrival, Clock, Judge, Output, Totals, UncombinedKernel, remembered_judge
from streamq.runtime.kernels.insert_ingress import repetitions
from streamq.runtime.state.baskets import BinSizes, KernelBaskets
from streamq.runtime.state.group_bins import GroupBins, agenda_of, with_timed_hashes
from streamq.runtime.time.lateness import (
    Judgement,
    count_duplicates,
    count_invalid,
    count_late,
    error_of_rows,
    is_behind,
    judgement,
)
from streamq.runtime.time.progress_rule import AT_ONCE, ProgressRule, saturating
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


_TECHNICAL = frozenset((LE, RE, NEW_END, OWN_LE, OWN_RE, FIRST, MOST, BEHIND))


@dataclass(frozen=True)
class PhysicalKernel(UncombinedKernel):
    """A kernel that reads a source of inserts and retractions.

    payload: the payload columns in order; id: the column that identifies an event, if the stream has ids.
    """

    payload: tuple[str, ...]
    id: str | None

    @property
    def progress_rule(self) -> ProgressRule:
        return AT_ONCE

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Apply inserts, then the retractions that match an event; others wait while their event may still come on time.

        Late items are dropped or adjusted, or raise LateEvent, as the policy says; invalid ones are dropped, or raise
        InvalidEvent. Late, repeated and invalid ones are counted.
        """
        totals = Totals()
        batch = SourceBatch(
            remembered_judge(state, arrivals),
            c=max([a.c for a in arrivals], default=MINUS_INFINITY),
            promised=max([a.promised for a in arrivals], default=MINUS_INFINITY),
            c_now=clock.c,
            promised_now=min(clock.c, clock.promised),
            totals=totals,
            out=[],
        )
        held = PhysicalState(state, self.payload, self.id)
        items = [held.hashed(a.table) for a in arrivals]
        inserted = [i.filter(pc.equal(i.column(KIND), INSERT)) for i in items]
        retracted = [i.filter(pc.equal(i.column(KIND), RETRACT)) for i in items]
        held.read(inserted, retracted, clock.c)
        evaluated = held.rows + sum(i.num_rows for i in items)
        fresh = [self._new_inserts(self._without_repetitions(held, i, batch), batch) for i in inserted if i.num_rows]
        self._retract(held, fresh, retracted, batch)
        if clock.c != clock.c_before:
            held.settle(clock.c, batch.promised_now)
        held.write(clock.c)
        return Output(concat(batch.out) if batch.out else None, clock.c, totals, evaluated=evaluated)

    # inserts

    def _without_repetitions(self, held: PhysicalState, table: pa.Table, batch: SourceBatch) -> pa.Table:
        """Remove inserts of known events, if there are ids: those alive, or that could come again on time.

        Those equal to their event (start, first end, payload) are counted as duplicates, those of the same id that differ as
        invalid. Of several new inserts of one id the least by start, end and payload stays.
        """
        if self.id is None:
            return table
        events = None
        if held.live:
            live = concat(held.live)
            events = with_column(live, RE, live.column(FIRST)).filter(pa.array(ints(live, FIRST) > ints(live, LE)))
        what = [LE, RE, *(n for n in self.payload if n != self.id)]
        repeated, contrary = repetitions(table, events, [self.id], what)
        count_duplicates(table.filter(pa.array(repeated)), batch.judge, batch.totals)
        count_invalid(table.filter(pa.array(contrary)), batch.judge, "two events of one id", batch.totals)
        return table.filter(pa.array(~(repeated | contrary)))

    def _new_inserts(self, table: pa.Table, batch: SourceBatch) -> pa.Table:
        """Return new live rows for inserts, and send their lifetimes; those behind c are dropped, or cut to start at c.

        Late ones are counted, as dropped or adjusted, or raise LateEvent, as the policy says. A dropped one has a live row,
        too, by which its retractions are matched.
        """
        le, re = ints(table, LE), ints(table, RE)
        own_le, own_re = le.copy(), re.copy()
        verdict = batch.judged(table, le)
        if verdict.is_late.any():
            acts, is_left = verdict.acts, verdict.leaves(re)
            own_le[acts], own_re[acts & ~is_left], own_re[verdict.is_dropped] = batch.c, batch.c, DROPPED
            batch.count(table, verdict.is_late & ~is_left, CountReason.DROPPED)
            batch.count(table, is_left, CountReason.ADJUSTED)
        return self._send_new_rows(with_column(with_column(table, OWN_LE, own_le), OWN_RE, own_re), re, batch)

    def _send_new_rows(self, table: pa.Table, first: np.ndarray[Any, Any], batch: SourceBatch) -> pa.Table:
        """Return new live rows, inserted with the ends ``first``, and send their own lifetimes, unless these are empty."""
        live = table.select([*self.payload, LE, RE, OWN_LE, OWN_RE, HASH])
        live = with_column(live, CHANGED, np.full(live.num_rows, batch.c_now))
        if self.id is not None:
            le, re = ints(table, LE), ints(table, RE)
            live = with_column(with_column(live, FIRST, first), MOST, np.where(re == INFINITY, le, re))
        passed = live.filter(pa.array(ints(live, OWN_RE) > ints(live, OWN_LE)))
        if passed.num_rows:
            batch.out.append(self._delta(passed, 1))
        return live

    def _delta(self, live: pa.Table, weight: int) -> pa.Table:
        """Return the lifetimes sent for live rows as deltas of one weight."""
        delta = live.select(list(self.payload))
        delta = with_column(with_column(delta, LE, ints(live, OWN_LE)), RE, ints(live, OWN_RE))
        return weighted(delta, weight)

    # retractions

    def _retract(
        self, held: PhysicalState, fresh: list[pa.Table], retracted: Sequence[pa.Table], batch: SourceBatch
    ) -> None:
        """Add new events to ``held``, and apply retractions to its events: those that have waited, and new ones.

        Retractions that match no event wait if their event may still come; the others are judged as late, or counted as invalid.
        Those that together lead back to one end are forgotten.
        """
        new_moves = [with_lateness(r, batch.c) for r in retracted]
        moves = [r for r in (held.waiting, *new_moves) if r is not None and r.num_rows]
        waited = held.waiting.num_rows if held.waiting is not None else 0
        held.waiting = None
        held.live += fresh
        if not moves:
            return
        table = concat(moves)
        (rows,) = self._rows_by_event(table)
        open_moves: Moves = list(enumerate(rows))
        if held.live:
            open_moves = self._apply_moves(held, open_moves, table, batch)
        open_moves, new_live = self._judge_late_moves(held, open_moves, table, waited, batch)
        if new_live is not None:
            held.live.append(new_live)
            open_moves = self._apply_moves(held, open_moves, table, batch)
        self._wait(held, table, without_cycles(open_moves), batch)

    def _apply_moves(self, held: PhysicalState, open_moves: Moves, moves: pa.Table, batch: SourceBatch) -> Moves:
        """Move the ends of the live rows in ``held``; return the moves that match none.

        The rows that no move concerns come first, then the others with their ends moved; without ids, those whose end is now
        their start are left out. The change of the lifetimes is sent; dropped, adjusted and repeated moves are counted.
        """
        live = concat(held.live)
        near = is_matching(live, moves, [self.id] if self.id else [LE])
        rest, candidates = live.filter(pa.array(~near)), live.filter(pa.array(near))
        rows, numbered_anew = self._rows_by_event(candidates, moves)
        open_moves = [(number, numbered_anew[number]) for number, _ in open_moves]
        before = [[(r[OWN_LE], r[OWN_RE])] for r in rows]
        matched = Matching(rows, moves, self.id is not None)
        open_moves = matched.apply(open_moves, batch)
        if self.id is not None:
            open_moves = self._without_repeated_moves(held, open_moves, matched)
        for numbers, reason in ((matched.dropped, CountReason.DROPPED), (matched.adjusted, CountReason.ADJUSTED)):
            batch.count(moves.take(pa.array(numbers, pa.int64())), np.ones(len(numbers), bool), reason)
        count_duplicates(moves.take(pa.array(matched.repeated, pa.int64())), batch.judge, batch.totals)
        self._emit(candidates, before, matched.lifetimes, batch.out)
        # with ids deleted events stay for a while, to recognize repetitions
        live_places = [i for i, row in enumerate(rows) if row[RE] > row[LE] or self.id is not None]
        left = candidates.take(pa.array(live_places, pa.int64()))
        for name in (RE, OWN_LE, OWN_RE, *([MOST] if self.id is not None else [])):
            left = with_column(left, name, pa.array([rows[i][name] for i in live_places], pa.int64()))
        left = with_column(left, CHANGED, np.full(left.num_rows, batch.c_now))
        held.live = [rest, left] if live_places else [rest]
        return open_moves

    def _without_repeated_moves(self, held: PhysicalState, open_moves: Moves, matched: Matching) -> Moves:
        """Return the moves that do not repeat a move applied to their event, now or earlier.

        The moves applied now are added to ``held``, the repeated ones to ``matched``.
        """
        assert self.id is not None
        names = [self.id, RE, NEW_END]
        moves = matched.moves
        held.applied.append(moves.take(pa.array(matched.applied, pa.int64())).select([*names, HASH]))
        if not open_moves:
            return open_moves
        applied = concat(held.applied)
        numbers = np.array([number for number, _ in open_moves])
        again = set(numbers[is_matching(moves.take(pa.array(numbers)), applied, names)].tolist())
        matched.repeated += [number for number, _ in open_moves if number in again]
        return [(number, move) for number, move in open_moves if number not in again]

    def _rows_by_event(self, *tables: pa.Table) -> list[list[EventRow]]:
        """Return each table's rows without payload, with the number of their event: by its id, or by start and payload."""
        return numbered_event_rows(tables, [self.id] if self.id is not None else [LE, *self.payload], _TECHNICAL)

    def _emit(self, candidates: pa.Table, before: list[Lifetimes], after: list[Lifetimes], out: list[pa.Table]) -> None:
        """Send the difference between the lifetimes sent before and those of now, as deltas of the events in ``candidates``."""
        for weight, old, new in ((-1, before, after), (1, after, before)):
            changed = lifetimes_without(old, new)
            if changed:
                at, starts, ends = (pa.array(column, pa.int64()) for column in zip(*changed, strict=True))
                table = with_column(with_column(candidates.take(at), OWN_LE, starts), OWN_RE, ends)
                out.append(self._delta(table, weight))

    # moves without a match: late ones, waiting ones, settled ones

    def _judge_late_moves(
        self, held: PhysicalState, open_moves: Moves, moves: pa.Table, waited: int, batch: SourceBatch
    ) -> tuple[Moves, pa.Table | None]:
        """Judge late moves without an event; return the moves that are left, and new live rows (None: none).

        An event that ended before c may be settled and forgotten: a retraction of such an end, to one at or after c, starts an
        event of its own, even if dropped. The other late moves are dropped and counted. Among the moves left are late ones that
        the policy lets act on an end that c has not passed, because their event may still come, and those that repeat another.
        """
        late_moves = [number for number, move in open_moves if number >= waited and move[BEHIND]]
        if not late_moves:
            return open_moves, None
        rows = moves.take(pa.array(late_moves))
        re, new = ints(rows, RE), ints(rows, NEW_END)
        acts = batch.judged(rows, np.minimum(re, new)).acts
        begins, waits = (re < batch.c) & (new >= batch.c), acts & (re >= batch.c)
        if self.id is not None:
            # an equal retraction in the same micro-batch repeats the first
            again, _ = repetitions(rows, None, [self.id, RE, NEW_END], [])
            waits, begins = waits | (begins & again), begins & ~again
        batch.count(rows, ~begins & ~waits, CountReason.DROPPED)
        judged = {number for number, wait in zip(late_moves, waits, strict=True) if not wait}
        left = [(number, move) for number, move in open_moves if number not in judged]
        return left, self._new_live_rows(held, rows.filter(pa.array(begins)), acts[begins], batch.c, batch)

    def _new_live_rows(
        self, held: PhysicalState, moves: pa.Table, acts: Mask, c: int, batch: SourceBatch
    ) -> pa.Table | None:
        """Return new live rows for retractions without a known insert, and send what they add from ``c`` on.

        ``acts`` marks those that may add something; the others only make later retractions of their event dropped, too. All are
        counted, as adjusted if they add something, else as dropped; with ids, they are remembered as applied. None if there are
        no retractions.
        """
        if not moves.num_rows:
            return None
        if self.id is not None:
            held.applied.append(moves.select([self.id, RE, NEW_END, HASH]))
        new = ints(moves, NEW_END)
        adds = acts & (new > c)
        batch.count(moves, ~adds, CountReason.DROPPED, c)
        batch.count(moves, adds, CountReason.ADJUSTED, c)
        live = with_column(with_column(moves, RE, new), OWN_LE, np.full(len(new), c))
        return self._send_new_rows(with_column(live, OWN_RE, np.where(acts, new, DROPPED)), ints(moves, LE), batch)

    def _wait(self, held: PhysicalState, moves: pa.Table, open_moves: Moves, batch: SourceBatch) -> None:
        """Keep retractions whose event, or whose preceding retraction, may still come or waits itself.

        An item that gives an event the end that a retraction moves has that end in its sync time: once c is past it, none can
        come. Of the retractions that nothing can reach, those that only the level of consistency made late, and whose new end is
        not before c, become live rows from c on; the others are counted: as dropped if they are late, else as invalid.
        """
        if not open_moves:
            return
        rows = moves.take(pa.array([number for number, _ in open_moves]))
        lost = self._unreachable(rows, batch.c_now)
        # an item that the source's CTI still allows is no error: it is late by the level, which adjusts it
        by_level = lost & ~self._unreachable(rows, batch.promised_now)
        begins = by_level & (ints(rows, NEW_END) >= batch.c_now)
        dropped = lost & ~begins & (by_level | rows.column(BEHIND).to_numpy())
        batch.count(rows, dropped, CountReason.DROPPED, batch.c_now)
        new_live = self._new_live_rows(held, rows.filter(pa.array(begins)), begins[begins], batch.c_now, batch)
        if new_live is not None:
            held.live.append(new_live)
        invalid = rows.filter(pa.array(lost & ~dropped & ~begins))
        count_invalid(invalid, batch.judge, "a retraction that matches nothing", batch.totals)
        held.waiting = rows.filter(pa.array(~lost))

    def _unreachable(self, moves: pa.Table, c: int) -> Mask:
        """Mark the moves that no event can reach once the CTI is c: no item still to come ends where they begin.

        These are the moves of an end before c to which no unmarked move leads; at c INFINITY, all.
        """
        lost = (ints(moves, RE) < c) | (c == INFINITY)
        if lost.all() or not lost.any():
            return lost
        (rows,) = self._rows_by_event(moves)
        return is_cut_off(rows, lost)
