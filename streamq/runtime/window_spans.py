"""Spans of windows: lifetimes that overlap exactly if events lie in a common window of a grid."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.runtime.time.tick_arithmetic import INTEGERS, Arithmetic, Number
from streamq.time import FIRST_INSTANT, INFINITY, Grid


@dataclass(frozen=True)
class WindowSpans:
    """The spans of events over a grid without gaps, where the hop at the start of a window stands for the window.

    The span of an event begins with the hop of its first window and ends with that of its last. The common part of two spans
    consists of the hops of the windows that both events lie in, whether or not they live at once.
    """

    grid: Grid

    def start(self, le: Number, arithmetic: Arithmetic) -> Number:
        """Return the start of the first window that ends after ``le``, kept on the axis."""
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
