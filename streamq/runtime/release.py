"""The progress that lets a row go: once it has reached, or passed, an end of the row's lifetime."""

from __future__ import annotations

from enum import Enum

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import ints
from streamq.runtime.event import LE, RE
from streamq.runtime.lifetimes import saturating
from streamq.runtime.values import Ints, Mask
from streamq.time import INFINITY


class Release(Enum):
    """What lets a row go, by CTI or by watermark: the column of the lifetime's end that counts, and whether progress must be
    a tick past it. AT_ONCE: any row goes as soon as it is there.

    PAST_START: the row has started. PAST_END: it is settled. AT_END: its window has ended. Of a window whose row is a point at
    the window's end the row's start is that end: AT_WINDOW_END, PAST_WINDOW_END.
    """

    PAST_START = (LE, True, "start")
    PAST_END = (RE, True, "end")
    AT_END = (RE, False, "end")
    AT_WINDOW_END = (LE, False, "end")
    PAST_WINDOW_END = (LE, True, "end")
    AT_ONCE = (LE, False, "start")

    @property
    def past(self) -> bool:
        """Whether progress must be past that end, not just at it."""
        return self.value[1]

    @property
    def by_start(self) -> bool:
        """Whether rows go by where they start, not by where they (or their windows) end."""
        return self.value[2] == "start"

    def lets_go(self, rows: pa.Table, progress: int) -> Mask:
        """Which rows go at this CTI, or at this watermark; at the end of the input all do."""
        if progress == INFINITY or self is Release.AT_ONCE:
            return np.ones(rows.num_rows, bool)
        at = ints(rows, self.value[0])
        return at < progress if self.past else at <= progress

    def dues(self, rows: pa.Table) -> Ints:
        """The least progress that lets each of these rows go; INFINITY: the end of the input."""
        return saturating(ints(rows, self.value[0]), int(self.past))

    def due(self, rows: pa.Table) -> int | None:
        """The least progress that lets one of these rows go; INFINITY: the end of the input; None: there is no row."""
        return int(self.dues(rows).min()) if rows.num_rows else None
