"""The rule of a grid of windows: the windows in which a lifetime lies, and the lifetimes of windows; and a key's open windows.

Spans of windows are lifetimes that overlap exactly if events lie in a common window. A window is open while it is not final
because a member's end is read and may still move.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import ints
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.deltas import LE, RE
from streamq.runtime.time.progress_rule import ARRAYS, INTEGERS, Arithmetic, Number
from streamq.time import FIRST_INSTANT, INFINITY, Grid


def grid_index(x: Number, shift: int, hop: int, arithmetic: Arithmetic) -> Number:
    """Return ``floor((x - shift) / hop)`` without computing ``x - shift``, which could overflow at the ends of the axis."""
    whole, part = divmod(shift, hop)
    # numbers of windows a tick apart, which may lie before the axis, stay on it
    index = arithmetic.moved(x, -whole) if hop == 1 else arithmetic.quotient(x, hop) - whole
    return index - arithmetic.choose(arithmetic.remainder(x, hop) < part, 1, 0) if part else index


def first_ending_after(grid: Grid, t: Number, arithmetic: Arithmetic) -> Number:
    """Return the number of the first window with ``RE > t``."""
    return grid_index(t, grid.offset + grid.size - grid.hop, grid.hop, arithmetic)


def last_starting_before(grid: Grid, t: Number, arithmetic: Arithmetic) -> Number:
    """Return the number of the last window with ``LE < t``; INFINITY if t is."""
    last = grid_index(t - 1, grid.offset, grid.hop, arithmetic)
    return arithmetic.choose(t == INFINITY, INFINITY, last)


def window_range(grid: Grid, le: Number, re: Number | None, arithmetic: Arithmetic) -> tuple[Number, Number]:
    """Return the numbers of the first and the last window in which ``[le, re)`` lies; ``re`` None: a point, which lasts a tick.

    The first is the first that ends after LE, the last the last that starts before RE, INFINITY for an endless lifetime. The
    range is empty only for an event in a gap between windows.
    """
    low = first_ending_after(grid, le, arithmetic)
    if re is None:
        return low, grid_index(le, grid.offset, grid.hop, arithmetic)
    return low, last_starting_before(grid, re, arithmetic)


def grid_range(grid: Grid, table: pa.Table, since: int, upto: int) -> tuple[Ints, Ints]:
    """Return each event's first and last window among those that end after ``since`` and start before ``upto``.

    An event without such a window has a last below the first, as has an endless one if there is no bound.
    """
    low, high = window_range(grid, ints(table, LE), ints(table, RE), ARRAYS)
    low = np.maximum(low, grid.first_ending_after(since))
    high = np.minimum(high, grid.last_starting_before(upto))
    # an endless lifetime without a bound has no windows yet
    return low, np.where(high == INFINITY, low - 1, high)


def grid_lifetimes(grid: Grid, index: Ints) -> tuple[Ints, Ints]:
    """Return LE and RE of the windows of a grid by their numbers, kept on the axis."""
    if len(index) and (
        int(index.min()) * grid.hop + grid.offset < FIRST_INSTANT or grid.end(int(index.max())) == INFINITY
    ):
        # at the very ends of the axis, where int64 would overflow
        numbers = index.tolist()
        return np.array([grid.start(i) for i in numbers]), np.array([grid.end(i) for i in numbers])
    start = index * grid.hop + grid.offset
    return start, start + grid.size


LO, HI = "__lo", "__hi"
"""The first and the last window of a partial result."""

LAST_END = "__last_end"
"""The column of the greatest end of a window's members, if ends are read that may still move."""


def waits_for_members(rows: pa.Table, c: int) -> Mask:
    """Mark the rows of windows with a member that is not settled at CTI ``c``; none of rows without LAST_END."""
    if LAST_END not in rows.column_names or c == INFINITY:
        return np.zeros(rows.num_rows, bool)
    return ints(rows, LAST_END) >= c


@dataclass(frozen=True)
class WindowSpans:
    """The spans of events over a grid without gaps, where the hop at the start of a window stands for the window.

    The span of an event begins with the hop of its first window and ends with that of its last. The common part of two spans
    consists of the hops of the windows that both events lie in, whether or not they live at once.
    """

    grid: Grid

    def start(self, le: Number, arithmetic: Arithmetic) -> Number:
        grid = self.grid
        return self._next_end(arithmetic.moved(le, -(grid.size + grid.offset)), arithmetic)

    def end(self, re: Number, arithmetic: Arithmetic) -> Number:
        """Return the end of the hop at the start of the last window that starts before ``re``; INFINITY if ``re`` is.

        Windows that start before the axis, all at its first instant, stand at that instant.
        """
        end = self._next_end(arithmetic.moved(re, -(self.grid.offset + 1)), arithmetic)
        return arithmetic.choose(end == FIRST_INSTANT, FIRST_INSTANT + 1, end)

    def _next_end(self, t: Number, arithmetic: Arithmetic) -> Number:
        """Return the offset plus the least multiple of the hop above ``t``."""
        return arithmetic.moved(arithmetic.floor(t, self.grid.hop), self.grid.hop + self.grid.offset)

    def apply(self, t: int) -> int:
        """Return the start of the first window that ends after the instant of progress ``t``, kept finite."""
        return max(FIRST_INSTANT, min(INFINITY - 1, self.start(t, INTEGERS)))
