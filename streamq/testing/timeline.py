"""Timelines in plain text: instants, lifetimes, and a whole history drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streamq.keywords import check_keywords
from streamq.sources.intervals import intervals
from streamq.sources.physical import physical
from streamq.testing.history import answer_table, is_physical
from streamq.time import INFINITY, INTEGER, show_ticks

if TYPE_CHECKING:
    import datetime as dt

    from streamq.pictures.picture_page import Picture


def shown(t: int, axis: str) -> str:
    """Return an instant as text, without a fraction of a second that is zero."""
    return show_ticks(t, axis).replace(".000000Z", "Z")


def interval(start: int, end: int, axis: str) -> str:
    """Return a lifetime as text: ``[1, 5)``."""
    return f"[{shown(start, axis)}, {shown(end, axis)})"


class Axis:
    """A section of the time axis that contains all rows ``(start, end, ...)``, drawn at most WIDTH characters wide.

    >>> axis = Axis([(1, 5), (3, INFINITY)])
    >>> print(axis.draw(1, 5), axis.label(1, 5))
    |---)  [1, 5)
    >>> print(axis.draw(3, INFINITY), axis.label(3, INFINITY))
      |-->  [3, inf)
    """

    WIDTH = 48

    def __init__(self, rows: Sequence[Sequence[Any]], axis: str = INTEGER):
        """Begin at the first instant but INFINITY, else at 0, and end after the last; ``axis`` is the time axis of labels."""
        ends = sorted({t for row in rows for t in row[:2] if t != INFINITY}) or [0]
        self.low, self.high = ends[0], ends[-1] + 1
        self.axis = axis
        self.wide = max(len(self._label(*row[:2])) for row in rows) if rows else 0

    def _place(self, t: int) -> int:
        """Return the column of an instant; INFINITY, at which a wrong answer may begin, is at the end."""
        if t == INFINITY:
            return self._last()
        span = self.high - self.low
        return t - self.low if span <= self.WIDTH else (t - self.low) * self.WIDTH // span

    def _last(self) -> int:
        return min(self.WIDTH, self.high - self.low)

    def draw(self, start: int, end: int) -> str:
        """Return a lifetime as a bar: ``  |---)``, or ``  |-->`` if it never ends."""
        a, b = self._place(start), self._place(end)
        body = "|" + "-" * max(0, b - a - 1)
        return (" " * a + body + (">" if end == INFINITY else ")")).ljust(self._last() + 2)

    def mark(self, t: int) -> str:
        """Return an instant as a mark: ``   !``."""
        return (" " * self._place(t) + "!").ljust(self._last() + 2)

    def _label(self, start: int, end: int) -> str:
        return interval(start, end, self.axis)

    def label(self, start: int, end: int) -> str:
        """Return a lifetime as ``[1, 5)``, padded to the widest label."""
        return self._label(start, end).ljust(self.wide)


@check_keywords
def plot(
    rows: Any,
    *,
    key: str | Sequence[str] | None = None,
    between: tuple[int | dt.datetime, int | dt.datetime] | None = None,
    title: str = "rows",
) -> Picture:
    """Return a picture of an answer, a history, or the rows of a physical stream, as :meth:`Stream.plot` draws its inputs.

    ``rows``: an Arrow table or a pandas frame with ``start`` and ``end``; those of a changelog also have ``kind`` and
    ``new_end``, and what they take back is drawn with what replaced it. ``key`` and ``between`` as in :meth:`Stream.plot`.
    Raises SourceError for other objects, UnknownColumn for rows without lifetimes, InvalidEvent for rows that are no events.

    >>> from streamq import testing as t
    >>> rows = [("insert", 1, 9, None, 3), ("retract", 1, 9, 4, 3)]
    >>> t.plot(t.table("kind string, start bigint, end bigint, new_end bigint, v int", rows), title="readings")
    readings
      readings: 2 events, from 1 to 9. 1 taken back, 1 of them replaced.
      The axis goes from 1 to 9.
    """
    table = answer_table(rows, "plot")
    if is_physical(table):
        stream = physical(table, kind="kind", start="start", end="end", new_end="new_end", name=title)
    else:
        stream = intervals(table, start="start", end="end", name=title)
    return stream.plot(key=key, between=between)
