"""Final rows of a stream whose ends may still move: a row is passed on once it is settled, and never taken back.

State: rows not yet settled. Cost: a group by of those a batch touches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.basket import Scope
from streamq.runtime.columnar import concat, group
from streamq.runtime.event import RE, WEIGHT
from streamq.runtime.kernel import Arrival, Clock, Output, Uncombined
from streamq.time import INFINITY


@dataclass(frozen=True)
class SettleKernel(Uncombined):
    """No parameters: a row is its lifetime and payload."""

    def advance(self, state: Scope, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """The rows with ``RE < c`` (all, at the end of the stream)."""
        fresh = [a.table for a in arrivals]
        held = state.read_all("rows")
        every = [t for t in (held, *fresh) if t is not None and t.num_rows]
        if not every:
            return Output(None, clock.c)
        table = concat([t.select(every[0].column_names) for t in every])
        net = group(table, [n for n in table.column_names if n != WEIGHT], {WEIGHT: (WEIGHT, "sum")}).select(
            table.column_names
        )
        net = net.filter(pc.not_equal(net.column(WEIGHT), 0))
        settled = pc.less(net.column(RE), clock.c) if clock.c != INFINITY else pa.array([True] * net.num_rows)
        if fresh or pc.any(settled).as_py():
            state.replace("rows", "0", net.filter(pc.invert(settled)))
        out = net.filter(settled)
        return Output(out if out.num_rows else None, clock.c)
