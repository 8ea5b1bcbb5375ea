"""Kernel that holds rows whose ends may still move: a row is sent once it is settled, and never retracted.

State: rows not yet settled. Cost: a group by of those in a micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.columnar import concat, net_deltas
from streamq.runtime.event import LE, RE
from streamq.runtime.kernel import Arrival, Clock, Output, UncombinedKernel
from streamq.time import INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule


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
        fresh = [a.table for a in arrivals]
        held = state.read_all("rows")
        every = [t for t in (held, *fresh) if t is not None and t.num_rows]
        if not every:
            return Output(None, clock.c)
        rows = net_deltas(concat(every))
        settled = pc.less(rows.column(RE), clock.c) if clock.c != INFINITY else pa.array(np.ones(rows.num_rows, bool))
        waiting = rows.filter(pc.invert(settled))
        if fresh or pc.any(settled).as_py():
            state.replace("rows", "0", waiting)
        out = rows.filter(settled)
        least = pc.min(waiting.column(LE)).as_py() if waiting.num_rows else INFINITY
        due = min(INFINITY, pc.min(waiting.column(RE)).as_py() + 1) if waiting.num_rows else None
        return Output(out if out.num_rows else None, min(clock.c, least), due=due)
