"""Kernel of expressions that may fail: computes them for events as they come, and sets aside events whose user function fails.

State: none; if events may be taken back, those that have failed, until they are settled.

Cost: a call for each event; a micro-batch reads the failed events that settle in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import concat, ints, net_deltas
from streamq.runtime.deltas import weighted
from streamq.runtime.evaluators.attempt import AttemptEvaluator, set_events_aside
from streamq.runtime.event import WEIGHT
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.kernels.settle import ROWS, SettleKernel
from streamq.runtime.lateness import QuarantineRows, weighted_events
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.state.waiting import UnsettledRows

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule


@dataclass(frozen=True)
class AttemptKernel(UncombinedKernel):
    """A kernel that computes expressions of single events; sets_aside: a late output exists and takes the events that fail."""

    evaluator: AttemptEvaluator
    sets_aside: bool = False

    @property
    def progress_rule(self) -> ProgressRule:
        """Events are sent as they come."""
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
        if retracts or UnsettledRows(state, ROWS):
            # a failed event is counted only once it is settled, because until then it may be taken back
            failures = [Arrival(0, failed)] if failed is not None else []
            failed = SettleKernel().advance(state, failures, clock).table
        if failed is not None and failed.num_rows:
            aside = QuarantineRows()
            copies = np.repeat(np.arange(failed.num_rows), np.maximum(ints(failed, WEIGHT), 0))
            set_events_aside(aside, weighted(failed.take(pa.array(copies)), 1))
            aside.count(totals)
        return Output(rows if rows is not None and rows.num_rows else None, clock.c, totals)


__all__ = ["AttemptKernel"]
