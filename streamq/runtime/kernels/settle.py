"""Kernels of rows that wait for ends: rows whose ends may still move, events that have failed, and the rows of a result.

``settle`` lets its CTI wait until the ends no longer move; where final rows are read, the rows wait as well: a row is sent
once it is settled, and never retracted. ``attempt`` computes expressions for events as they come, and sets aside events whose
user function fails: a call for each event. The kernel of CTIs runs in one bucket: it passes a result's rows on, and adds a row
for the CTI when that has moved, an empty lifetime at its instant, which adds nothing to a history; at the end of the stream one
for how far the input has come, and one at infinity. In order of time, a row waits until the CTI has passed its sync time.

State: rows not yet settled, or their lifetimes, by their ends; of ``attempt`` only the events that have failed, if events may
be taken back. Cost: a micro-batch reads those that settle, or are due, in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints
from streamq.runtime.deltas import LE, RE, WEIGHT, net_deltas, weighted
from streamq.runtime.evaluators.spans import AttemptEvaluator, set_events_aside
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.state.time_bins import unsettled_rows
from streamq.runtime.time.consistency import HeldRows
from streamq.runtime.time.lateness import QuarantineRows, weighted_events
from streamq.runtime.time.progress_rule import Cti, ProgressRule, Release
from streamq.time import INFINITY, MINUS_INFINITY

ROWS = "rows"
"""The basket of the rows that wait."""


@dataclass(frozen=True)
class SettleKernel(UncombinedKernel):
    """A kernel of rows that are lifetimes and payloads; ``at_once``: they are sent as they come, and corrected as ends move."""

    at_once: bool = False

    @property
    def progress_rule(self) -> ProgressRule:
        """A row is sent once it is settled, at every level of consistency; or else at once."""
        return ProgressRule(Cti.UNSETTLED, final=None if self.at_once else Release.PAST_END)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the net rows with ``RE < c``, at the end of the stream all, and hold the others.

        The CTI sent is c, or the least start of a row that waits, if that is less. The due instant is when the first of these
        settles: None if none waits, INFINITY if all that wait are endless. At once, the rows that come are sent, none waits, and
        the watermark does not wait with the CTI.
        """
        rows, fresh = unsettled_rows(state, ROWS), [a.table for a in arrivals]
        if self.at_once:
            deltas = net_deltas(concat(fresh)) if fresh else None
            rows.advance([] if deltas is None else [deltas.select([LE, RE, WEIGHT])], clock.c)
            m = clock.m if clock.c != INFINITY else MINUS_INFINITY
            return Output(deltas, min(clock.c, rows.least_value), m=m)
        settled = rows.advance(fresh, clock.c)
        return Output(None if settled is None else net_deltas(settled), min(clock.c, rows.least_value), due=rows.due)


@dataclass(frozen=True)
class AttemptKernel(UncombinedKernel):
    """A kernel that computes expressions of single events; sets_aside: a late output exists and takes the events that fail."""

    evaluator: AttemptEvaluator
    sets_aside: bool = False

    @property
    def progress_rule(self) -> ProgressRule:
        return self.evaluator.progress_rule

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the events that do not fail, with their columns; set aside the others, once they can no longer be taken back.

        Nothing is computed for an event that comes and is taken back in one micro-batch. Late events and those set aside are
        counted. If failures are not set aside, the first raises ModuleFailed; errors of expressions are raised in either case.
        """
        totals = Totals()
        retracts = any(WEIGHT in arrival.table.column_names for arrival in arrivals)
        tables = [weighted_events(arrival, totals) for arrival in arrivals]
        rows, failed = None, None
        if tables:
            events = net_deltas(concat(tables)) if retracts else concat(tables)
            rows, failed = self.evaluator.attempted(events, is_taken=self.sets_aside)
        if retracts or unsettled_rows(state, ROWS):
            # a failed event is counted only once it is settled, because until then it may be taken back
            failures = [Arrival(0, failed)] if failed is not None else []
            failed = SettleKernel().advance(state, failures, clock).table
        if failed is not None and failed.num_rows:
            aside = QuarantineRows()
            copies = np.repeat(np.arange(failed.num_rows), np.maximum(ints(failed, WEIGHT), 0))
            set_events_aside(aside, weighted(failed.take(pa.array(copies)), 1))
            aside.count(totals)
        return Output(rows, clock.c, totals)


RESULT, OPEN = 0, 1
"""Ports of CTIs: rows of the result, and the lifetimes whose ends expressions read."""


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
        tables = [a.table for a in arrivals if a.port == RESULT and a.table.num_rows]
        cti = self._cti(state, [a.table for a in arrivals if a.port == OPEN], clock.c)
        held = HeldRows(state)
        if self.in_order or held:
            # an earlier run at another level may have held rows back
            limit = cti if self.in_order else INFINITY
            due_rows = held.release(concat(tables) if tables else None, limit, MINUS_INFINITY)
            tables = [] if due_rows is None else [due_rows]
        earlier = int(state.values.get("told", MINUS_INFINITY))
        if cti > earlier:
            schema = tables[0].schema if tables else None
            state.values["told"] = cti
            if cti == INFINITY and clock.reach > earlier:
                # by which, with the bound, a reader knows the windows of endless lifetimes, as this query does
                tables.append(self._promise(schema, clock.reach))
            tables.append(self._promise(schema, cti, clock.until if cti == INFINITY else None))
        return Output(concat(tables) if tables else None, cti, backlog=held.backlog())

    def _promise(self, schema: pa.Schema | None, cti: int, until: int | None = None) -> pa.Table:
        """Return a row for the CTI, with the schema of the other rows, because they become one table.

        ``until``: the bound on windows of endless lifetimes with which the input has ended.
        """
        wanted = schema or pa.schema([*self.payload, *((name, pa.int64()) for name in (LE, RE, WEIGHT))])
        row = {LE: cti, RE: cti if until is None else until, WEIGHT: 1}
        columns = [pa.array([row[f.name]]) if f.name in row else pa.nulls(1, f.type) for f in wanted]
        return pa.table(columns, schema=wanted)

    def _cti(self, state: KernelBaskets, fresh: list[pa.Table], c: int) -> int:
        """Return the least start of a row whose end is read and may still move, at most c; keep such rows in ``state``."""
        rows = unsettled_rows(state, "open")
        rows.advance([table for table in fresh if table.num_rows], c)
        return min(c, rows.least_value)
