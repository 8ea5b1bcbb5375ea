"""Rows of a kernel that wait for the progress that lets them go, and may be taken back until then.

A micro-batch reads the rows that go in it.
"""

from __future__ import annotations

import pyarrow as pa

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.columnar import concat, net_deltas
from streamq.runtime.deltas import cancelling_deltas
from streamq.runtime.event import LE
from streamq.runtime.kernel import Clock
from streamq.runtime.release import Release
from streamq.runtime.time_bins import TimeBins
from streamq.runtime.unsettled import UnsettledRows
from streamq.time import INFINITY, MINUS_INFINITY

STARTING, SETTLING = "starting", "settling"
"""The baskets of the rows that wait until they have started, and of those that wait until they are settled."""


class WaitingRows:
    """The rows that wait, in baskets of a kernel's state: until they have started, until they are settled, or none."""

    def __init__(self, state: KernelBaskets, release: Release):
        """Open the rows that wait for a release: PAST_START, PAST_END, or AT_ONCE."""
        self.release = release
        self.starting = TimeBins(state, STARTING, LE)
        self.settling = UnsettledRows(state, SETTLING)

    def advance(self, change: pa.Table | None, clock: Clock) -> pa.Table | None:
        """Add deltas, and take out those that go at this progress, added up; None if there are none.

        Rows that start go by the watermark, those that settle by the CTI.
        """
        fresh = [] if change is None or not change.num_rows else [change]
        if self.release is Release.PAST_END:
            return self.settling.advance(fresh, clock.c)
        going = [self.starting.take(clock.m)] if self.starting else []
        for table in fresh:
            goes = self.release.lets_go(table, clock.m)
            going.append(table.filter(pa.array(goes)))
            self.starting.append(table.filter(pa.array(~goes)))
        parts = [table for table in going if table is not None and table.num_rows]
        return net_deltas(concat(parts)) if parts else None

    def change_release(self, rows: pa.Table | None, clock: Clock) -> pa.Table | None:
        """Let rows go by this release from now on, after another one in an earlier run; return the deltas to send for it.

        ``rows`` are all that are not settled, those that wait among them. Of those that have been sent, some are taken back to
        wait until they have started; all wait until they are settled, to be sent once more, if rows go by the end.
        """
        waiting = [t for t in (self.starting.take(INFINITY), self.settling.advance([], INFINITY)) if t is not None]
        if self.release is Release.AT_ONCE or rows is None:
            return concat(waiting) if waiting else None
        sent = net_deltas(concat([rows, *map(cancelling_deltas, waiting)]))
        if self.release is Release.PAST_END:
            self.settling.advance([*waiting, sent], MINUS_INFINITY)
            return None
        too_early = sent.filter(pa.array(~self.release.lets_go(sent, clock.m)))
        for table in (*waiting, too_early):
            self.starting.append(table)
        return cancelling_deltas(too_early)

    @property
    def due(self) -> int | None:
        """The progress at which the next row goes: INFINITY if only the end of the input lets it go, None if none waits."""
        if self.release is Release.PAST_END:
            return self.settling.due
        return min(INFINITY, self.starting.least + 1) if self.starting else None


__all__ = ["WaitingRows"]
