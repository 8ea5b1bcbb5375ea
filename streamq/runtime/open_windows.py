"""Open windows: those not final because a member's end is read and may still move, by key; and the spans of bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.grid import Grid
from streamq.plan.partial import COUNT
from streamq.runtime.columnar import codes, concat, group, ints
from streamq.runtime.event import RE
from streamq.runtime.values import Ints, Mask
from streamq.time import INFINITY, MINUS_INFINITY

LO, HI = "__lo", "__hi"
"""The first and the last window of a partial result."""

LAST_END = "__last_end"
"""The column of the greatest end of a window's members, if ends are read that may still move."""


def waits_for_members(rows: pa.Table, c: int) -> Mask:
    """Mark the rows of windows with a member that is not settled at CTI ``c``; none of rows without LAST_END."""
    if LAST_END not in rows.column_names or c == INFINITY:
        return np.zeros(rows.num_rows, bool)
    return ints(rows, LAST_END) >= c


class OpenWindows:
    """The first open window of each key with an unsettled member; later windows of that key are open, too."""

    def __init__(self, first: pa.Table, keys: Sequence[str]):
        self.first, self.keys = first, list(keys)

    @staticmethod
    def find(partials: pa.Table, keys: Sequence[str], c: int) -> OpenWindows | None:
        """Return the open windows at CTI c; None if there is none."""
        if c == INFINITY:
            return None
        is_unsettled = pc.and_(pc.greater_equal(partials.column(RE), c), pc.greater(partials.column(COUNT), 0))
        unsettled = partials.filter(is_unsettled)
        return OpenWindows(group(unsettled, keys, {LO: (LO, "min")}), keys) if unsettled.num_rows else None


def least_open(windows: OpenWindows | None, otherwise: int) -> int:
    """Return the first window of any key that is not final, at most ``otherwise``."""
    return otherwise if windows is None else min(otherwise, pc.min(windows.first.column(LO)).as_py())


def first_open(rows: pa.Table, windows: OpenWindows | None, otherwise: int) -> Ints:
    """Return, for each row, the first window of its key that is not final, at most ``otherwise``."""
    first = np.full(rows.num_rows, otherwise, np.int64)
    if windows is None:
        return first
    opened, keys = windows.first, windows.keys
    if not keys:
        return np.minimum(first, ints(opened, LO))
    number, _ = codes(concat([opened.select(keys).cast(rows.select(keys).schema), rows.select(keys)]), keys)
    of_key = np.full(int(number.max(initial=0)) + 1, otherwise, np.int64)
    of_key[number[: opened.num_rows]] = ints(opened, LO)
    return np.minimum(first, of_key[number[opened.num_rows :]])


class BinSpans:
    """The windows that each bin of partial results spans, kept in ``values`` (JSON-like, in the state store).

    Ranges that share a bin overlap, so every window within a span has members.
    """

    def __init__(self, values: dict[str, Any]):
        self.state: dict[str, dict[str, int]] = values.setdefault("spans", {})

    def add(self, bin: str, low: Ints, high: Ints) -> None:
        """Widen a bin's span to ranges of windows."""
        span = self.state.get(bin, {"first": INFINITY, "last": MINUS_INFINITY})
        self.state[bin] = {"first": min(span["first"], int(low.min())), "last": max(span["last"], int(high.max()))}

    def of(self, bin: str) -> tuple[int, int]:
        """Return the first and the last window of a bin's span."""
        span = self.state[bin]
        return span["first"], span["last"]

    def all(self) -> list[tuple[int, int]]:
        """Return the first and the last window of each bin's span."""
        return [self.of(bin) for bin in self.state]

    def forget(self, bin: str) -> None:
        """Remove a bin's span."""
        del self.state[bin]

    def due(self, window: Grid, first: int) -> int | None:
        """Return the end of the next window, from ``first`` on, that had members; all of them may have been retracted.

        None if there is no such window.
        """
        ends = (window.end(max(span["first"], first)) for span in self.state.values() if span["last"] >= first)
        return min(ends, default=None)
