"""Ingress kernel of an insert-only source: drops repeated rows and judges lateness, in a pass over the micro-batch.

State: none; if events have ids, the rows so far, until they are settled. They lie in bins by start; a micro-batch reads the
bins in which its own rows start, and a bin is dropped once c has passed its rows. No bin is rewritten for a new row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.grid import Grid
from streamq.runtime.basket import KernelBaskets
from streamq.runtime.bins import bin_starts, forget, hold
from streamq.runtime.columnar import concat, ints
from streamq.runtime.deltas import with_ends
from streamq.runtime.event import LE, RE
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.lateness import count_duplicates, count_invalid, weighted_events
from streamq.runtime.repetitions import repetitions
from streamq.time import INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule

ROWS = "rows"


@dataclass(frozen=True)
class InsertIngressKernel(UncombinedKernel):
    """A kernel that reads an insert-only source.

    points: the source declares points, so RE = LE + 1; round_to: the grid of windows to whose ends c is rounded down; ids: the
    columns that with its start identify an event, if rows may be delivered again.
    """

    points: bool
    round_to: Grid | None = None
    ids: tuple[str, ...] = ()

    @property
    def progress_rule(self) -> ProgressRule:
        """Events are sent as they come."""
        from streamq.runtime.progress_rule import AT_ONCE

        return AT_ONCE

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the events that are on time, and late ones as the policy adjusts them; late ones are counted.

        If rows have ids, repeated and conflicting ones are left out first. With ``round_to``, events are judged by the CTI
        rounded down to the end of one of its windows; the CTI sent is the input's in either case.
        """
        totals = Totals()
        c = clock.c
        grid = self.round_to
        if grid:
            down = grid.floor_to_end
            c = down(c)
            arrivals = [replace(a, c=down(a.c), promised=down(a.promised)) for a in arrivals]
        if self.ids:
            arrivals = [replace(a, table=self._without_repetitions(state, a, totals, c)) for a in arrivals]
            forget(state, ROWS, c)
        out = [weighted_events(a, totals) for a in arrivals]
        return Output(concat(out) if out else None, clock.c, totals)

    def _without_repetitions(self, state: KernelBaskets, arrival: Arrival, totals: Totals, c: int) -> pa.Table:
        """Return the rows without repeated ones, counted as duplicates, and conflicting ones, counted as invalid.

        The latter raise InvalidEvent if the policy is ``fail``.
        Those that are left, late or not, are held until c has passed their ends; at the end of the stream none are held.
        """
        table, judge = with_ends(arrival.table), arrival.judge
        assert judge is not None
        whose = [*self.ids, LE]
        what = [RE, *(n for n in table.column_names if n not in (*whose, RE))]
        repeated, contrary = repetitions(table, self._held(state, table), whose, what)
        count_duplicates(table.filter(pa.array(repeated)), judge, totals)
        count_invalid(table.filter(pa.array(contrary)), judge, "two rows of one id and start that differ", totals)
        new = table.filter(pa.array(~(repeated | contrary)))
        # a row that has ended before c would be late, and dropped, if it came again
        open_still = pc.greater_equal(new.column(RE), c)
        if c != INFINITY:
            hold(state, ROWS, new.filter(open_still), lambda rows: rows.filter(pc.greater_equal(rows.column(RE), c)))
        return new

    def _held(self, state: KernelBaskets, table: pa.Table) -> pa.Table | None:
        """Return the held rows that start at the start of one of these rows; None if no bin can have such rows."""
        le = np.unique(ints(table, LE))
        tables = []
        for bin in state.bins(ROWS):
            low, high = bin_starts(bin)
            if np.searchsorted(le, low) < np.searchsorted(le, high):
                rows = state.read(ROWS, bin)
                if rows is not None:
                    tables.append(rows.filter(pc.is_in(rows.column(LE), pa.array(le))))
        return concat(tables) if tables else None
