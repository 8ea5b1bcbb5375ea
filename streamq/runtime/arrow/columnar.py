"""Operations on Arrow tables: encoding, grouping, expanding ranges. They use no Spark and keep no state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.errors import StreamqError
from streamq.runtime.arrow.values import Ints, Mask, bytes_tell, combine_numbers, number_values

NUMBER = "__number"
"""The name of a column of group numbers."""

WIDE = pa.decimal128(38, 0)
"""A type that holds any sum of integers."""


def encode(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    return _written(table).to_pybytes()


def decode(body: bytes) -> pa.Table:
    """Return the table in an Arrow IPC stream."""
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.read_all()


def _written(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue()


def encode_small(table: pa.Table) -> bytes:
    """Return a table in a compact form for state: its length as 8 bytes, then an Arrow IPC stream under zstd.

    Columns of 8-byte values are stored byte plane by byte plane (Parquet's BYTE_STREAM_SPLIT): equal high bytes are adjacent,
    which halves partial results of amounts.
    """
    body = _written(_planes(table, (-1, 8)))
    return body.size.to_bytes(8, "little") + pa.compress(body, codec="zstd", asbytes=True)


def decode_small(body: bytes) -> pa.Table:
    """Return the table encoded by :func:`encode_small`."""
    return _planes(_decompressed(body), (8, -1))


def decode_rows(body: bytes, by: str, choose: Callable[[pa.Array], Mask]) -> pa.Table:
    """Return some rows of a table encoded by :func:`encode_small`, without decoding the others.

    ``choose`` marks them by the column ``by``, whose values have fewer than 8 bytes.
    """
    stored = _decompressed(body)
    rows = np.flatnonzero(choose(stored.column(by)))
    if not len(rows):
        return stored.slice(0, 0)
    at = pa.array(rows)
    columns = []
    for column in stored.columns:
        array = column.combine_chunks()
        if _is_in_planes(array):
            planes = _bytes_of(array).reshape(8, -1)
            chosen = pa.py_buffer(np.ascontiguousarray(planes[:, rows].T))
            columns.append(pa.Array.from_buffers(array.type, len(rows), [None, chosen]))
        else:
            columns.append(array.take(at))
    return pa.table(columns, schema=stored.schema)


def _decompressed(body: bytes) -> pa.Table:
    """Return the table in a body of :func:`encode_small`, its columns of 8-byte values still in planes."""
    whole = pa.decompress(pa.py_buffer(body)[8:], int.from_bytes(body[:8], "little"), codec="zstd")
    with pa.ipc.open_stream(whole) as reader:
        return reader.read_all()


def _is_in_planes(array: pa.Array) -> bool:
    """Return True if a column is stored byte plane by byte plane: its values have 8 bytes, and none is NULL."""
    kind = array.type
    return bool(pa.types.is_primitive(kind) and kind.bit_width == 64 and not array.null_count and len(array))


def _bytes_of(array: pa.Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    at = array.offset * 8
    return np.frombuffer(array.buffers()[1], np.uint8)[at : at + len(array) * 8]


def _planes(table: pa.Table, shape: tuple[int, int]) -> pa.Table:
    """Return a table with the bytes of its 8-byte columns transposed; ``shape`` is (-1, 8) to split, (8, -1) to join.

    Columns with NULLs are unchanged.
    """
    columns = []
    for column in table.columns:
        array = column.combine_chunks()
        if _is_in_planes(array):
            turned = np.ascontiguousarray(_bytes_of(array).reshape(shape).T)
            array = pa.Array.from_buffers(array.type, len(array), [None, pa.py_buffer(turned)])
        columns.append(array)
    return pa.table(columns, schema=table.schema)


def ints(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return an int64 column without NULLs as numpy."""
    return table.column(name).to_numpy().astype(np.int64, copy=False)


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    """Return the table with a column added or replaced."""
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    at = table.schema.get_field_index(name)
    return table.append_column(name, column) if at < 0 else table.set_column(at, name, column)


def with_columns(table: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """Return the table with columns added or replaced."""
    for name, values in columns.items():
        table = with_column(table, name, values)
    return table


def group(table: pa.Table, by: Sequence[str], aggregates: Mapping[str, tuple[str, str]]) -> pa.Table:
    """Return one row per group of equal ``by`` columns (NULL and NaN equal themselves): ``name -> (column, function)``.

    Functions: sum (NULL over no values), min, max, count (of non-NULLs). A sum of integers or decimals is exact: it has the
    type of its values, or a wider decimal if that does not hold it; :func:`narrow_sums` raises the user's error then.
    """
    options = {
        "sum": pc.ScalarAggregateOptions(min_count=1),
        "min": None,
        "max": None,
        "count": pc.CountOptions(mode="only_valid"),
    }
    wide: dict[str, pa.DataType] = {}
    for name, (column, function) in aggregates.items():
        kind = table.schema.field(column).type
        if function == "sum" and pa.types.is_integer(kind) and _may_overflow(table, column):
            wide[name] = kind
            table = with_column(table, column, table.column(column).cast(WIDE))
        elif function == "sum" and pa.types.is_decimal(kind):
            wide[name] = kind
            # Arrow's sums overflow 38 digits silently
            if kind.precision + len(str(table.num_rows)) > 38:
                table = with_column(table, column, table.column(column).cast(pa.decimal256(76, kind.scale)))
    values = {f"v{i}": column for i, (column, _) in enumerate(aggregates.values())}
    pairs = [(f"v{i}", function, options[function]) for i, (_, function) in enumerate(aggregates.values())]
    if all(bytes_tell(table.column(name)) for name in by):
        keys = {f"k{i}": table.column(name) for i, name in enumerate(by)}
        grouped = _grouped(table, keys, values, pairs)
        columns = {name: grouped.column(key) for name, key in zip(by, keys, strict=True)}
    else:
        number, first = codes(table, by)
        grouped = _grouped(table, {NUMBER: pa.array(number)}, values, pairs)
        columns = {name: table.column(name).take(pa.array(first[ints(grouped, NUMBER)])) for name in by}
    for value, (name, (_, function)) in zip(values, aggregates.items(), strict=True):
        merged = grouped.column(f"{value}_{function}")
        columns[name] = _narrow_if_all_fit(merged, wide[name]) if name in wide else merged
    return pa.table(columns)


def _grouped(table: pa.Table, keys: Mapping[str, Any], values: Mapping[str, str], pairs: Sequence[Any]) -> pa.Table:
    """Return Arrow's groups of ``keys``, columns by name; ``values`` are names of the table's columns, by those in ``pairs``.

    Arrow reads a name that begins with a dot as a path, so it sees names of our own only.
    """
    columns = {**keys, **{own: table.column(name) for own, name in values.items()}}
    return pa.table(columns).group_by(list(keys), use_threads=False).aggregate(pairs)


def sort(table: pa.Table, by: Sequence[str]) -> pa.Table:
    """Return the rows in ascending order of the columns ``by``, whatever their names; NULLs last."""
    keys = pa.table({f"k{i}": table.column(name) for i, name in enumerate(by)})
    return table.take(pc.sort_indices(keys, sort_keys=[(key, "ascending") for key in keys.column_names]))


def _may_overflow(table: pa.Table, column: str) -> bool:
    """Return True if the sum of an integer column may exceed int64."""
    bounds = pc.min_max(table.column(column)).as_py()
    greatest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    return bool(greatest * max(1, table.num_rows) >= 2**63)


def _narrow_if_all_fit(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the values in the type if all fit, else unchanged."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        return values


def narrow_sums(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return exact sums in the type that a user sees; raise StreamqError if it does not hold one of them."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid as error:
        raise StreamqError(
            "sum",
            f"overflow of {kind}",
            str(error).splitlines()[0],
            "Cast the column to a wider type, such as decimal(38,0).",
        ) from error


def negate(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return integers or decimals negated; wider ones if the least integer is among them, because it has no opposite."""
    if pa.types.is_integer(values.type):
        least = pc.min(values).as_py()
        if least is not None and least == -(2 ** (values.type.bit_width - 1)):
            values = values.cast(WIDE)
    return pc.negate(values)


def codes(table: pa.Table, by: Sequence[str]) -> tuple[Ints, Ints]:
    """Return a dense group number per row, and the first row of each group; equal ``by`` columns share a number.

    Without columns all rows are one group.
    """
    if not by:
        return np.zeros(table.num_rows, np.int64), np.zeros(min(1, table.num_rows), np.int64)
    heads = _run_heads([table.column(name) for name in by])
    if 0 < 2 * len(heads) < table.num_rows:
        number, first = codes(table.select(list(by)).take(pa.array(heads)), by)
        return np.repeat(number, np.diff(np.append(heads, table.num_rows))), heads[first]
    number, bound = combine_numbers([number_values(table.column(name)) for name in by])
    if bound > len(number) or not np.bincount(number, minlength=bound).all():
        number, bound = number_values(pa.array(number))
    return number, first_places(number)


def first_places(number: Ints) -> Ints:
    """Return the place at which each number, from 0 on, first occurs; some place for one that does not."""
    first = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
    # assigned in reverse, so that the first one stays
    first[number[::-1]] = np.arange(len(number))[::-1]
    return first


def _run_heads(columns: Sequence[pa.ChunkedArray]) -> Ints:
    """Return the rows at which runs of equal values begin, if all columns are integers without NULLs; else no rows."""
    if any(column.null_count or not pa.types.is_integer(column.type) for column in columns):
        return np.zeros(0, np.int64)
    is_head = np.ones(len(columns[0]), bool)
    is_head[1:] = False
    for column in columns:
        values = column.to_numpy()
        is_head[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(is_head)


def is_matching(table: pa.Table, wanted: pa.Table, by: Sequence[str]) -> Mask:
    """Mark the rows that agree with some row of ``wanted`` in the columns ``by``; NULL agrees with NULL."""
    both = concat([table.select(by), wanted.select(by).cast(table.select(by).schema)])
    number, _ = codes(both, by)
    return np.isin(number[: table.num_rows], number[table.num_rows :])


def expand_ranges(
    low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Expand ranges ``low..high`` (empty if low > high): return, for each member, the number of its range and its value."""
    length = np.maximum(high - low + 1, 0)
    which = np.repeat(np.arange(len(low)), length)
    before = np.cumsum(length) - length
    return which, np.arange(len(which)) - np.repeat(before - low, length)


def split_by(table: pa.Table, values: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[tuple[int, pa.Table]]:
    """Yield each value of ``values`` (one per row), in ascending order, with its rows; nothing for an empty table."""
    if table.num_rows == 0:
        return
    if (values[0] == values).all():
        yield int(values[0]), table
        return
    order = np.argsort(values, kind="stable")
    values, rest = values[order], table.take(pa.array(order))
    starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
    ends = np.append(starts[1:], len(values))
    for a, b in zip(starts, ends, strict=True):
        yield int(values[a]), rest.slice(a, b - a)


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of tables, at least one, with the same columns, in the order of columns of the first table.

    Sums that are decimals of different width are cast to the widest. Types of a table without rows, which may be in another time
    zone, do not count if another has some.
    """
    if len(tables) == 1:
        return tables[0]
    names = tables[0].column_names
    tables = [t.select(names) for t in tables if t.num_rows] or [tables[0]]
    if any(not t.schema.equals(tables[0].schema) for t in tables):
        tables = _widened(tables)
    return pa.concat_tables(tables)


def _widened(tables: Sequence[pa.Table]) -> Sequence[pa.Table]:
    """Return tables of which a column that holds decimals of several types has the widest of these."""
    for i, name in enumerate(tables[0].column_names):
        kinds = {t.schema.field(i).type for t in tables}
        decimals = [kind for kind in kinds if pa.types.is_decimal(kind)]
        if len(kinds) > 1 and decimals:
            widest = max(decimals, key=lambda kind: kind.precision)
            tables = [with_column(t, name, t.column(i).cast(widest)) for t in tables]
    return tables
