"""Kernel of physical streams: turns inserts and retractions into deltas; late retractions act from c on.

State: every live event until it is settled, as the source sees it (start, end) and as it was sent; retractions whose insert has
not come yet. A late retraction of an end that c has passed adds an event of its own, which starts at c; if that is dropped, all
retractions that follow are dropped with it, even if the event is still in state. With ids, an event, alive or deleted, stays
until all finite ends that it ever had are settled, with the retractions applied to it: so a repetition that is on time is
recognized, and a later one is late.

State lies in bins by event. Cost: a micro-batch reads the events that its items concern, those in which something is due, and, to
forget them, bins in which most events are settled. Inserts are columnar; a retraction costs a look-up among the rows that share
its start, or its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import CountReason
from streamq.runtime.arrow.columnar import concat, ints, is_matching, with_column
from streamq.runtime.arrow.values import Mask
from streamq.runtime.deltas import INSERT, KIND, LE, NEW_END, RE, RETRACT, weighted
from streamq.runtime.groups import HASH
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel, remembered_judge
from streamq.runtime.kernels.insert_ingress import repetitions
from streamq.runtime.physical_matching import (
    BEHIND,
    CHANGED,
    DROPPED,
    FIRST,
    MOST,
    OWN_LE,
    OWN_RE,
    EventRow,
    Lifetimes,
    Matching,
    Moves,
    PhysicalState,
    SourceBatch,
    is_cut_off,
    lifetimes_without,
    numbered_event_rows,
    with_lateness,
    without_cycles,
)
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.time.lateness import (
    count_duplicates,
    count_invalid,
)
from streamq.runtime.time.progress_rule import AT_ONCE, ProgressRule
from streamq.time import INFINITY, MINUS_INFINITY

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
