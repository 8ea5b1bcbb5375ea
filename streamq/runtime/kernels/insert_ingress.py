"""Ingress of an insert-only source: judges lateness where c is kept; no state of its own, one pass over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import Scope
from streamq.runtime.columnar import concat, ints, with_column
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, Uncombined
from streamq.runtime.lateness import judged
from streamq.windows import Hopping


@dataclass(frozen=True)
class InsertIngressKernel(Uncombined):
    """points: the source declares points, so RE = LE + 1; round_to: the grid c is rounded down to (SEMANTICS section 7)."""

    points: bool
    round_to: Hopping | None = None

    def advance(self, state: Scope, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """The events that are on time, and what the policy leaves of the others."""
        totals = Totals()
        out = [self._judged(a, totals) for a in arrivals]
        return Output(concat(out) if out else None, clock.c, totals)

    def _judged(self, arrival: Arrival, totals: Totals) -> pa.Table:
        table, judge = arrival.table, arrival.judge
        if RE not in table.column_names:
            table = with_column(table, RE, ints(table, LE) + 1)
        table = with_column(table, WEIGHT, np.ones(table.num_rows, np.int64))
        c = self.round_to.floor_to_end(arrival.c) if self.round_to else arrival.c
        return table if judge is None else judged(table, judge, c, totals)
