"""Levels of consistency at ingress: how long items are blocked (Align), how long history is remembered (Finalize).

CEDR's spectrum: docs/consistency.md. A run may continue from a checkpoint at another level, because progress that operators
have once received is never taken back.

Rows that a level does not let through yet are *held* in a scope of the state, in bins by start; once progress has reached their
start, those that still wait lie in other such bins. A row is *due* once progress reaches its *sync time*, the first instant at
which it changes the history. A micro-batch reads the bins with a row that is due, and those of the events that its own rows
correct.

At a blocking level a row waits for the CTI of all sources, or for their watermark minus B, whichever comes first. At a level
that forgets, all sources count as having sent ``cti(W - M)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
import pyarrow as pa

from streamq.policies import Level
from streamq.runtime.arrow.columnar import codes, concat, ints, with_column
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.deltas import LE, RE, WEIGHT, net_deltas
from streamq.runtime.groups import group_hashes
from streamq.runtime.hosts.result_rows import replacement_masks
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.state.time_bins import TimeBins
from streamq.runtime.time.progress import LevelProgress
from streamq.time import INFINITY, MINUS_INFINITY, saturating_add


class AlignAt(StrEnum):
    """The place where the level of consistency holds rows back, and which item of an event must be due."""

    INPUT = "input"
    """Rows are held back before the kernel: the events that it reads from a source."""
    OUTPUT = "output"
    """Rows are held back behind the kernel: the events that it builds from a source's items."""
    EDGE_OPEN = "edge open"
    """Edges are held back behind the kernel. An event has two items, its start and its end: the start is sent at once, with an
    infinite end, which the end then corrects once it is due."""
    EDGE_CLOSE = "edge close"
    """The same if the end brings the payload: an event is sent as a whole, once its end is due."""

    @property
    def is_behind(self) -> bool:
        """True if rows are held back behind the kernel."""
        return self != AlignAt.INPUT

    def held_rows(self, scope: KernelBaskets, key: Sequence[str] = ()) -> HeldRows:
        """Return the rows held back in a scope of the state; ``key``: the key columns of edges."""
        return HeldRows(scope, self, key)


HELD, BEGUN = "held", "begun"
"""The baskets of rows held back, by their starts: those that start at the limit or later, and those that start before it but are
not due."""

SIGN, SYNC, EVENT = "__sign", "__sync", "__event"
"""The columns of rows in the basket BEGUN for the sign of their weight, as they count as rows of weight 1 or more, for their
sync time, and for the hash of their event."""


def progress_at_level(
    level: Level, own_progress: Mapping[str, tuple[int, int]], follows: Mapping[str, str]
) -> dict[str, LevelProgress]:
    """Return the CTI and watermark of each source as they count at a level of consistency; ``promised`` is the CTI as sent.

    ``own_progress`` holds the CTI and watermark that each source has sent; ``follows`` maps a source to the one whose CTI
    replaces its own. If rows are blocked for B ticks (None: without limit), each source has the least of all CTIs, and the
    least of all watermarks minus B. If history is remembered for M ticks only, each CTI is at least the least watermark minus M.
    """
    own = {name: own_progress[follows.get(name, name)][0] for name in own_progress}
    least_c = min(own.values())
    # a source whose CTI is ahead of its rows counts as having reached it: it neither holds back the others nor prolongs their
    # history
    least_w = min(max(c, w) for name, (c, w) in own_progress.items() if name not in follows)
    paces = {}
    for name, (_, w) in own_progress.items():
        c = own[name]
        if level.block != 0:
            # rows are released only when all sources have come that far; some wait B ticks for the watermark
            c, w = least_c, _ticks_before(least_w, level.block)
        if level.remember is not None:
            # history is remembered for M ticks, as if every source had sent cti(W - M)
            c = max(c, _ticks_before(least_w, level.remember))
        paces[name] = LevelProgress(c, w, own[name])
    return paces


def _ticks_before(t: int, by: int | None) -> int:
    """Return the instant ``by`` ticks before ``t``; MINUS_INFINITY if ``by`` is None."""
    if by is None:
        return MINUS_INFINITY
    return saturating_add(t, -by)


class HeldRows:
    """The rows held back in a scope of the state, at a place ``at``; ``key``: the key columns of edges."""

    def __init__(self, scope: KernelBaskets, at: AlignAt = AlignAt.INPUT, key: Sequence[str] = ()):
        self.scope, self.at, self.key = scope, at, key
        self.to_start = TimeBins(scope, HELD)
        # the rows of an event have one start and one hash, so they share a bin
        self.begun = TimeBins(scope, BEGUN, then=EVENT, valued=SYNC)

    def __bool__(self) -> bool:
        return bool(self.to_start or self.begun)

    def backlog(self, moved: int = 0) -> tuple[int, int]:
        """Return the number of rows held and the least of their sync times; INFINITY if there are none. No row is read.

        For rows that start after the last limit, the start counts as sync time. ``moved`` is the number of ticks by which steps
        have moved the rows; it is subtracted from the sync time.
        """
        rows = self.scope.size(HELD)[0] + self.scope.size(BEGUN)[0]
        least = min(self.to_start.least, self.begun.least_value)
        return rows, least if least == INFINITY else least - moved

    def release(self, table: pa.Table | None, c: int, w: int) -> pa.Table | None:
        """Return the deltas that are due, of ``table`` and of those held so far; hold the others back.

        A delta is due if its sync time is before the CTI ``c`` or not after ``w``, the watermark minus B. A retraction of a row
        that is held cancels it. None, or an empty table, if no delta is due.
        """
        limit = max(c, saturating_add(w, 1) if w != MINUS_INFINITY else w)
        started = self.to_start.advance([] if table is None else [table], limit)
        return self._release_started([] if started is None else [started], limit)

    def _release_started(self, ready: Sequence[pa.Table], limit: int) -> pa.Table | None:
        """Return the deltas that are due, of those that start before ``limit``; None, or an empty table, if none is.

        ``ready`` are those that came or that the limit has reached. The bins of all these events are opened, because deltas of
        one event may cancel one another or move its end.
        """
        waited = self.begun.open([self._with_events(t) for t in ready] if self.begun else [], limit)
        if waited is not None:
            weight = ints(waited, WEIGHT) * ints(waited, SIGN)
            ready = [*ready, with_column(waited.drop_columns([SIGN, SYNC, EVENT]), WEIGHT, weight)]
        if not ready:
            return None
        rows = concat(ready)
        if (ints(rows, WEIGHT) < 0).any():
            rows = net_deltas(rows)
        rows, sync = _with_sync_times(rows, self._event(rows), self.at == AlignAt.EDGE_CLOSE)
        due = sync < limit
        if self.at == AlignAt.EDGE_OPEN:
            rows, sync, due = _open_early(rows, sync, due, limit)
        if waited is not None or not due.all():
            left, weight = self._with_events(rows.filter(pa.array(~due))), ints(rows, WEIGHT)[~due]
            left = with_column(with_column(left, WEIGHT, np.abs(weight)), SIGN, np.sign(weight))
            self.begun.put_back(with_column(left, SYNC, sync[~due]))
        return rows.filter(pa.array(due))

    def _event(self, rows: pa.Table) -> list[str]:
        """Return the columns in which the deltas of one event agree."""
        if self.at == AlignAt.EDGE_CLOSE:
            return [*self.key, LE]
        return sorted(name for name in rows.column_names if name not in (RE, WEIGHT))

    def _with_events(self, rows: pa.Table) -> pa.Table:
        return with_column(rows, EVENT, group_hashes(rows, self._event(rows)).view(np.int64))


def _open_early(rows: pa.Table, sync: Ints, due: Mask, limit: int) -> tuple[pa.Table, Ints, Mask]:
    """Let events whose starts are due, but not their ends, go with an infinite end (EDGE_OPEN).

    ``due`` marks the deltas whose sync time is before ``limit``. The retraction of the endless event, and the insert with the
    true end, wait until the end is before it, too. Return the deltas, their sync times, and the mask of those that are due.
    """
    re, weight = ints(rows, RE), ints(rows, WEIGHT)
    early = due & (weight > 0) & (re >= limit) & (re < INFINITY)
    if not early.any():
        return rows, sync, due
    n = int(early.sum())
    endless = with_column(rows.filter(pa.array(early)), RE, np.full(n, INFINITY))
    retractions = with_column(endless, WEIGHT, -weight[early])
    sync = np.where(early, re, sync)
    due = np.concatenate([due & ~early, np.ones(n, bool), np.zeros(n, bool)])
    return concat([rows, endless, retractions]), np.concatenate([sync, sync[early], sync[early]]), due


def _with_sync_times(rows: pa.Table, event_columns: Sequence[str], by_end: bool) -> tuple[pa.Table, Ints]:
    """Return deltas, some split into single copies, with their sync times.

    The sync time of an insert is its start, or, if ``by_end``, its finite end. A retraction and an insert that together move
    the end of one event (equal in ``event_columns``) both have the lesser of the two ends. The sync time of any other
    retraction is its start.
    """
    le, re, weight = (ints(rows, n) for n in (LE, RE, WEIGHT))
    sync = np.where((weight > 0) & (re < INFINITY), re, le) if by_end else le
    if not (weight < 0).any():
        return rows, sync
    number, _ = codes(rows, event_columns)
    mixed = np.isin(number, number[weight < 0])
    copies = np.where(mixed, np.abs(weight), 1)
    at = np.repeat(np.arange(len(le)), copies)
    rows = with_column(rows.take(pa.array(at)), WEIGHT, np.where(mixed, np.sign(weight), weight)[at])
    sync, number, re, sign = sync[at], number[at], re[at], np.where(mixed, np.sign(weight), 0)[at]
    order = np.lexsort((re, number))
    retractions, inserts = order[sign[order] < 0], order[sign[order] > 0]
    before, after = replacement_masks(number[retractions], number[inserts])
    lesser_ends = np.minimum(re[retractions[before]], re[inserts[after]])
    sync[retractions[before]] = sync[inserts[after]] = lesser_ends
    return rows, sync
