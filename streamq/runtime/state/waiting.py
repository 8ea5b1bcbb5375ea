"""Rows of a kernel that wait in bins of time: until they are settled, until they may go, or while they live on.

A micro-batch reads the rows that go in it; they may be taken back until then.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints, net_deltas
from streamq.runtime.deltas import cancelling_deltas
from streamq.runtime.event import LE, RE
from streamq.runtime.kernel import Clock
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.state.time_bins import TimeBins
from streamq.runtime.time.release import Release
from streamq.time import INFINITY, MINUS_INFINITY

STARTING, SETTLING = "starting", "settling"
"""The baskets of rows that wait until they have started, and until they are settled."""


class UnsettledRows:
    """The rows of a kernel that wait until the CTI has passed their ends, in baskets of its state by their ends.

    Rows without an end lie by their starts. The least start of all rows is known without reading them.
    """

    def __init__(self, state: KernelBaskets, basket: str):
        """Open the rows of a basket, which also names the basket of those without an end."""
        self.ending = TimeBins(state, basket, RE, then=LE)
        self.endless = TimeBins(state, f"{basket} without end", LE)

    def __bool__(self) -> bool:
        """True if rows wait."""
        return bool(self.ending or self.endless)

    @property
    def least_start(self) -> int:
        """The least start of a row that waits; INFINITY if none does."""
        return min(self.ending.least_value, self.endless.least)

    @property
    def due(self) -> int | None:
        """The CTI at which the next row settles: INFINITY if all that wait are endless, None if none waits."""
        if self.ending:
            return min(INFINITY, self.ending.least + 1)
        return INFINITY if self.endless else None

    def advance(self, fresh: Sequence[pa.Table], c: int) -> pa.Table | None:
        """Add deltas, and take out the net rows that are settled at ``c``, which are all at INFINITY; None if there are none."""
        over = [rows for bins in self._bins(c) if (rows := bins.take(c)) is not None]
        for table in fresh:
            re = ints(table, RE)
            is_over = (re < c) | (c == INFINITY)
            over.append(table.filter(pa.array(is_over)))
            self.ending.append(table.filter(pa.array(~is_over & (re < INFINITY))))
            self.endless.append(table.filter(pa.array(~is_over & (re == INFINITY))))
        over = [table for table in over if table.num_rows]
        return net_deltas(concat(over)) if over else None

    def _bins(self, c: int) -> list[TimeBins]:
        """Return the bins in which rows may be settled at ``c``."""
        return [self.ending, self.endless] if c == INFINITY else [self.ending]


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
