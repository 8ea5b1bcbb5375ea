"""The progress that lets a row go: once it has reached, or passed, an end of the row's lifetime."""

from __future__ import annotations

from enum import Enum

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import ints
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.event import LE, RE
from streamq.runtime.time.tick_arithmetic import saturating
from streamq.time import INFINITY


class Release(Enum):
    """The progress, CTI or watermark, that lets a row go: a lifetime column, and if progress must be a tick past it.

    AT_ONCE: any row goes at once. PAST_START: the row has started. PAST_END: it is settled. AT_END: its window has ended.
    AT_WINDOW_END, PAST_WINDOW_END: the same for rows that are points at their window's end, so that their start is that end.
    """

    PAST_START = (LE, True, "start")
    PAST_END = (RE, True, "end")
    AT_END = (RE, False, "end")
    AT_WINDOW_END = (LE, False, "end")
    PAST_WINDOW_END = (LE, True, "end")
    AT_ONCE = (LE, False, "start")

    @property
    def is_strict(self) -> bool:
        """True if progress must be past the instant, not just at it."""
        return self.value[1]

    @property
    def by_start(self) -> bool:
        """True if rows go by their start, not by their end or their window's end."""
        return self.value[2] == "start"

    def lets_go(self, rows: pa.Table, progress: int) -> Mask:
        """Mark the rows that go at this CTI or watermark; at the end of the input all do."""
        if progress == INFINITY or self is Release.AT_ONCE:
            return np.ones(rows.num_rows, bool)
        at = ints(rows, self.value[0])
        return at < progress if self.is_strict else at <= progress

    def dues(self, rows: pa.Table) -> Ints:
        """Return the least progress that lets each of these rows go; INFINITY: the end of the input."""
        return saturating(ints(rows, self.value[0]), int(self.is_strict))

    def due(self, rows: pa.Table) -> int | None:
        """Return the least progress that lets one of these rows go; INFINITY: the end of the input; None: there is no row."""
        return int(self.dues(rows).min()) if rows.num_rows else None
