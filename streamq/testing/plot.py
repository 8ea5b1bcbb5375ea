"""Draw a history, an answer or a recorded physical stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streamq.keywords import check_keywords
from streamq.sources.intervals import intervals
from streamq.sources.physical import physical
from streamq.testing.answers import answer_table
from streamq.testing.physical_stream import is_physical

if TYPE_CHECKING:
    import datetime as dt

    from streamq.pictures.picture_page import Picture


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


__all__ = ["plot"]
