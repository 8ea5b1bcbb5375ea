"""Convert answers, as users get them, to Arrow tables, and their instants to ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from streamq.errors import SourceError, sentence

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    History: TypeAlias = pa.Table | pd.DataFrame
    """``start`` and ``end`` (int64 ticks; infinity is the largest int64) and the payload columns; a bag of rows."""


def answer_table(rows: Any, verb: str) -> pa.Table:
    """Return an answer as an Arrow table: one itself, a pandas frame without its index, or what offers an Arrow stream.

    Raises SourceError, worded for ``verb``, for any other object; for a query the error tells how to get its answer.
    """
    import pandas as pd
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pd.DataFrame):
        return pa.Table.from_pandas(rows, preserve_index=False)
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    hint = "Fold physical rows with t.fold_physical(rows), or write a table with t.table(columns, rows)."
    ways = ("to_arrow", "toArrow")
    if any(way in dir(rows) for way in ways):
        hint = f"Pass its answer: .{next(way for way in ways if way in dir(rows))}()."
    raise SourceError(sentence(verb, "takes an Arrow table or a pandas frame", f"found {type(rows).__name__}", hint))


def ticks_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert a column of timestamps or integers to ticks; timestamps become microseconds, cut off, and NULL stays NULL.

    Any other type raises an error of Arrow or is read as numbers.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column.cast(pa.int64())


__all__ = ["answer_table", "ticks_of"]
