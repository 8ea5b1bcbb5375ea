"""Kernel that holds rows whose ends may still move: a row is sent once it is settled, and never retracted.

State: rows not yet settled, by their ends. Cost: a micro-batch reads the rows that settle in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.kernel import Arrival, Clock, Output, UncombinedKernel
from streamq.runtime.unsettled import UnsettledRows

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule

ROWS = "rows"
"""The basket of the rows that wait."""


@dataclass(frozen=True)
class SettleKernel(UncombinedKernel):
    """A kernel without parameters: a row is its lifetime and payload."""

    @property
    def progress_rule(self) -> ProgressRule:
        """A row is sent once it is settled, at every level of consistency."""
        from streamq.runtime.progress_rule import Cti, ProgressRule
        from streamq.runtime.release import Release

        return ProgressRule(Cti.UNSETTLED, final=Release.PAST_END)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the net rows with ``RE < c``, at the end of the stream all, and hold the others.

        The CTI sent is c, or the least start of a row that waits, if that is less. The due instant is when the first of these
        settles: None if none waits, INFINITY if all that wait are endless.
        """
        rows = UnsettledRows(state, ROWS)
        out = rows.advance([a.table for a in arrivals], clock.c)
        return Output(out if out is not None and out.num_rows else None, min(clock.c, rows.least_start), due=rows.due)
