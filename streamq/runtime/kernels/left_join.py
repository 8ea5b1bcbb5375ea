"""Kernel of the joins whose rows are parts of left events: left, semi and anti join.

The rows of a left event depend on it and on the right events that overlap it. So the kernel computes the rows of new left events,
and those of the held ones that a new right event meets, before and after it.

State: left and right events in bins by group, the lifetimes of the left ones by start, and the rows that wait. Cost: the pairs of
new left events, and of those that a new right event meets; the right events of their groups; for new right events the left ones
of their groups. Once most events of a bin are settled, all its groups are read, to forget the events that are no longer needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.columnar import concat, ints, net_deltas
from streamq.runtime.deltas import history_of, unit_weights, weighted
from streamq.runtime.evaluators.joins import JoinEvaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.group_bins import BinSizes, GroupBins
from streamq.runtime.groups import distinct_hashes, number_groups
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.kernels.recompute import input_basket, new_deltas
from streamq.runtime.open_starts import OpenStarts
from streamq.runtime.release import Release
from streamq.runtime.waiting_rows import WaitingRows
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule
    from streamq.runtime.state_layout import StateLayout

LEFT, RIGHT = input_basket(0), input_basket(1)


@dataclass(frozen=True)
class LeftJoinKernel(UncombinedKernel):
    """A kernel of a left, semi or anti join.

    evaluator: the pair condition; inputs: each side's columns beside lifetimes; result: the columns of a row. A row is sent once
    the watermark has reached it; ``final``: once it is final; ``early``: at once.
    """

    evaluator: JoinEvaluator
    inputs: tuple[pa.Schema, pa.Schema]
    result: tuple[str, ...]
    final: bool = False
    early: bool = False
    sizes: BinSizes = field(default_factory=BinSizes)
    """The sizes at which the bins of events are treated otherwise."""

    @property
    def release(self) -> Release:
        """The progress that lets a row go."""
        if self.final:
            return Release.PAST_END
        return Release.AT_ONCE if self.early else Release.PAST_START

    @property
    def progress_rule(self) -> ProgressRule:
        """The evaluator's rule, with rows that go by the kernel's release."""
        return self.evaluator.progress_rule.released(final=self.final, early=self.early)

    @property
    def state_layout(self) -> StateLayout:
        """The events of both sides, the lifetimes of the left ones, the rows that wait, and the CTI sent."""
        from streamq.runtime.spread import Events
        from streamq.runtime.state_layout import StateLayout
        from streamq.runtime.state_parts import GroupedRows, LeastValue, OpenLifetimes, waiting_rows

        columns = dict(zip(self.evaluator.kept, self.evaluator.left, strict=True))
        waiting = waiting_rows(Events(basket=LEFT, columns=columns))
        parts = (OpenLifetimes(LEFT), *waiting, GroupedRows(inputs={LEFT: 0, RIGHT: 1}), LeastValue("cti"))
        return StateLayout(parts=parts)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the changes of the rows that go by now, hold new events, and forget those that are no longer needed.

        Late events are counted; at the end of the stream the state is emptied.
        """
        totals = Totals()
        left, right = new_deltas(arrivals, self.inputs, self.evaluator.group_columns, totals)
        bins = GroupBins(state, self.sizes)
        bins.open(distinct_hashes([left, right]), clock.c)
        change, evaluated = self._change(bins, left, right, clock)
        if clock.c == INFINITY:
            bins.drop([LEFT, RIGHT])
        elif bins.opened:
            for basket, new in ((LEFT, left), (RIGHT, right)):
                bins.append(basket, new)
            evaluated += self._forget(bins, (left, right), clock.c)
            bins.close([LEFT, RIGHT], clock.c)
        waiting = WaitingRows(state, self.release)
        table = waiting.advance(change, clock)
        held = OpenStarts(state, self.sizes.slack).advance(left, clock.c)
        progress = clock.by_port or (clock.c, clock.c)
        cti = self.evaluator.cti(progress, held) if clock.c != MINUS_INFINITY else MINUS_INFINITY
        cti = state.values["cti"] = max(cti, int(state.values.get("cti", MINUS_INFINITY)))
        return Output(
            table if table is not None and table.num_rows else None, cti, totals, waiting.due, evaluated=evaluated
        )

    def _change(self, bins: GroupBins, left: pa.Table, right: pa.Table, clock: Clock) -> tuple[pa.Table | None, int]:
        """Return the deltas of the rows that new deltas make, None if there are none, and the number of events looked at."""
        if not left.num_rows + right.num_rows:
            return None, 0
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
        return net_deltas(concat(rows)) if rows else None, sum(table.num_rows for table in tables)

    def _forget(self, bins: GroupBins, new: Sequence[pa.Table], c: int) -> int:
        """Take out the events that are no longer needed of the bins that are read as a whole; return the number looked at.

        ``new`` has the columns of each side.
        """
        whole = [bins.read_whole(basket) for basket in (LEFT, RIGHT)]
        histories = [history_of(some.slice(0, 0) if t is None else t) for t, some in zip(whole, new, strict=True)]
        if not any((ints(table, LE) < c).any() for table in histories):
            return 0
        histories = number_groups(histories, self.evaluator.group_columns)
        needed = self.evaluator.needed(histories, histories[0], c)
        for basket, history, some, is_needed in zip((LEFT, RIGHT), histories, new, needed, strict=True):
            gone = history.filter(pa.array(~is_needed))
            bins.append(basket, weighted(gone, -1).select(some.column_names))
        return sum(table.num_rows for table in histories)
