"""Kernel that adds CTIs to a result: it runs in one bucket, passes rows on, and adds a row for the CTI when that has moved.

The CTI is an empty lifetime at its instant, which adds nothing to a history; at the end of the stream it is at infinity. In order
of time, a row waits until the CTI has passed its sync time.

State: waiting rows; if expressions read ends that may still move, the lifetimes behind them, until they are settled. Cost: a
micro-batch reads the waiting rows that are due, and the lifetimes that settle in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamq.runtime.arrow.columnar import concat
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Arrival, Clock, Output, UncombinedKernel
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.state.time_bins import unsettled_rows
from streamq.runtime.time.consistency import HeldRows
from streamq.runtime.time.progress_rule import Cti, ProgressRule
from streamq.runtime.time.release import Release
from streamq.time import INFINITY, MINUS_INFINITY

ROWS, OPEN = 0, 1
"""Ports: rows of the result, and the lifetimes whose ends expressions read."""


@dataclass(frozen=True)
class CtisKernel(UncombinedKernel):
    """A kernel that passes a result's rows on and adds its CTIs.

    payload: the columns of the result; in_order: rows leave by sync time, over all micro-batches; reads_ends: expressions read
    ends that may still move, so the port OPEN receives the lifetimes behind them.
    """

    payload: pa.Schema
    in_order: bool = False
    reads_ends: bool = False

    @property
    def progress_rule(self) -> ProgressRule:
        """A row is sent once the CTI is past its start, if in order of time; otherwise at once."""
        cti = Cti.OPEN_END if self.reads_ends else Cti.INPUT
        return ProgressRule(cti, final=Release.PAST_START, sorts=True) if self.in_order else ProgressRule(cti)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the rows that are due (all, if not ``in_order``), then a row for the CTI if it has risen; remember that CTI."""
        tables = [a.table for a in arrivals if a.port == ROWS and a.table.num_rows]
        cti = self._cti(state, [a.table for a in arrivals if a.port == OPEN], clock.c)
        held = HeldRows(state)
        if self.in_order or held:
            # an earlier run at another level may have held rows back
            limit = cti if self.in_order else INFINITY
            due_rows = held.release(concat(tables) if tables else None, limit, MINUS_INFINITY)
            tables = [] if due_rows is None else [due_rows]
        if cti > int(state.values.get("told", MINUS_INFINITY)):
            state.values["told"] = cti
            tables.append(self._promise(tables[0].schema if tables else None, cti))
        return Output(concat(tables) if tables else None, cti, backlog=held.backlog())

    def _promise(self, schema: pa.Schema | None, cti: int) -> pa.Table:
        """Return a row for the CTI, with the schema of the other rows, because they become one table."""
        wanted = schema or pa.schema([*self.payload, *((name, pa.int64()) for name in (LE, RE, WEIGHT))])
        row = {LE: cti, RE: cti, WEIGHT: 1}
        columns = [pa.array([row[f.name]]) if f.name in row else pa.nulls(1, f.type) for f in wanted]
        return pa.table(columns, schema=wanted)

    def _cti(self, state: KernelBaskets, fresh: list[pa.Table], c: int) -> int:
        """Return the least start of a row whose end is read and may still move, at most c; keep such rows in ``state``."""
        rows = unsettled_rows(state, "open")
        rows.advance([table for table in fresh if table.num_rows], c)
        return min(c, rows.least_value)
