"""Kernel of clip: a left event ends at the first start, after its own, of a right event of its group.

A new right start, or one that is taken back, changes the left events that begin before it and whose rows end there or later. So a
left event is held together with the end of its row, and others are not computed again.

State: left events with their cut ends, and right starts, in bins by group, and the rows that wait. Cost: new events; the starts
of their groups; for new starts the left events of their groups whose rows may change. Once most events of a bin are settled, all
its groups are read, to forget the events that are no longer needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import concat, ints, net_deltas, with_column
from streamq.runtime.deltas import cancelling_deltas, history_of, weighted
from streamq.runtime.evaluators.joins import ClipEvaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.groups import distinct_hashes, number_groups
from streamq.runtime.kernel import Clock
from streamq.runtime.kernels.left_rows import LEFT, RIGHT, Change, LeftRowsKernel
from streamq.runtime.state.group_bins import GroupBins
from streamq.runtime.values import Mask

OWN_END = "__own_end"
"""The column of the end that a left event has by itself, beside that of its row."""


@dataclass(frozen=True)
class ClipKernel(LeftRowsKernel[ClipEvaluator]):
    """A kernel of clip.

    ends_move: ends of left events may still move. If so, an event stays until its own end is settled, with the start that cuts
    it; else it is forgotten once its row is settled.
    """

    ends_move: bool = False

    @property
    def _pointwise(self) -> tuple[int, ...]:
        """The right port, of which only starts are read."""
        return (1,)

    def _rows_of(self, left: pa.Table, right: pa.Table) -> pa.Table:
        return self._stored(left)

    def _change(self, bins: GroupBins, left: pa.Table, right: pa.Table, clock: Clock) -> Change:
        left = left.append_column(OWN_END, left.column(RE))
        if not left.num_rows + right.num_rows:
            return Change(None, left, right, 0)
        right = net_deltas(right)
        held = bins.read(RIGHT)
        starts = history_of(right if held is None else concat([held, right]))
        rows, settled = self._held_rows(bins, left, right, clock.c_before)
        ours, theirs = self.evaluator.group_columns
        new, rows, now, fresh = number_groups([left, rows, starts, right], (ours, ours, theirs, theirs))
        moved = rows.filter(pa.array(self._is_met(rows, fresh)))
        parts = [self._clipped(new, now), weighted(self._clipped(moved, now), 1), weighted(moved, -1)]
        change = net_deltas(concat([part.select(left.column_names) for part in parts]))
        past = starts.slice(0, 0) if self.ends_move else starts.filter(pa.array(ints(starts, LE) < clock.c))
        return Change(
            net_deltas(change.select([*self.result, LE, RE, WEIGHT])),
            concat([self._stored(change), settled]),
            net_deltas(concat([right, weighted(past, -1).select(right.column_names)])),
            sum(table.num_rows for table in (left, rows, starts, right)),
        )

    def _held_rows(self, bins: GroupBins, left: pa.Table, right: pa.Table, c_before: int) -> tuple[pa.Table, pa.Table]:
        """Return the held left events of the groups of new starts whose rows were not settled, by the lifetimes of their rows.

        Also the deltas that take out those of these groups that are no longer needed. ``left`` has the columns.
        """
        held = bins.read(LEFT, distinct_hashes([right])) if right.num_rows else None
        if held is None:
            return left.slice(0, 0).drop_columns([WEIGHT]), left.slice(0, 0)
        is_needed = ints(held, RE) >= c_before
        rows = self._stored(held.filter(pa.array(is_needed)))
        rows = history_of(rows.filter(pa.array(ints(rows, RE) >= c_before)))
        settled = cancelling_deltas(held.filter(pa.array(~is_needed)))
        return rows, net_deltas(settled).select(left.column_names)

    def _is_met(self, rows: pa.Table, fresh: pa.Table) -> Mask:
        """Mark the rows that end at another instant because of new starts: an earlier one, or one that was taken back."""
        is_insert = ints(fresh, WEIGHT) > 0
        first, lost = (self.evaluator.cuts(rows, fresh.filter(pa.array(some))) for some in (is_insert, ~is_insert))
        end = ints(rows, RE)
        return (first < end) | (lost <= end)

    def _clipped(self, events: pa.Table, starts: pa.Table) -> pa.Table:
        """Return left events by the lifetimes of their rows, which end at the first of these starts or by themselves."""
        end = np.minimum(ints(events, OWN_END), self.evaluator.cuts(events, starts))
        return with_column(events, RE, end)

    def _stored(self, events: pa.Table) -> pa.Table:
        """Return left events as they are stored, or back: their lifetimes last as long as they are needed.

        That is as long as their rows, or their own lifetimes if ends move; the other end is in OWN_END.
        """
        if not self.ends_move:
            return events
        return with_column(with_column(events, RE, ints(events, OWN_END)), OWN_END, ints(events, RE))
