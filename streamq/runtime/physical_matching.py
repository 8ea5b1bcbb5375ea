"""Retractions applied to the live events that they name: the lifetime sent for an event follows its end as far as c allows."""

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
