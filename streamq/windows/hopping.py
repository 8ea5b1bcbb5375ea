"""Hopping windows, which lie on a grid; tumbling windows are hopping windows with ``hop == size``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from streamq.errors import TimeError
from streamq.runtime.arrow.columnar import ints
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.evaluators.assigner import Assigner, RangeAssigner, Ranges
from streamq.runtime.event import RE
from streamq.runtime.grid_ranges import grid_lifetimes, grid_range
from streamq.runtime.time.endpoints import Bound
from streamq.time import Duration, Grid, show_duration, ticks
from streamq.windows.batch_events import ENDS, INDEX, STARTS, BatchEvents, in_windows, window_lifetime
from streamq.windows.window import W, Window, WindowKindVerbs


@dataclass(frozen=True)
class Hopping(Window):
    """Hopping windows: window i is ``[offset + i*hop, offset + i*hop + size)``, for every integer i, negative ones too.

    ``size`` and ``hop`` are positive. With ``hop == size`` they are tumbling windows; with ``hop < size`` (Flink: sliding)
    neighbours overlap, with ``hop > size`` there are gaps. Flink's assigners go by an event's timestamp, a grid goes by its
    *lifetime*: the event is in every window that it overlaps, not only in those that contain its start.
    """

    size: int
    hop: int
    offset: int = 0

    name = "hopping"
    bound = Bound.ENDLESS

    @classmethod
    def from_arguments(cls, size: Duration, hop: Duration, offset: Duration, axis: str, verb: str) -> Hopping:
        """Return windows of these durations; TimeError for a size or hop below 1 tick, or what does not fit the axis."""
        for name, duration in (("size", size), ("hop", hop)):
            if ticks(duration, axis, verb) <= 0:
                raise TimeError(verb, f"{name} must be positive", f"found {duration!r}")
        return cls(ticks(size, axis, verb), ticks(hop, axis, verb), ticks(offset, axis, verb))

    @property
    def grid(self) -> Grid:
        return Grid(self.size, self.hop, self.offset)

    def shown(self, axis: str) -> str:
        shown = f"size={show_duration(self.size, axis)}, hop={show_duration(self.hop, axis)}"
        return shown + (f", offset={show_duration(self.offset, axis)}" if self.offset else "")

    def assigner(self, names: Sequence[str]) -> Assigner:
        return HoppingAssigner(self.grid)

    def copies(self, events: BatchEvents) -> tuple[DataFrame, list[str]]:
        """Return the events copied into their windows, and the columns of the interval, or the number if nothing reads it."""
        df = in_windows(events, self.grid)
        if not events.reads_bounds:
            return df, [INDEX]
        start, end = window_lifetime(self.grid)
        return df.withColumns({STARTS: start, ENDS: end}), [STARTS, ENDS]


class HoppingVerbs(WindowKindVerbs[W]):
    """The verbs for hopping windows."""

    def hopping_window(
        self, size: Duration, hop: Duration, offset: Duration = 0, *, clip_input: str = "full", stamp: str | None = None
    ) -> W:
        """The windows ``[offset + i*hop, offset + i*hop + size)`` for every integer i.

        ``size``, ``hop`` and ``offset`` are durations with a unit on a timestamp axis, integer ticks on an integer axis;
        size and hop may be any positive durations. An event is a member of every window its lifetime overlaps; a window
        without a member yields nothing; a result row lives on its window. Raises TimeError for durations that do not fit.

        All window verbs take ``clip_input``, how members' lifetimes are cut before a time-sensitive aggregate reads them
        ("full", "left", "right", "none"), and ``stamp``, where a result lives: "align" (on its window) or "point_at_end" (the
        tick at the window's end). Words that do not exist or fit raise PlanError. (docs/concepts.md, "Windows"; Liarou et al.,
        Enhanced Stream Processing in a DBMS Kernel, section 3.)

        ::

            events   a [1,4)  b [3,8)     size 4, hop 2
            windows  [-2,2):a  [0,4):ab  [2,6):ab  [4,8):b  [6,10):b

        >>> import streamq as sq
        >>> s = sq.events([(1, 4, {"k": "a"}), (3, 8, {"k": "b"})])
        >>> s.hopping_window(4, 2).select(n=sq.count()).show()
        n  start  end
        1     -2    2
        2      0    4
        2      2    6
        1      4    8
        1      6   10
        """
        return self._in_windows(
            lambda axis: Hopping.from_arguments(size, hop, offset, axis, "hopping_window"),
            "hopping_window",
            clip_input,
            stamp,
        )

    def tumbling_window(
        self, size: Duration, offset: Duration = 0, *, clip_input: str = "full", stamp: str | None = None
    ) -> W:
        """Hopping windows that do not overlap: ``hop = size``; the arguments and errors are those of :meth:`hopping_window`.

        ::

            events   a [1,4)  b [3,8)   size 4
            windows  [0,4):ab  [4,8):b

        >>> import streamq as sq
        >>> s = sq.events([(1, 4, {"k": "a"}), (3, 8, {"k": "b"})])
        >>> s.tumbling_window(4).select(n=sq.count()).show()
        n  start  end
        2      0    4
        1      4    8
        """
        return self._in_windows(
            lambda axis: Hopping.from_arguments(size, size, offset, axis, "tumbling_window"),
            "tumbling_window",
            clip_input,
            stamp,
        )


@dataclass(frozen=True)
class HoppingAssigner(RangeAssigner):
    """Assigns events to hopping windows by the grid."""

    on: Grid

    @property
    def grid(self) -> Grid:
        return self.on

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        low, high = grid_range(self.on, table, since, upto)
        return Ranges(np.arange(len(g)), g, low, high, lambda _, index: grid_lifetimes(self.on, index))

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        # first_ending_after(x): windows with RE > x; those that end at c - 1 count for points at the end
        least = self.on.start(self.on.first_ending_after(c - 2))
        return ints(table, RE) > min(c - 1, least)

    def latest_cti(self, c: int) -> int:
        return self.on.start(self.on.first_ending_after(c))

    def next_start(self, t: int) -> int:
        return self.on.next_start(t)
