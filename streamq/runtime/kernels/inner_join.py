"""Kernel of the inner join of two streams: it joins each side's new events with the other side's held and new events.

State: each side's events (:mod:`streamq.runtime.joined_events`). Cost: the pairs of new events, and the events of their groups in
the bins that they are read from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from streamq.runtime.columnar import concat, net_deltas
from streamq.runtime.evaluators.joins import JoinEvaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.joined_events import JoinedEvents
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.lateness import weighted_events
from streamq.runtime.state.baskets import SIZES, BinSizes, KernelBaskets
from streamq.time import INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule


@dataclass(frozen=True)
class InnerJoinKernel(UncombinedKernel):
    """A kernel of an inner join.

    evaluator: the pair condition; inputs: each side's columns beside lifetimes; result: the columns of a pair.
    """

    evaluator: JoinEvaluator
    inputs: tuple[pa.Schema, pa.Schema]
    result: tuple[str, ...]
    sizes: BinSizes = SIZES
    """The sizes at which bins are split by group."""

    @property
    def progress_rule(self) -> ProgressRule:
        """Pairs are sent at once."""
        from streamq.runtime.progress_rule import AT_ONCE

        return AT_ONCE

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the pairs that the micro-batch adds and retracts, hold its events, and forget those that have settled.

        Late events are counted.
        """
        totals = Totals()
        fresh = [new_side(arrivals, port, self.inputs[port].names, totals) for port in (0, 1)]
        events = JoinedEvents(state, self.evaluator, self.result, self.sizes)
        out = events.new_pairs(fresh)
        if clock.c != INFINITY:
            events.hold(fresh)
        events.forget(clock.c)
        table = net_deltas(concat(out)) if out else None
        return Output(table if table is not None and table.num_rows else None, clock.c, totals)


def new_side(arrivals: Sequence[Arrival], port: int, columns: Sequence[str], totals: Totals) -> pa.Table | None:
    """Return a port's new deltas, without those dropped as late; None if there are none. Late ones are counted."""
    names = [*columns, LE, RE, WEIGHT]
    tables = [t.select(names) for a in arrivals if a.port == port and (t := weighted_events(a, totals)).num_rows]
    return concat(tables) if tables else None


__all__ = ["InnerJoinKernel", "new_side"]
