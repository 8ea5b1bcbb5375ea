"""Kernel of windows of rows whose members are filtered or grouped, over rows that nobody takes back.

A row's number, its place in the order of all rows, is final once the CTI has passed its start. From then on windows of n rows,
one each ``step`` rows, are windows on a grid over the axis of numbers (DataCell's basic windows, Algorithm 2): each row that is
a member becomes, by its number, part of the partial results of its step and group (:mod:`window_aggregate`), which are merged
into windows. A window is reported once its last row has its number: at that row's start.

State: the rows that start at c or later, the number of the others, partial results of windows to come, and, where rows are sent
before they are final, those of windows that end with a row from c on. Cost: a sort of the rows that the CTI passes, and a merge
of the partial results in a window that is reported; before it is final, also of the rows from c on, and of each window that ends
with one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints, net_deltas, with_column, with_columns
from streamq.runtime.arrow.values import Ints
from streamq.runtime.deltas import cancelling_deltas, history_of
from streamq.runtime.evaluators.numbering import event_order
from streamq.runtime.evaluators.window_evaluator import WindowEvaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.groups import HASH
from streamq.runtime.kernel import Arrival, Clock, Output, Totals
from streamq.runtime.kernels.recompute import RecomputeKernel
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.state.time_bins import TimeBins
from streamq.time import INFINITY

UNNUMBERED = "unnumbered"
"""The basket of rows that start at c or later, before which others may come."""

PREVIEWS = "previews"
"""The basket of the rows, as sent, of windows that end with a row from c on."""

NUMBERED = "numbered"
"""The value of state with the number of rows that have got their numbers."""


@dataclass(frozen=True)
class NumberedWindowsKernel(RecomputeKernel[WindowEvaluator]):
    """A kernel of the windows that an evaluator assigns by numbers of rows; ``windows`` is that of windows over the numbers.

    Rows of windows are points at their ends.
    """

    windows: WindowAggregateKernel = field(kw_only=True)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Number the rows before c, report the windows that they complete, and correct those reported with rows from c on."""
        totals = Totals()
        (new,) = self._fresh(arrivals, totals)
        if clock.form_changed and self.final:
            # windows that were reported before they were final are reported again once they are
            state.drop_basket(PREVIEWS)
        waiting = TimeBins(state, UNNUMBERED)
        passed = waiting.advance([new.drop_columns([HASH])], clock.c)
        tables = [] if passed is None else [self._final_rows(state, passed)]
        first = state.values.get(NUMBERED, 0)
        reported = first
        if not self.final:
            previews, reported = self._previews(waiting.rows(), state, first, clock)
            tables += self._changes(state, previews)
        some = [table for table in tables if table is not None]
        change = net_deltas(concat(some)) if some else None
        due = waiting.nth(self._first_window(reported) * self._step + self._length - 1 - first)
        if clock.c == INFINITY:
            for basket in state.names():
                state.drop_basket(basket)
        return Output(change, clock.c, totals, None if due is None else due + 1)

    @property
    def _length(self) -> int:
        return self.windows.window.size

    @property
    def _step(self) -> int:
        return self.windows.window.hop

    def _first_window(self, number: int) -> int:
        """Return the first window whose last row has this number or a later one."""
        return max(0, -((self._length - 1 - number) // self._step))

    def _numbers(self, deltas: pa.Table, first: int) -> tuple[pa.Table, Ints]:
        """Return the partial results of rows by their numbers, from ``first`` on, in their order, and the starts of all rows."""
        assigner = self.evaluator.assigner
        rows = history_of(deltas)
        order, _ = event_order(rows, np.zeros(rows.num_rows, np.int64), assigner.order_columns)
        number = np.empty(len(order), np.int64)
        number[order] = first + np.arange(len(order))
        members = with_column(rows.drop_columns([RE]), LE, number)
        if assigner.where:
            members = members.filter(members.column(assigner.where))
        return self.windows.combine(0, members), ints(rows, LE)[order]

    def _final_rows(self, state: KernelBaskets, passed: pa.Table) -> pa.Table | None:
        """Return the rows of the windows that are complete once the rows ``passed`` have their numbers, which they get now."""
        first = state.values.get(NUMBERED, 0)
        members, starts = self._numbers(passed, first)
        numbered = state.values[NUMBERED] = first + len(starts)
        # no window begins before row 0, so that none ends before row n - 1
        before, now = (max(number, self._length - 1) for number in (first, numbered))
        rows = self.windows.advance(state, [Arrival(0, members)], Clock(before, now, before, now)).table
        return self._at_ends(rows, starts, first)

    def _previews(
        self, waiting: pa.Table | None, state: KernelBaskets, first: int, clock: Clock
    ) -> tuple[pa.Table | None, int]:
        """Return the rows of the windows that end with a waiting row that progress has reached, and the number that is next.

        That is the number of the first waiting row that it has not reached; ``first`` is that of the first one. None: no rows.
        """
        if waiting is None:
            return None, first
        members, starts = self._numbers(waiting, first)
        after = first + (len(starts) if self._sends_at_once else int(np.searchsorted(starts, clock.m)))
        begin, end = self._first_window(first), self._first_window(after)
        rows = self.windows.preview(state, members, begin, end - 1) if begin < end else None
        return self._at_ends(rows, starts, first), after

    def _changes(self, state: KernelBaskets, previews: pa.Table | None) -> list[pa.Table | None]:
        """Return the rows ``previews``, which are kept, and retractions of those that were kept before."""
        before = state.read_all(PREVIEWS)
        state.drop_basket(PREVIEWS)
        if previews is not None:
            state.append(PREVIEWS, "", previews)
        return [previews, None if before is None else cancelling_deltas(before)]

    def _at_ends(self, rows: pa.Table | None, starts: Ints, first: int) -> pa.Table | None:
        """Return rows of windows over numbers as points at the ends of the windows; ``starts``: of the rows from ``first`` on."""
        if rows is None:
            return None
        end = starts[ints(rows, LE) + self._length - 1 - first] + 1
        return with_columns(rows, {LE: end, RE: end + 1}).select([*self.result, LE, RE, WEIGHT])
