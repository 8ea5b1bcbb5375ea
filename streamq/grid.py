"""Grids of windows: computes the interval of each window, and the windows that contain an instant.

An interval ``[a, b)`` contains a and not b. All lengths and instants are in ticks: microseconds since 1970 (UTC) on a timestamp
axis, the column's own unit on an integer axis. ``streamq/runtime/grid_ranges.py`` does the same for arrays and columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from streamq.time import FIRST_INSTANT, INFINITY, MINUS_INFINITY


class WindowEnds(Protocol):
    """The ends of windows that lie where they lie, whatever events there are."""

    def floor_to_end(self, t: int) -> int:
        """Return the latest instant, at or before t, at which a window ends; MINUS_INFINITY without one; an infinite t itself."""


@dataclass(frozen=True)
class Grid:
    """A grid of windows; window i is ``[offset + i*hop, offset + i*hop + size)``, for every integer i, also negative.

    ``size`` and ``hop`` are positive. With ``hop < size`` neighbours overlap, with ``hop > size`` there are gaps.
    """

    size: int
    hop: int
    offset: int = 0

    @property
    def n(self) -> int:
        """The greatest number of windows that contain one instant: size / hop, rounded up."""
        return -(-self.size // self.hop)

    @property
    def divides(self) -> bool:
        """True if hop divides size, so that windows consist of basic windows that are one hop long."""
        return self.size % self.hop == 0

    def start(self, index: int) -> int:
        """Return the start of window ``index``, at most the end of the time axis and at least its first instant."""
        return max(FIRST_INSTANT, min(INFINITY, self.offset + index * self.hop))

    def end(self, index: int) -> int:
        """Return the end of window ``index``, at most the end of the time axis and at least its first instant."""
        return max(FIRST_INSTANT, min(INFINITY, self.offset + index * self.hop + self.size))

    def first_ending_after(self, t: int) -> int:
        """Return the number of the first window that ends after t, at least FIRST_INSTANT; for an infinite t, t itself."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return max(FIRST_INSTANT, (t - self.offset - self.size) // self.hop + 1)

    def last_starting_before(self, t: int) -> int:
        """Return the number of the last window that starts before t, at least FIRST_INSTANT; for an infinite t, t itself."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return max(FIRST_INSTANT, (t - 1 - self.offset) // self.hop)

    def next_start(self, t: int) -> int:
        """Return the start of the first window that starts at instant t or later; for an infinite t, t itself."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return self.start(self.last_starting_before(t) + 1)

    def floor_to_end(self, t: int) -> int:
        """Return the latest instant, at or before t, at which a window ends; for an infinite t, t itself."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return self.end(self.first_ending_after(t) - 1)
