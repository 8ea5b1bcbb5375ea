"""Kernel of the inner join of two streams: it joins each side's new events with the other side's held and new events.

State: each side's events, in bins of time by length of life, and by group where these are large, so that a micro-batch reads
only bins that its events can overlap; a bin is dropped once all its events have ended. Cost: the pairs of new events, and the
events of their groups in the bins that they are read from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.bins import bin_reach, forget, hold
from streamq.runtime.columnar import concat, ints, net_deltas, with_column
from streamq.runtime.evaluators.joins import JoinEvaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.group_bins import BinSizes
from streamq.runtime.groups import HASH, number_groups, with_hashes
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.lateness import weighted_events
from streamq.runtime.parts import SIZES, PartedBins
from streamq.time import INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule
    from streamq.runtime.state_layout import StateLayout


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

    @property
    def state_layout(self) -> StateLayout:
        """The events of both sides."""
        from streamq.runtime.state_layout import StateLayout
        from streamq.runtime.state_parts import JoinedSide

        groups = self.evaluator.group_columns
        sides = (
            JoinedSide(basket=f"side{port}", port=port, group_columns=tuple(groups[port]), sizes=self.sizes)
            for port in (0, 1)
        )
        return StateLayout(parts=tuple(sides))

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the pairs that the micro-batch adds and retracts, hold its events, and forget those that have settled.

        Late events are counted.
        """
        totals = Totals()
        fresh = [self._new_deltas(arrivals, port, totals) for port in (0, 1)]
        out = []
        if fresh[0] is not None or fresh[1] is not None:
            held = [self._overlapping(state, 1 - port, fresh[port]) for port in (0, 1)]
            right = [t for t in (held[0], fresh[1]) if t is not None]
            if fresh[0] is not None and right:
                out += self._pairs(fresh[0], concat(right))
            if fresh[1] is not None and held[1] is not None:
                out += self._pairs(held[1], fresh[1])
        if clock.c != INFINITY:
            for port in (0, 1):
                if (table := fresh[port]) is not None:
                    hold(state, f"side{port}", table, net_deltas, self.evaluator.group_columns[port], self.sizes)
        for port in (0, 1):
            forget(state, f"side{port}", clock.c)
        table = net_deltas(concat(out)) if out else None
        return Output(table if table is not None and table.num_rows else None, clock.c, totals)

    def _new_deltas(self, arrivals: Sequence[Arrival], port: int, totals: Totals) -> pa.Table | None:
        """Return a port's new deltas, without those dropped as late; None if there are none."""
        columns = [*self.inputs[port].names, LE, RE, WEIGHT]
        tables = [t.select(columns) for a in arrivals if a.port == port and (t := weighted_events(a, totals)).num_rows]
        return concat(tables) if tables else None

    def _pairs(self, left: pa.Table, right: pa.Table) -> list[pa.Table]:
        """Return the deltas of the pairs of two sides, as one table or, without pairs, none.

        A pair's weight is the product of its events' weights.
        """
        left, right = number_groups([left, right], self.evaluator.group_columns)
        at, of = self.evaluator.pairs(left, right)
        if not len(at):
            return []
        weight = ints(left, WEIGHT)[at] * ints(right, WEIGHT)[of]
        pairs = self.evaluator.paired(left, right, at, of)
        return [with_column(pairs.select([*self.result, LE, RE]), WEIGHT, weight)]

    def _overlapping(self, state: KernelBaskets, port: int, fresh: pa.Table | None) -> pa.Table | None:
        """Return the events that a side holds of the groups of new events, in the bins that one of these can overlap.

        ``fresh`` are the new events of the other side. Events that overlap none of them are included. None if there are no new
        events, or none in these bins.
        """
        if fresh is None:
            return None
        le, re = ints(fresh, LE), ints(fresh, RE)
        first, last, hashes = le.min(), re.max(), None
        tables = []
        bins = PartedBins(state, f"side{port}", net_deltas)
        for bin in bins:
            low, high = bin_reach(bin)
            if not (first < high and last > low and (is_reached := (re > low) & (le < high)).any()):
                continue
            if not bins.is_split(bin):
                tables.append(bins.read(bin))
                continue
            if hashes is None:
                hashes = with_hashes(fresh, self.evaluator.group_columns[1 - port]).column(HASH).to_numpy()
            rows = bins.read_groups(bin, np.unique(hashes[is_reached]))
            tables.append(None if rows is None else net_deltas(rows))
        some = [table for table in tables if table is not None and table.num_rows]
        return concat(some) if some else None
