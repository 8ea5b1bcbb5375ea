"""Kernel between rows whose ends may still move and what reads these ends: its CTI waits until they no longer move.

Where final rows are read, the rows wait as well: a row is sent once it is settled, and never retracted.

State: rows not yet settled, or their lifetimes, by their ends. Cost: a micro-batch reads those that settle in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamq.runtime.columnar import concat, net_deltas
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Arrival, Clock, Output, UncombinedKernel
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.state.waiting import UnsettledRows
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule

ROWS = "rows"
"""The basket of the rows that wait."""


@dataclass(frozen=True)
class SettleKernel(UncombinedKernel):
    """A kernel of rows that are lifetimes and payloads; ``at_once``: they are sent as they come, and corrected as ends move."""

    at_once: bool = False

    @property
    def progress_rule(self) -> ProgressRule:
        """A row is sent once it is settled, at every level of consistency; or else at once."""
        from streamq.runtime.progress_rule import Cti, ProgressRule
        from streamq.runtime.release import Release

        return ProgressRule(Cti.UNSETTLED, final=None if self.at_once else Release.PAST_END)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the net rows with ``RE < c``, at the end of the stream all, and hold the others.

        The CTI sent is c, or the least start of a row that waits, if that is less. The due instant is when the first of these
        settles: None if none waits, INFINITY if all that wait are endless. At once, the rows that come are sent, none waits, and
        the watermark does not wait with the CTI.
        """
        rows, fresh = UnsettledRows(state, ROWS), [a.table for a in arrivals]
        if self.at_once:
            deltas = net_deltas(concat(fresh)) if fresh else None
            rows.advance([] if deltas is None else [deltas.select([LE, RE, WEIGHT])], clock.c)
            m = clock.m if clock.c != INFINITY else MINUS_INFINITY
            return Output(deltas, min(clock.c, rows.least_start), m=m)
        out = rows.advance(fresh, clock.c)
        return Output(out if out is not None and out.num_rows else None, min(clock.c, rows.least_start), due=rows.due)
