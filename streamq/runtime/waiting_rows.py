"""Rows of a kernel that wait for the progress that lets them go, and may be taken back until then.

A micro-batch reads the rows that go in it. Rows that another release has let wait, as an earlier run asked, go by the new one.
"""

from __future__ import annotations

import pyarrow as pa

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.columnar import concat, net_deltas
from streamq.runtime.event import LE
from streamq.runtime.kernel import Clock
from streamq.runtime.release import Release
from streamq.runtime.time_bins import TimeBins
from streamq.runtime.unsettled import UnsettledRows
from streamq.time import INFINITY

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
        parts = [] if change is None else [change]
        if self.starting and self.release is not Release.PAST_START:
            parts.append(self.starting.take(INFINITY))
        if self.settling and self.release is not Release.PAST_END:
            parts.append(self.settling.advance([], INFINITY))
        fresh = [table for table in parts if table is not None and table.num_rows]
        if self.release is Release.PAST_END:
            return self.settling.advance(fresh, clock.c)
        going = [self.starting.take(clock.m)] if self.starting else []
        for table in fresh:
            goes = self.release.lets_go(table, clock.m)
            going.append(table.filter(pa.array(goes)))
            self.starting.append(table.filter(pa.array(~goes)))
        parts = [table for table in going if table is not None and table.num_rows]
        return net_deltas(concat(parts)) if parts else None

    @property
    def due(self) -> int | None:
        """The progress at which the next row goes: INFINITY if only the end of the input lets it go, None if none waits."""
        if self.release is Release.PAST_END:
            return self.settling.due
        return min(INFINITY, self.starting.least + 1) if self.starting else None


__all__ = ["WaitingRows"]
