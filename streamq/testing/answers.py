"""Convert answers, as users get them, to Arrow tables, and their instants to ticks; put those of several queries together."""

from __future__ import annotations

from collections.abc import Sequence
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


RESULT = "result"
"""The column of a table of several histories with the number of a row's result, from 1."""


def side_by_side(histories: Sequence[pa.Table]) -> pa.Table:
    """Return the histories of several results as one table, one history as it is.

    A row has NULL in the columns of other results; the names of columns begin with the result's number.
    """
    import pyarrow as pa

    if len(histories) == 1:
        return histories[0]
    tables = []
    for number, rows in enumerate(histories, start=1):
        names = [name if name in ("start", "end") else f"{number}.{name}" for name in rows.column_names]
        numbers = pa.array([number] * rows.num_rows, pa.int64())
        tables.append(rows.rename_columns(names).append_column(RESULT, numbers))
    return pa.concat_tables(tables, promote_options="default")


def result_of(histories: pa.Table, number: int) -> pa.Table:
    """Return the history of one result from the table that :func:`side_by_side` made of several."""
    import pyarrow.compute as pc

    prefix = f"{number}."
    names = [name for name in histories.column_names if name in ("start", "end") or name.startswith(prefix)]
    rows = histories.filter(pc.equal(histories.column(RESULT), number)).select(names)
    return rows.rename_columns([name.removeprefix(prefix) for name in names])


__all__ = ["answer_table", "result_of", "side_by_side", "ticks_of"]
