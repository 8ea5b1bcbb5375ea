"""Retractions applied to the live events that they name: what is passed on of an event follows its end as far as c allows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamq.choices import CountReason
from streamq.runtime.event import NEW_END, RE
from streamq.runtime.kernel import Judge, Totals
from streamq.runtime.lateness import Judgement, count_late, error_of_rows, judgement
from streamq.runtime.retractions import EventRow, Lifetimes, Moves, RowPlace, event_place
from streamq.runtime.values import Ints, Mask
from streamq.time import INFINITY, MINUS_INFINITY

OWN_LE, OWN_RE = "__own_le", "__own_re"
"""The lifetime that was passed on; equal: nothing of it is left from c on; OWN_RE is DROPPED: what follows goes with it."""
DROPPED = MINUS_INFINITY
FIRST, MOST = "__first", "__most"
"""With ids: the end that the event was inserted with (its start: the insert is not known), and the greatest finite one that
it has had (its start, if none)."""


@dataclass(eq=False, repr=False)
class SourceBatch:
    """A micro-batch: the source's policy; its c, and what it has promised itself, before and after."""

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
    """Live events, ``rows``, that retractions, ``moves``, are applied to; and what becomes of both. has_ids: events have ids.

    pieces: lifetimes that were passed on of an event and stay, as (its row, start, end); the others are the numbers of
    retractions: applied, and of these dropped and adjusted; repeated, which repeat an applied one.
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
        """The lifetimes currently emitted for each row."""
        lifetimes = [[(row[OWN_LE], row[OWN_RE])] for row in self.rows]
        for i, start, end in self.pieces:
            lifetimes[i].append((start, end))
        return lifetimes

    def apply(self, open_moves: Moves, batch: SourceBatch) -> Moves:
        """Apply moves to the live ends that they name, as long as one does; return those that are left over."""
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
        """Move a live row's end as the source says; what was passed on follows as far as c allows."""
        row, c = self.rows[i], batch.c
        old, row[RE] = row[RE], new
        if self.has_ids and new != INFINITY:
            row[MOST] = max(row[MOST], new)
        if row[OWN_RE] == DROPPED:
            self.dropped.append(number)
            return
        # one that has waited, too: where its event came on time it is on time
        is_late = min(old, new) < c
        if is_late and batch.judged(self.moves.slice(number, 1), np.array([min(old, new)])).is_dropped[0]:
            if old < c <= new:
                # what was dropped is an event of its own: what is passed on stays, what follows goes with that
                self.pieces.append((i, row[OWN_LE], row[OWN_RE]))
                row[OWN_RE] = DROPPED
            self.dropped.append(number)
            return
        end = max(new, c) if is_late else new
        is_settled = min(old, row[OWN_RE]) < c >= row[OWN_RE]
        if is_settled:
            # what is settled stays as it is; what the retraction adds from c on, maybe nothing, is an event of its own
            self.pieces.append((i, row[OWN_LE], row[OWN_RE]))
            row[OWN_LE], row[OWN_RE] = c, end
        else:
            row[OWN_RE] = max(end, row[OWN_LE])
        if is_late:
            (self.dropped if is_settled and end == c else self.adjusted).append(number)
