"""Answers as a user gets them, as Arrow tables, and their instants in ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from streamq.errors import SourceError, sentence

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    History: TypeAlias = pa.Table | pd.DataFrame
    """``start`` and ``end`` (int64 ticks; infinity is the largest int64) and the payload columns; a bag of rows."""


def answer_table(rows: Any, verb: str) -> pa.Table:
    """The Arrow table of an answer, whatever kind of table it is; raises SourceError, in the name of ``verb``, for none."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pd.DataFrame):
        return pa.Table.from_pandas(rows, preserve_index=False)
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    hint = "Rows are folded by t.fold_physical(rows), and written down by t.table(columns, rows)."
    ways = ("to_arrow", "toArrow")
    if any(way in dir(rows) for way in ways):
        hint = f"Give its answer, by .{next(way for way in ways if way in dir(rows))}()."
    raise SourceError(sentence(verb, "takes an Arrow table or a pandas frame", f"found {type(rows).__name__}", hint))


def ticks_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of instants in ticks: microseconds, where they are timestamps."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column.cast(pa.int64())


__all__ = ["answer_table", "ticks_of"]
