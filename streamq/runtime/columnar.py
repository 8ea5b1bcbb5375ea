"""Columnar work on Arrow tables: encoding, grouping, taking ranges apart. No Spark, no state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.errors import StreamqError, sentence
from streamq.runtime.event import WEIGHT


def encode(table: pa.Table) -> bytes:
    """An Arrow IPC stream of a table."""
    return _written(table).to_pybytes()


def decode(body: bytes) -> pa.Table:
    """The table of an Arrow IPC stream."""
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.read_all()


def _written(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue()


def encode_small(table: pa.Table) -> bytes:
    """A table for keeping: its length as 8 bytes, then an Arrow IPC stream under zstd.

    Columns of 8-byte values go byte plane by byte plane (Parquet calls it BYTE_STREAM_SPLIT): equal high bytes lie side by
    side, which halves partial results of amounts.
    """
    body = _written(_planes(table, (-1, 8)))
    return body.size.to_bytes(8, "little") + pa.compress(body, codec="zstd", asbytes=True)


def decode_small(body: bytes) -> pa.Table:
    """The table of :func:`encode_small`."""
    whole = pa.decompress(pa.py_buffer(body)[8:], int.from_bytes(body[:8], "little"), codec="zstd")
    with pa.ipc.open_stream(whole) as reader:
        return _planes(reader.read_all(), (8, -1))


def _planes(table: pa.Table, shape: tuple[int, int]) -> pa.Table:
    columns = []
    for column in table.columns:
        array = column.combine_chunks()
        kind = array.type
        if (pa.types.is_primitive(kind) and kind.bit_width == 64) and not array.null_count and len(array):
            at = array.offset * 8
            values = np.frombuffer(array.buffers()[1], np.uint8)[at : at + len(array) * 8]
            turned = np.ascontiguousarray(values.reshape(shape).T)
            array = pa.Array.from_buffers(kind, len(array), [None, pa.py_buffer(turned)])
        columns.append(array)
    return pa.table(columns, schema=table.schema)


def ints(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """An int64 column without NULLs, as numpy."""
    return table.column(name).to_numpy().astype(np.int64, copy=False)


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with a column added or replaced."""
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    at = table.schema.get_field_index(name)
    return table.append_column(name, column) if at < 0 else table.set_column(at, name, column)


def group(table: pa.Table, by: Sequence[str], made: Mapping[str, tuple[str, str]]) -> pa.Table:
    """One row a group of equal ``by`` columns (NULL and NaN equal themselves): ``name -> (column, function)``.

    Functions: sum (NULL over no values; an integer that overflows is an error), min, max, count (of non-NULLs).
    """
    options = {
        "sum": pc.ScalarAggregateOptions(min_count=1),
        "min": None,
        "max": None,
        "count": pc.CountOptions(mode="only_valid"),
    }
    wide: dict[str, pa.DataType] = {}
    for name, (column, function) in made.items():
        kind = table.schema.field(column).type
        if function == "sum" and pa.types.is_integer(kind) and _may_overflow(table, column):
            wide[name] = kind
            table = with_column(table, column, table.column(column).cast(pa.decimal128(19, 0)))
        elif function == "sum" and pa.types.is_decimal(kind):
            wide[name] = kind
            # Arrow adds up to 38 digits, and beyond in silence
            if kind.precision + len(str(table.num_rows)) > 38:
                table = with_column(table, column, table.column(column).cast(pa.decimal256(76, kind.scale)))
    pairs = [
        (column, function, options[function]) if options[function] is not None else (column, function)
        for column, function in made.values()
    ]
    found = table.group_by(list(by), use_threads=False).aggregate(pairs)
    columns = {name: found.column(name) for name in by}
    for name, (column, function) in made.items():
        values = found.column(f"{column}_{function}")
        columns[name] = _narrow(values, wide[name]) if name in wide else values
    return pa.table(columns)


def _may_overflow(table: pa.Table, column: str) -> bool:
    bounds = pc.min_max(table.column(column)).as_py()
    greatest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    return bool(greatest * max(1, table.num_rows) >= 2**63)


def _narrow(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    try:
        return values.cast(kind)
    except pa.ArrowInvalid as error:
        raise StreamqError(
            sentence(
                "sum",
                f"overflow of {kind}",
                str(error).splitlines()[0],
                "Cast the column to a wider type, such as decimal(38,0).",
            )
        ) from error


def codes(table: pa.Table, by: Sequence[str]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A dense group number a row, and one row a group: equal ``by`` columns share a number."""
    found = np.zeros(table.num_rows, dtype=np.int64)
    for name in by:
        part = table.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        index = part.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, found = np.unique(found * max(1, len(part.dictionary)) + index, return_inverse=True)
    _, first, found = np.unique(found, return_index=True, return_inverse=True)
    return found, first


def sortable(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Floats as int64 in Spark's order: -inf < ... < inf < NaN; NULLs stay."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    array = array.cast(pa.float64())
    missing = array.is_null().to_numpy(zero_copy_only=False)
    floats = array.fill_null(0.0).to_numpy(zero_copy_only=False).copy()
    floats[np.isnan(floats)] = np.nan
    bits = floats.view(np.int64)
    return pa.array(np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits), mask=missing)


def unsortable(values: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.Array:
    """The floats behind :func:`sortable`."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    missing = array.is_null().to_numpy(zero_copy_only=False)
    bits = array.fill_null(0).to_numpy(zero_copy_only=False)
    floats = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits).view(np.float64)
    return pa.array(floats, mask=missing).cast(kind)


def runs(low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Ranges ``low..high`` (empty if low > high) taken apart: for each member the number of its range, and its value."""
    length = np.maximum(high - low + 1, 0)
    which = np.repeat(np.arange(len(low)), length)
    before = np.cumsum(length) - length
    return which, np.arange(len(which)) - np.repeat(before - low, length)


def split_by(table: pa.Table, values: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each value of ``values`` (one a row), in ascending order."""
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


def net(table: pa.Table) -> pa.Table:
    """Deltas summed up; those that cancel out are gone."""
    names = [n for n in table.column_names if n != WEIGHT]
    plain = [n for n in names if not pa.types.is_nested(table.schema.field(n).type)]
    if len(plain) == len(names):
        merged = group(table, names, {WEIGHT: (WEIGHT, "sum")})
        return merged.filter(pc.not_equal(merged.column(WEIGHT), 0)).select(table.column_names)
    # Arrow groups by no nested column: by what it says of itself
    shown = {
        f"__text{i}": pa.array([repr(v) for v in table.column(n).to_pylist()])
        for i, n in enumerate(names)
        if n not in plain
    }
    wide = table
    for name, column in shown.items():
        wide = wide.append_column(name, column)
    wide = wide.append_column("__at", pa.array(np.arange(table.num_rows)))
    merged = group(wide, [*plain, *shown], {WEIGHT: (WEIGHT, "sum"), "__at": ("__at", "min")})
    merged = merged.filter(pc.not_equal(merged.column(WEIGHT), 0))
    return with_column(table.take(merged.column("__at")), WEIGHT, merged.column(WEIGHT))


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of tables of the same columns, in the order of the first."""
    return tables[0] if len(tables) == 1 else pa.concat_tables([t.select(tables[0].column_names) for t in tables])


def unit_weights(table: pa.Table) -> pa.Table:
    """The same deltas with weights +1 and -1 only."""
    if WEIGHT not in table.column_names:
        return table
    weight = ints(table, WEIGHT)
    if (np.abs(weight) == 1).all():
        return table
    table = table.take(pa.array(np.repeat(np.arange(len(weight)), np.abs(weight))))
    return with_column(table, WEIGHT, np.sign(ints(table, WEIGHT)))
