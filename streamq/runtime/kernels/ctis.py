"""The result of a query in the one bucket that hears of all others: its rows as they are, and its CTI when it has moved.

The CTI is an empty lifetime at its instant, which adds nothing to a history; at the end of the stream it lies at infinity.
In order of time, a row waits until the CTI has passed its sync time.
State: rows that wait; where expressions read ends that may still move, the lifetimes behind them, until they are settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.columnar import concat, net_deltas
from streamq.runtime.consistency import align
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Arrival, Clock, Output, UncombinedKernel
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule

ROWS, OPEN = 0, 1
"""Ports: rows of the result, and the lifetimes of which expressions read the ends."""


@dataclass(frozen=True)
class CtisKernel(UncombinedKernel):
    """payload: the columns of the result; in_order: rows leave by sync time, over all micro-batches.

    reads_ends: whether expressions read ends that may still move, so that the port OPEN takes the lifetimes behind them.
    """

    payload: pa.Schema
    in_order: bool = False
    reads_ends: bool = False

    @property
    def progress_rule(self) -> ProgressRule:
        """In order of time, a row goes once the CTI is past its start; else as it comes."""
        from streamq.runtime.progress_rule import Cti, ProgressRule
        from streamq.runtime.release import Release

        cti = Cti.OPEN_END if self.reads_ends else Cti.INPUT
        return ProgressRule(cti, final=Release.PAST_START, sorts=True) if self.in_order else ProgressRule(cti)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """What arrives, then the CTI."""
        tables = [a.table for a in arrivals if a.port == ROWS and a.table.num_rows]
        cti = self._cti(state, [a.table for a in arrivals if a.port == OPEN], clock.c)
        if self.in_order or state.bins("held"):
            # another level may have held some
            due_rows = align(
                state, concat(tables) if tables else None, cti if self.in_order else INFINITY, MINUS_INFINITY
            )
            tables = [] if due_rows is None else [due_rows]
        if cti > int(state.values.get("told", MINUS_INFINITY)):
            state.values["told"] = cti
            tables.append(self._promise(tables[0].schema if tables else None, cti))
        return Output(concat(tables) if tables else None, cti)

    def _promise(self, schema: pa.Schema | None, cti: int) -> pa.Table:
        """A row of the schema of those beside it: they become one table."""
        wanted = schema or pa.schema([*self.payload, *((name, pa.int64()) for name in (LE, RE, WEIGHT))])
        row = {LE: cti, RE: cti, WEIGHT: 1}
        columns = [pa.array([row[f.name]]) if f.name in row else pa.nulls(1, f.type) for f in wanted]
        return pa.table(columns, schema=wanted)

    def _cti(self, state: KernelBaskets, fresh: list[pa.Table], c: int) -> int:
        """The least start of a row whose end is read and may still move, at most c."""
        held = state.read_all("open")
        every = [t for t in (held, *fresh) if t is not None and t.num_rows]
        if not every:
            return c
        rows = net_deltas(concat(every))
        rows = rows.filter(pc.greater_equal(rows.column(RE), c)) if c != INFINITY else rows.slice(0, 0)
        state.replace("open", "0", rows)
        return min(c, pc.min(rows.column(LE)).as_py()) if rows.num_rows else c
