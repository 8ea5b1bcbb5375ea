"""The state of a physical stream: the events that a micro-batch concerns, read from bins by event and written back.

An insert without an id concerns other rows only if retractions wait; so it is added to its bin without reading it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import concat, ints, is_matching
from streamq.runtime.event import LE, RE
from streamq.runtime.groups import HASH, distinct_hashes, least_by_group, with_hashes, with_timed_hashes
from streamq.runtime.physical_matching import DROPPED, MOST, OWN_RE
from streamq.runtime.state.agenda import agenda_of
from streamq.runtime.state.baskets import BinSizes, KernelBaskets
from streamq.runtime.state.group_bins import GroupBins
from streamq.runtime.tick_arithmetic import saturating
from streamq.runtime.values import Ints
from streamq.time import INFINITY, MINUS_INFINITY

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
        """The number of all rows."""
        return sum(table.num_rows for tables in self._tables.values() for table in tables)

    @property
    def _tables(self) -> dict[str, list[pa.Table]]:
        """The rows by basket."""
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
    """Return a list of the table, or an empty one for None."""
    return [] if table is None else [table]


__all__ = ["APPLIED", "CHANGED", "LIVE", "WAITING", "PhysicalState"]
