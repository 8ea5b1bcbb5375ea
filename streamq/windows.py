"""Windows as values: which intervals of the time axis a window verb means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from streamq.choices import Stamp
from streamq.time import INFINITY, MINUS_INFINITY


@dataclass(frozen=True)
class Hopping:
    """The grid ``[offset + i*hop, offset + i*hop + size)`` for every integer i, in ticks."""

    size: int
    hop: int
    offset: int = 0

    name: ClassVar[str] = "hopping"

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
        """The greatest window end that is not after t."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return self.end(self.first_ending_after(t) - 1)


@dataclass(frozen=True)
class Snapshot:
    """``[t_j, t_j+1)`` for the consecutive distinct endpoints of a group."""

    name: ClassVar[str] = "snapshot"


@dataclass(frozen=True)
class Count:
    """Over the distinct starts (or finite ends) ``s_1 < s_2 < ...`` of a group: ``[s_i, s_(i+n-1) + 1)``.

    A member is an event whose start (or end) lies in it; fewer than n instants make no window.
    """

    n: int
    by: str = "start"

    name: ClassVar[str] = "count"


@dataclass(frozen=True)
class Rows:
    """Events of a group in the order (LE, ``order_by``): rows ``j*step .. j*step + n - 1``, from first LE to last LE + 1."""

    n: int
    step: int
    order_by: tuple[str, ...]

    name: ClassVar[str] = "rows"


@dataclass(frozen=True)
class Session:
    """Maximal chains: an event joins while ``LE < L + gap``, L the last instant alive so far; ``[min LE, L + gap)``."""

    gap: int

    name: ClassVar[str] = "session"


@dataclass(frozen=True)
class Landmark:
    """``[l, l + j*hop)`` for j = 1, 2, ..., cut at the next landmark; landmarks are ``start`` or ``start + i*period``."""

    hop: int
    start: int = 0
    period: int | None = None

    name: ClassVar[str] = "landmark"


Window = Hopping | Snapshot | Count | Rows | Session | Landmark


def default_stamp(window: Window) -> Stamp:
    """How a window's results are stamped unless told otherwise."""
    return Stamp.POINT_AT_END if isinstance(window, Count | Rows | Landmark) else Stamp.ALIGN
