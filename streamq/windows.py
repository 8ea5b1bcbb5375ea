"""Windows as values: which intervals of the time axis a window verb means."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.time import INFINITY, MINUS_INFINITY


@dataclass(frozen=True)
class Hopping:
    """The grid ``[offset + i*hop, offset + i*hop + size)`` for every integer i, in ticks (SEMANTICS section 3)."""

    size: int
    hop: int
    offset: int = 0

    @property
    def n(self) -> int:
        """The greatest number of windows a point can lie in: size / hop, rounded up."""
        return -(-self.size // self.hop)

    @property
    def divides(self) -> bool:
        """Whether hop divides size: then every basic window is one hop long."""
        return self.size % self.hop == 0

    def start(self, index: int) -> int:
        """LE of a window, saturating."""
        return max(MINUS_INFINITY, min(INFINITY, self.offset + index * self.hop))

    def end(self, index: int) -> int:
        """RE of a window, saturating."""
        return max(MINUS_INFINITY, min(INFINITY, self.offset + index * self.hop + self.size))

    def first_ending_after(self, t: int) -> int:
        """The first window with ``RE > t``; the sentinels stay sentinels."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return (t - self.offset - self.size) // self.hop + 1

    def last_starting_before(self, t: int) -> int:
        """The last window with ``LE < t``; the sentinels stay sentinels."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return (t - 1 - self.offset) // self.hop

    def floor_to_end(self, t: int) -> int:
        """The greatest window end that is not after t (SEMANTICS section 7)."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return self.end(self.first_ending_after(t) - 1)
