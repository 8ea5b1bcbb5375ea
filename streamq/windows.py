"""Windows as values, which window verbs make and plans hold: each kind says which intervals of the time axis are its windows.

An interval ``[a, b)`` contains a and not b. All lengths and instants are in ticks: microseconds since 1970 (UTC) on a timestamp
axis, the column's own unit on an integer axis. LE and RE are the start and end of an event or a window. A grid puts an event
into several windows where Flink's assigners would, and also by its *lifetime*: an event is a member of every window that it
overlaps, not of those of its start alone. What the verbs check is in ``streamq/operators/window_verbs.py``; nothing here raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from streamq.choices import Stamp
from streamq.time import INFINITY, MINUS_INFINITY


@dataclass(frozen=True)
class Hopping:
    """Hopping windows: window i is ``[offset + i*hop, offset + i*hop + size)``, for every integer i, negative ones too.

    ``size`` and ``hop`` are positive. With ``hop == size`` they are tumbling windows; with ``hop < size`` (Flink: sliding)
    neighbours overlap, with ``hop > size`` there are gaps. A window's number is its i.
    """

    size: int
    hop: int
    offset: int = 0

    name: ClassVar[str] = "hopping"

    @property
    def overlap(self) -> bool:
        """Return whether two windows of one group may have an instant in common."""
        return self.size > self.hop

    @property
    def n(self) -> int:
        """Return the greatest number of windows that contain one instant: size / hop, rounded up."""
        return -(-self.size // self.hop)

    @property
    def divides(self) -> bool:
        """True if hop divides size: then windows are made of basic windows that are one hop long."""
        return self.size % self.hop == 0

    def start(self, index: int) -> int:
        """Return the start of window ``index``; beyond the ends of the time axis, the end of the axis."""
        return max(MINUS_INFINITY, min(INFINITY, self.offset + index * self.hop))

    def end(self, index: int) -> int:
        """Return the end of window ``index``; beyond the ends of the time axis, the end of the axis."""
        return max(MINUS_INFINITY, min(INFINITY, self.offset + index * self.hop + self.size))

    def first_ending_after(self, t: int) -> int:
        """Return the number of the first window that ends after instant t; for an infinite t, t itself."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return (t - self.offset - self.size) // self.hop + 1

    def last_starting_before(self, t: int) -> int:
        """Return the number of the last window that starts before instant t; for an infinite t, t itself."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return (t - 1 - self.offset) // self.hop

    def floor_to_end(self, t: int) -> int:
        """Return the latest instant, at or before t, at which a window ends; for an infinite t, t itself."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return self.end(self.first_ending_after(t) - 1)


@dataclass(frozen=True)
class Snapshot:
    """Snapshot windows: ``[t_j, t_j+1)`` between consecutive distinct starts and ends of a group's events.

    Inside a window no event of the group starts or ends, so its members are the same at every instant.
    """

    name: ClassVar[str] = "snapshot"

    @property
    def overlap(self) -> bool:
        """Return whether two windows of one group may have an instant in common."""
        return False


@dataclass(frozen=True)
class Count:
    """Count windows: ``[s_i, s_(i+n-1) + 1)``, over the distinct starts ``s_1 < s_2 < ...`` of a group's events.

    With ``by="end"`` the s are the finite ends. A window's members are the events that start (end) in it: n, or more where
    several start at one instant. Every instant that n - 1 others follow begins a window; fewer than n make none.
    """

    n: int
    by: str = "start"

    name: ClassVar[str] = "count"

    @property
    def overlap(self) -> bool:
        """Return whether two windows of one group may have an instant in common."""
        return self.n > 1


@dataclass(frozen=True)
class Rows:
    """Rows windows: of a group's events in the order of start, then ``order_by``, each run of n, a new one every ``step`` events.

    Window j has the events ``j*step .. j*step + n - 1`` as its members, counted from 0, and lasts from the start of the first
    until one tick after the start of the last. Where events are equal in start and ``order_by``, the rest of the payload decides.
    """

    n: int
    step: int
    order_by: tuple[str, ...]

    name: ClassVar[str] = "rows"

    @property
    def overlap(self) -> bool:
        """Return whether two windows of one group may have an instant in common."""
        return self.n > self.step


@dataclass(frozen=True)
class Session:
    """Session windows: the longest chains of a group's events that follow one another within ``gap``.

    An event belongs to the session if it starts before L + gap, where L is the last instant at which an earlier event of the
    session is alive. The window is ``[least start, L + gap)``. ``gap`` is at least two ticks.
    """

    gap: int

    name: ClassVar[str] = "session"

    @property
    def overlap(self) -> bool:
        """Return whether two windows of one group may have an instant in common."""
        return False


@dataclass(frozen=True)
class Landmark:
    """Landmark windows: from each landmark l the windows ``[l, l + j*hop)``, j = 1, 2, ..., cut at the next landmark.

    The landmarks are ``start + i*period`` for every integer i; without a ``period`` there is one, ``start``. In Flink such
    windows are cumulative: ``hop`` is the step, ``period`` the greatest size.
    """

    hop: int
    start: int = 0
    period: int | None = None

    name: ClassVar[str] = "landmark"

    @property
    def overlap(self) -> bool:
        """Return whether two windows of one group may have an instant in common."""
        return True


Window = Hopping | Snapshot | Count | Rows | Session | Landmark


def has_equal_starts(window: Window, stamp: Stamp) -> bool:
    """Return whether results of several windows of one group may start at one instant."""
    return isinstance(window, Rows) or (isinstance(window, Landmark) and stamp == Stamp.ALIGN)


def default_stamp(window: Window) -> Stamp:
    """Return where results live unless the user says it: of count, rows and landmark windows at the end, else on the window.

    On the whole of those three kinds of windows they would let one idle group hold back the CTI for ever.
    """
    return Stamp.POINT_AT_END if isinstance(window, Count | Rows | Landmark) else Stamp.ALIGN
