"""Convert answers to the forms that users read: ordered Arrow tables, pandas frames, and text."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from streamq import html
from streamq.html import shortened_value, with_escapes
from streamq.plan.schema import Schema
from streamq.time import INFINITY, TIMESTAMP

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def in_user_form(deltas: pa.Table, schema: Schema) -> pa.Table:
    """Return deltas in ticks as the rows that users read: ordered, with instants of the axis, and NULL for an infinite end.

    Weights are left out, so all rows must be inserts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    axis = pa.timestamp("us", tz="UTC") if schema.axis == TIMESTAMP else pa.int64()
    end = pc.if_else(pc.equal(deltas.column("__re"), INFINITY), None, deltas.column("__re"))
    columns = {n: deltas.column(n) for n in schema.names}
    return order_rows(pa.table({**columns, "start": deltas.column("__le").cast(axis), "end": end.cast(axis)}), schema)


def order_rows(table: pa.Table, schema: Schema) -> pa.Table:
    """Return the rows in order of start, end, then payload, arrays, structs and maps included; NULL is last."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from streamq.runtime.arrow.values import ORDER, number_values

    def key(name: str) -> pa.Array | pa.ChunkedArray:
        """Return the column to order by; values of a nested type are numbered in their order, and NULL stays."""
        column = table.column(name)
        if not pa.types.is_nested(column.type):
            return column
        return pa.array(number_values(column, ORDER)[0], mask=column.is_null().to_numpy())

    if not table.num_rows:
        return table
    keys = {str(i): key(name) for i, name in enumerate(("start", "end", *schema.names))}
    return table.take(pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]))


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return an Arrow table as a pandas frame; integers and booleans with NULLs get nullable types, arrays are lists.

    Structs are dicts, and maps lists of pairs.
    """
    import pandas as pd
    import pyarrow as pa

    from streamq.runtime.arrow.rendering import python_values

    nullable = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    frame = table.to_pandas(date_as_object=False)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_nested(column.type):
            # Arrow would convert a list of integers with a NULL to an array of floats
            frame[name] = pd.Series(python_values(column), dtype=object, index=frame.index)
        elif column.null_count and column.type in nullable:
            frame[name] = pd.Series(column.to_pylist(), dtype=nullable[column.type], index=frame.index)
    return frame


def as_text(table: pa.Table, n: int) -> str:
    """Return the first ``n`` rows as text, columns aligned to the right; a NULL, as of an end, is ``NULL``.

    The first line has the names; a last line counts the rows that are left out.
    Instants and dates outside the years 1 to 9999 have a sign: ``+10000-01-01``.
    """
    names = [with_escapes(name) for name in table.column_names]
    rows = [[_cell(value) for value in row] for row in _first_rows(table, n)]
    widths = [max([len(name), *(len(r[i]) for r in rows)]) for i, name in enumerate(names)]
    lines = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in [names, *rows]]
    return "\n".join([*lines, *_left_out(table, n)])


def as_html(table: pa.Table, n: int) -> str:
    """Return the first ``n`` rows as an HTML table, with the values of :func:`as_text`, which the table shortens."""
    rows = [[v if isinstance(v, int | float | Decimal) else _in_html(v) for v in row] for row in _first_rows(table, n)]
    names = [with_escapes(name) for name in table.column_names]
    return html.fragment(html.tabulated(names, rows, most=n), *_left_out(table, n))


def _first_rows(table: pa.Table, n: int) -> list[list[Any]]:
    """Return the values of the first ``n`` rows."""
    import pyarrow as pa

    from streamq.runtime.arrow.rendering import python_rows

    # drop the time zone, so that instants are written in UTC without it
    first = [c.cast(pa.timestamp("us")) if pa.types.is_timestamp(c.type) else c for c in table.slice(0, n).columns]
    return [list(row.values()) for row in python_rows(pa.table(first, names=table.column_names))]


def _left_out(table: pa.Table, n: int) -> list[str]:
    """Return a line that counts the rows after the first ``n``, if there are any."""
    return [f"... {table.num_rows - n} more rows"] if table.num_rows > n else []


def _cell(value: Any) -> str:
    """Return a value as the text of a table's cell: what ``_whole`` returns, or of a long text the beginning, and its length."""
    return shortened_value(_whole(value))


def _in_html(value: Any) -> str:
    """Return a value as the text of a cell in HTML, which cuts a long one, and counts its characters."""
    text = _whole(value)
    return text if len(text) > html.LONGEST else with_escapes(text)


def _whole(value: Any) -> str:
    """Return a value as text: NULL for None, an instant without its zone and its fraction without zeros."""
    if value is None:
        return "NULL"
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
        return text.rstrip("0") if "." in text else text
    return str(value)
