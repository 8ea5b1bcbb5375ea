"""Kernel of windows of several sizes on one state: shorter windows merge the basic windows that the longest ones hold.

State: that of the longest windows (:mod:`streamq.runtime.kernels.window_aggregate`). Cost: a micro-batch adds its partial results
once; each window that is reported merges the blocks, or basic windows, that it spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.grid import Grid
from streamq.plan.partial import COUNT
from streamq.runtime.columnar import concat, ints, with_column
from streamq.runtime.grid_ranges import HI, LO, grid_index
from streamq.runtime.kernel import Arrival, Clock, Output
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.state.window_bins import BinSpans
from streamq.runtime.tick_arithmetic import ARRAYS
from streamq.time import FIRST_INSTANT, INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule

NUMBER = "__window"
"""The column of the number of a row's window size."""


@dataclass(frozen=True)
class WindowsOfSizesKernel(WindowAggregateKernel):
    """A kernel of final windows of several grids over points that nobody takes back.

    ``window`` is the grid of the longest windows, whose hop divides the size, the hop and the distance of each other grid;
    ``partials`` are held, ``columns`` are those of a row. ``shown``: the kernel of each grid, which merges and finishes the
    partial results that its windows show. Rows have the number of their grid in NUMBER.
    """

    shown: tuple[WindowAggregateKernel, ...] = ()
    columns: tuple[tuple[str, pa.DataType], ...] = ()

    @property
    def progress_rule(self) -> ProgressRule:
        """The rule of the longest windows; shorter ones are reported at their own ends."""
        return replace(super().progress_rule, has_sizes=True)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Add partial results, and report the windows of each grid that the CTI has reached.

        Basic windows are forgotten, and the CTI is sent, as the longest windows say.
        """
        if clock.form_changed:
            # windows that were reported before they were final are reported again once they are
            self._reported.forget(state, INFINITY)
        new = self._arrived([arrival.table for arrival in arrivals if arrival.table.num_rows])
        placed = [_Placed(kernel.window, self.window) for kernel in self.shown]
        out = []
        for number, (kernel, place) in enumerate(zip(self.shown, placed, strict=True)):
            rows = kernel._deltas(self._due_rows(state, new, kernel, place, clock))
            if rows is not None:
                out.append(self._numbered(rows, number))
        if new is not None and clock.c != INFINITY:
            self._blocks.add(state, new)
        self._blocks.merge_past(state, self.window.last_starting_before(clock.m))
        least = self.window.first_ending_after(clock.c)
        self._forget(state, least)
        ends = [place.next_end(BinSpans(state.values), clock.c) for place in placed]
        due = min((end for end in ends if end is not None), default=None)
        return Output(concat(out) if out else None, self._cti(least, clock.c), due=due)

    def _due_rows(
        self,
        state: KernelBaskets,
        new: pa.Table | None,
        kernel: WindowAggregateKernel,
        place: _Placed,
        clock: Clock,
    ) -> list[pa.Table]:
        """Return the rows of the windows of one grid that the CTI has reached in this micro-batch, as one table or none."""
        first = kernel.window.first_ending_after(clock.c_before)
        last = kernel.window.first_ending_after(clock.c)
        last = last if last == INFINITY else last - 1
        if first > last:
            return []
        begin = place.start(first)
        if begin <= FIRST_INSTANT + place.basic.n:
            # here windows would be numbered below the axis, so that basic windows alone say where they are
            held = self._held.read(state, begin, INFINITY)
        else:
            held = self._blocks.read_between(state, begin, place.start(last), place.end(first))
        due = self._with_new(held, new)
        if due is None:
            return []
        columns = [name for partial in kernel.partials for name in partial.held_columns]
        return kernel._rows(place.ranges(due.select([*self.keys, LO, HI, COUNT, *columns])), first, last)

    def _numbered(self, rows: pa.Table, number: int) -> pa.Table:
        """Return rows of one grid with the columns of all, NULL where the windows do not show them, and the grid's number."""
        rows = with_column(rows, NUMBER, np.full(rows.num_rows, number))
        columns = {name: pa.nulls(rows.num_rows, kind) for name, kind in self.columns}
        return pa.table({**columns, **{name: rows.column(name) for name in rows.column_names}})


@dataclass(frozen=True)
class _Placed:
    """The windows of a grid in terms of the basic windows of another one, ``basic``: these are a hop long, and numbered."""

    grid: Grid
    basic: Grid

    @property
    def hop(self) -> int:
        """The hop, in basic windows."""
        return self.grid.hop // self.basic.hop

    @property
    def size(self) -> int:
        """The size, in basic windows."""
        return self.grid.size // self.basic.hop

    @property
    def offset(self) -> int:
        """The number of the first basic window of window 0."""
        return (self.grid.offset - self.basic.offset) // self.basic.hop

    def start(self, index: int) -> int:
        """Return the number of the first basic window of a window; for an infinite number that itself."""
        return index if index in (INFINITY, MINUS_INFINITY) else self.offset + index * self.hop

    def end(self, index: int) -> int:
        """Return the number of the basic window behind a window; for an infinite number that itself."""
        return index if index in (INFINITY, MINUS_INFINITY) else self.start(index) + self.size

    def ranges(self, partials: pa.Table) -> pa.Table:
        """Return partial results of basic windows, and of blocks of them, with the ranges of the windows that contain them.

        Before, they have those of the windows of ``basic``: HI is the first basic window, LO goes with the last.
        """
        first, low = ints(partials, HI), ints(partials, LO)
        # a range that would begin before the axis is one basic window's
        behind = np.where(low == FIRST_INSTANT, first + 1, low + self.basic.n)
        low = grid_index(behind, self.size + self.offset - self.hop + 1, self.hop, ARRAYS)
        return with_column(with_column(partials, LO, low), HI, grid_index(first, self.offset, self.hop, ARRAYS))

    def next_end(self, spans: BinSpans, c: int) -> int | None:
        """Return the end of the next window after ``c`` that has members; None without one."""
        ends, first = [], self.grid.first_ending_after(c)
        for low, high in spans.all():
            behind = low + self.basic.n if low > FIRST_INSTANT else low
            lowest = (behind - self.size - self.offset + self.hop - 1) // self.hop
            if (high - self.offset) // self.hop >= first:
                ends.append(self.grid.end(max(lowest, first)))
        return min(ends, default=None)


__all__ = ["NUMBER", "WindowsOfSizesKernel"]
