"""Kernel of the joins whose rows are parts of left events: left, semi and anti join.

The rows of a left event depend on it and on the right events that overlap it. So the held left events whose rows change are those
that a new right event meets.

State: left and right events in bins by group, the lifetimes of the left ones by start, and the rows that wait. Cost: the pairs of
new left events, and of those that a new right event meets; the right events of their groups; for new right events the left ones
of their groups. Once most events of a bin are settled, all its groups are read, to forget the events that are no longer needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import concat, ints, net_deltas
from streamq.runtime.deltas import history_of, unit_weights, weighted
from streamq.runtime.evaluators.joins import JoinEvaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.groups import distinct_hashes, number_groups
from streamq.runtime.kernel import Clock
from streamq.runtime.kernels.left_rows import LEFT, RIGHT, Change, LeftRowsKernel
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.state.group_bins import GroupBins
from streamq.runtime.state.waiting import OpenStarts
from streamq.time import INFINITY, MINUS_INFINITY


@dataclass(frozen=True)
class LeftJoinKernel(LeftRowsKernel[JoinEvaluator]):
    """A kernel of a left, semi or anti join."""

    def _rows_of(self, left: pa.Table, right: pa.Table) -> pa.Table:
        histories = number_groups([left, right], self.evaluator.group_columns)
        return self.evaluator.rows(histories, MINUS_INFINITY, INFINITY)

    def _change(self, bins: GroupBins, left: pa.Table, right: pa.Table, clock: Clock) -> Change:
        if not left.num_rows + right.num_rows:
            return Change(None, left, right, 0)
        ours, theirs = self.evaluator.group_columns
        held = bins.read(RIGHT)
        before = right.slice(0, 0) if held is None else held
        met = bins.read(LEFT, distinct_hashes([right])) if right.num_rows else None
        met = left.slice(0, 0) if met is None else met.filter(pa.array(ints(met, RE) >= clock.c_before))
        tables = [unit_weights(left), history_of(met), history_of(before), history_of(concat([before, right])), right]
        new, met, before, now, fresh = number_groups(tables, (ours, ours, theirs, theirs, theirs))
        met = met.take(pa.array(np.unique(self.evaluator.pairs(met, fresh)[0])))
        is_insert = ints(new, WEIGHT) > 0
        inserted, retracted = (new.filter(pa.array(some)).select(met.column_names) for some in (is_insert, ~is_insert))
        parts = [(concat([inserted, met]), now, 1), (retracted, now, -1), (met, before, -1)]
        rows = [
            weighted(self.evaluator.rows([some, others], MINUS_INFINITY, INFINITY), sign).select(
                [*self.result, LE, RE, WEIGHT]
            )
            for some, others, sign in parts
            if some.num_rows
        ]
        change = net_deltas(concat(rows)) if rows else None
        return Change(change, left, right, sum(table.num_rows for table in tables))

    def _least_start(self, state: KernelBaskets, left: pa.Table, c: int) -> int:
        """Return the least start of a left event that lives beyond ``c``, INFINITY if none does."""
        return OpenStarts(state, self.sizes.slack).advance(left, c)
