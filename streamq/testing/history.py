"""Convert any answer to a canonical history: lifetimes in ticks, and payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamq.errors import InvalidEvent, sentence
from streamq.keywords import check_keywords
from streamq.testing.answers import answer_table, ticks_of
from streamq.testing.physical_stream import fold_physical, is_physical
from streamq.time import INFINITY

if TYPE_CHECKING:
    import pyarrow as pa

    from streamq.testing.answers import History


@check_keywords
def history(table: History) -> pa.Table:
    """Return the canonical history of a table, or of an answer as a user gets it.

    ``start`` and ``end`` become int64 ticks and come first; an end of NULL becomes infinity. The rows of a physical stream,
    which have ``kind`` and ``new_end``, are folded: see :func:`fold_physical`. Raises SourceError for an object that is not a
    table, and InvalidEvent for a table without lifetimes, for a start of NULL, and for rows that cannot be folded.

    >>> from streamq import testing as t
    >>> changes = t.table("kind string, start int, end int, new_end int, v int", [("insert", 1, 9, None, 3)])
    >>> t.history(changes).to_pylist()
    [{'start': 1, 'end': 9, 'v': 3}]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    answer = answer_table(table, "history")
    if is_physical(answer):
        answer = fold_physical(answer)
    for name in ("start", "end"):
        if name not in answer.column_names:
            there = ", ".join(answer.column_names)
            raise InvalidEvent(sentence("history", f"no column {name!r}", f"there are: {there}"))
    rest = [name for name in answer.column_names if name not in ("start", "end")]
    start, end = ticks_of(answer["start"]), pc.fill_null(ticks_of(answer["end"]), INFINITY)
    if start.null_count:
        raise InvalidEvent(
            sentence("history", "a start of NULL", f"found {start.null_count} of {answer.num_rows} rows")
        )
    return pa.table([start, end, *(answer[name] for name in rest)], names=["start", "end", *rest])


__all__ = ["history"]
