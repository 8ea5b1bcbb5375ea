"""Read a recorded physical stream into arrays, from a table, rows, literal items, a DataFrame or a sink's folder."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamq.errors import SourceError, sentence
from streamq.runtime.event import CTI, INSERT, RETRACT
from streamq.sources.literal import Item
from streamq.testing.python_values import comparable, plain_values
from streamq.testing.sink_folder import read_folder
from streamq.time import INFINITY, INTEGER, TIMESTAMP, plain_integer

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = (INSERT, RETRACT, CTI)
"""The kinds of rows of a physical stream."""

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Column = Any
"""An Arrow column, or a list of Python values."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names of the columns, None for a column that does not exist; a plain history has neither kind nor new end."""

    kind: str | None = "kind"
    start: str = "start"
    end: str = "end"
    new_end: str | None = "new_end"
    id: str | None = None
    batch: str | None = None
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecordedStream:
    """The rows of a stream in order of their micro-batches, an array a field; ``at`` is a row's position in the input.

    ``kind`` is an index in KINDS, -1 for any other kind. Times are ticks, a missing end is INFINITY; ``missing`` marks starts
    that are NULL. ``whose`` is a number for each id, or without ids for each payload. ``batch`` counts micro-batches from 0. If
    the rows have no order, ``ordered`` is False and all of them are one micro-batch.
    """

    columns: Mapping[str, Column]
    names: Names
    axis: str
    ordered: bool
    at: Ints
    kind: Ints
    start: Ints
    missing: Bools
    end: Ints
    new_end: Ints
    whose: Ints
    batch: Ints
    key: Ints

    def __len__(self) -> int:
        return len(self.at)

    def row(self, i: int) -> dict[str, Any]:
        """Return the i-th row with its values in the input."""
        at = int(self.at[i])
        return {name: _value(column, at) for name, column in self.columns.items()}

    def kind_of(self, i: int) -> str:
        """Return the kind of the i-th row, one of KINDS."""
        return KINDS[self.kind[i]]

    def batch_of(self, i: int) -> Any:
        """Return the value in the i-th row's column of micro-batches."""
        return _value(self.columns[str(self.names.batch)], int(self.at[i]))

    def payload(self, i: int) -> dict[str, Any]:
        """Return the i-th row without its kind, times and micro-batch."""
        own = own_columns(self.names)
        return {name: value for name, value in self.row(i).items() if name not in own}


NO_ITEM = (
    "a kind that is not insert, retract or cti",
    "a start of NULL or infinity",
    "an end that is not after the start",
    "a new end before the start",
)


def no_items(stream: RecordedStream) -> Ints:
    """Return, for each row, the index in NO_ITEM of the first reason why it is not an item; -1 for items."""
    cti, retract = (stream.kind == KINDS.index(kind) for kind in (CTI, RETRACT))
    why = np.full(len(stream), -1)
    why[retract & (stream.new_end < stream.start)] = 3
    why[~cti & (stream.end <= stream.start)] = 2
    why[stream.missing | (~cti & (stream.start == INFINITY))] = 1
    why[stream.kind < 0] = 0
    return why


def read_stream(rows: Any, names: Names, verb: str) -> RecordedStream:
    """Read a physical stream; raise SourceError for a column that is missing or has values of the wrong type.

    It is raised, too, for timestamps beside integers, for NULLs among micro-batches, and for what is no stream. ``names`` are
    the columns' names as the user gives them; ``verb`` is the function that errors name. Rows with columns neither of
    kinds nor of new ends are inserts; a NULL in a column of kinds is an unknown kind.
    """
    columns, names, ordered = _columns(rows, names, verb)
    count = len(next(iter(columns.values()), ()))
    names = _checked(columns, names, count, verb)
    order = batches = np.arange(count)
    if names.batch is not None:
        ordered = True
        order, batches = _in_batches(columns[names.batch], names.batch, verb)
    elif not ordered:
        batches = np.zeros(count, np.int64)
    kind = np.zeros(count, np.int64) if names.kind is None else _kinds(columns[names.kind], count)
    (start, missing, a), (end, _, b), (new_end, _, c) = (
        _ticks(columns.get(n or "", [None] * count), n or "", verb) for n in (names.start, names.end, names.new_end)
    )
    axes = {axis for axis in (a, b, c) if axis}
    if len(axes) > 1:
        raise SourceError(sentence(verb, "times must all be timestamps or all be integers", "found both"))
    if names.id is None:
        identities = [column for name, column in columns.items() if name not in own_columns(names)]
    else:
        identities = [columns[names.id]]
    return RecordedStream(
        columns=columns,
        names=names,
        axis=next(iter(axes), INTEGER),
        ordered=ordered,
        at=order,
        kind=kind[order],
        start=start[order],
        missing=missing[order],
        end=end[order],
        new_end=new_end[order],
        whose=codes(identities, count)[order],
        batch=batches,
        key=codes([columns[name] for name in names.key], count)[order],
    )


def own_columns(names: Names) -> set[str | None]:
    return {names.kind, names.start, names.end, names.new_end, names.batch}


def _checked(columns: Mapping[str, Column], names: Names, count: int, verb: str) -> Names:
    """Return the names that apply to the columns; those of a plain history if the rows have neither kind nor new end.

    CTIs alone need neither id nor key. ``count`` is the number of rows. Raises SourceError for a needed column that is missing.
    """
    if not columns and not count:
        return Names(kind=None)
    if names.kind is None or (names.kind == Names.kind and not {names.kind, names.new_end} & set(columns)):
        names = replace(names, kind=None, new_end=None)
    there = {int(kind) for kind in _kinds(columns.get(names.kind or "", [None] * count), count)}
    if there == {KINDS.index(CTI)}:
        names = replace(names, id=None, key=())
    roles = {"kind": names.kind, "start": names.start, "end": names.end, "id": names.id, "batch": names.batch}
    wanted = {name: role for role, name in roles.items() if name is not None} | dict.fromkeys(names.key, "key")
    if KINDS.index(RETRACT) in there:
        wanted[str(names.new_end)] = "new_end"
    for name, role in wanted.items():
        if name not in columns:
            instead = f"there are: {', '.join(map(repr, columns))}"
            raise SourceError(sentence(verb, f"no column {name!r}", instead, f"Name it: {role}=..."))
    return names


# inputs


def _columns(rows: Any, names: Names, verb: str) -> tuple[dict[str, Column], Names, bool]:
    """Return the columns, the names (with the column of micro-batches of a sink's folder), and True if the rows have an order.

    Raises SourceError for an object that is not a stream, for a streaming DataFrame, and for a column of mixed types.
    """
    import pandas as pd
    import pyarrow as pa

    if isinstance(rows, str | Path):
        table, batch = read_folder(Path(rows), names.batch is None, verb)
        return _named(table), replace(names, batch=names.batch or batch), False
    if isinstance(rows, pd.DataFrame):
        try:
            return _named(pa.Table.from_pandas(rows, preserve_index=False)), names, True
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SourceError(sentence(verb, "a column mixes types", str(error).splitlines()[0])) from error
    if hasattr(rows, "isStreaming"):
        if rows.isStreaming:
            hint = "Read the folder of its sink."
            raise SourceError(sentence(verb, "a streaming DataFrame", "it has no rows yet", hint))
        return _named(rows.toArrow()), names, False
    if hasattr(rows, "__arrow_c_stream__"):
        return _named(pa.table(rows)), names, True
    if isinstance(rows, Iterable):
        return _listed(rows, verb), names, True
    hint = "Give a pandas or Arrow table, rows as dicts, items of sq.events, a Spark DataFrame or a folder of Parquet."
    raise SourceError(sentence(verb, "not a physical stream", f"found {type(rows).__name__}", hint))


def _named(table: pa.Table) -> dict[str, Column]:
    return {name: table.column(name).combine_chunks() for name in table.column_names}


def _listed(rows: Iterable[Any], verb: str) -> dict[str, Column]:
    """Return rows, each a dict, an item or a tuple, as columns; None where a row lacks a column."""
    items = list(rows)
    # tuples beside items are inserts; tuples alone are a history
    kind = {"kind": INSERT} if any(isinstance(row, Item) for row in items) else {}
    row_dicts = [_as_row(row, kind, verb) for row in items]
    names = list(dict.fromkeys(name for row in row_dicts for name in row))
    return {name: [row.get(name) for row in row_dicts] for name in names}


def _as_row(item: Any, kind: Mapping[str, Any], verb: str) -> Mapping[str, Any]:
    """Return a dict, a literal item or a tuple as a row; ``kind`` is added to tuples. Raises SourceError for others."""
    match item:
        case Mapping():
            return item
        case Item():
            times = {"start": item.start, "end": item.end, "new_end": item.new_end}
            return {"kind": item.kind, **times, **dict(item.payload)}
        case (start, end):
            return {**kind, "start": start, "end": end}
        case (start, end, Mapping() as payload):
            return {**kind, "start": start, "end": end, **payload}
    hint = "Give dicts, or items of sq.events: sq.insert(...), sq.retract(...), sq.cti(...), (start, end, {...})."
    raise SourceError(sentence(verb, "not a row", f"found {item!r}", hint))


# columns


def _value(column: Column, at: int) -> Any:
    return column[at] if isinstance(column, list) else column[at].as_py()


def _in_batches(column: Column, name: str, verb: str) -> tuple[Ints, Ints]:
    """Return the positions of rows in order of their micro-batches, and for each of these its micro-batch's number from 0.

    The numbers have no gaps, whatever the column's values are.

    Raises SourceError for NULLs.
    """
    numbers, missing, _ = _ticks(column, name, verb)
    if missing.any():
        raise SourceError(sentence(verb, f"column {name!r} of micro-batches has NULLs", f"found {missing.sum()}"))
    order = np.argsort(numbers, kind="stable")
    return order, np.asarray(np.unique(numbers[order], return_inverse=True)[1], np.int64)


def _kinds(column: Column, count: int) -> Ints:
    """Return the index in KINDS of each value, in upper or lower case; -1 for any other value."""
    number = {name: i for i, name in enumerate(KINDS)}
    dense, first = _dense(column)
    distinct = [_value(column, int(at)) for at in first]
    numbers = [number.get(value.lower(), -1) if isinstance(value, str) else -1 for value in distinct]
    return np.array(numbers, np.int64)[dense] if count else np.zeros(0, np.int64)


def _ticks(column: Column, name: str, verb: str) -> tuple[Ints, Bools, str | None]:
    """Return a column in ticks, with infinity for NULL; the mask of NULLs; and the time axis, None if all are NULL.

    Raises SourceError for a column that does not hold times.
    """
    import pyarrow as pa

    if isinstance(column, list):
        column = _instants(column, name, verb)
    kind = column.type
    missing = np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool)
    if pa.types.is_floating(kind):
        # pandas has integers with NULLs as floats
        column, missing = _whole(column, missing, name, verb)
    elif pa.types.is_date(kind):
        column = column.cast(pa.timestamp("us"))
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    elif not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise SourceError(sentence(verb, f"column {name!r} does not hold times", f"found {kind}", TIMES))
    axis = None if missing.all() else TIMESTAMP if pa.types.is_timestamp(column.type) else INTEGER
    ticks = column.cast(pa.int64()).fill_null(INFINITY).to_numpy(zero_copy_only=False)
    return np.asarray(ticks, np.int64), missing, axis


TIMES = "Times are timestamps, dates or integers."


def _whole(column: pa.Array, missing: Bools, name: str, verb: str) -> tuple[pa.Array, Bools]:
    """Convert floats to integers, NaN to NULL, and values from 2^63 on to infinity; return them and the mask of NULLs.

    Raises SourceError for fractions and for values below -2^63.
    """
    import pyarrow as pa

    values = column.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    missing = missing | np.isnan(values)
    endless = missing | (values >= 2.0**63)
    whole = np.where(endless, 0.0, values)
    broken = (whole != np.floor(whole)) | (whole < -(2.0**63))
    if broken.any():
        instead = f"found {float(whole[broken][0])}"
        raise SourceError(sentence(verb, f"column {name!r} does not hold times", instead, TIMES))
    return pa.array(np.where(endless, INFINITY, whole.astype(np.int64)), mask=missing), missing


def _instants(values: Sequence[Any], name: str, verb: str) -> pa.Array:
    """Return Python values as an Arrow column of timestamps or integers; raise SourceError for other values, and for both.

    NaN, NaT and infinity become NULL, dates their first instant in UTC.
    """
    import pyarrow as pa

    instants: list[Any] = []
    for value in values:
        # pandas has NaN and NaT for NULL
        if value is None or value != value or value == float("inf"):
            instants.append(None)
        elif isinstance(value, dt.datetime):
            value = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
            instants.append(value if value.tzinfo else value.replace(tzinfo=dt.UTC))
        elif isinstance(value, dt.date):
            instants.append(dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC))
        elif _is_whole(value) and abs(int(value)) <= INFINITY:
            instants.append(int(value))
        else:
            raise SourceError(sentence(verb, f"column {name!r} does not hold times", f"found {value!r}", TIMES))
    stamps = sum(isinstance(value, dt.datetime) for value in instants)
    if stamps and stamps + instants.count(None) < len(instants):
        raise SourceError(sentence(verb, f"column {name!r} holds timestamps and integers", "", TIMES))
    return pa.array(instants, pa.timestamp("us", tz="UTC") if stamps else pa.int64())


def _is_whole(value: Any) -> bool:
    return type(plain_integer(value)) is int or (isinstance(value, float | np.floating) and bool(value.is_integer()))


def codes(columns: Sequence[Column], count: int) -> Ints:
    """Return a number for each row, equal for rows equal in all columns; NULL equals NULL, NaN equals NaN, -0.0 equals 0.0.

    Without columns all rows are equal.
    """
    numbers = np.zeros(count, np.int64)
    for column in columns:
        dense, first = _dense(column)
        _, numbers = np.unique(numbers * max(1, len(first)) + dense, return_inverse=True)
    return np.asarray(numbers, np.int64)


def _dense(column: Column) -> tuple[Ints, Ints]:
    """Return a number for each value, equal for equal values, and the first row of each number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(column, list):
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_floating(column.type):
            column = pc.add(column, pa.scalar(0.0, column.type))
    if isinstance(column, list) or pa.types.is_nested(column.type):
        numbers: dict[Any, int] = {}
        values = column if isinstance(column, list) else plain_values(column)
        dense = np.array([numbers.setdefault(_hashable(v), len(numbers)) for v in values], np.int64)
    else:
        indices = column.dictionary_encode(null_encoding="encode").indices
        dense = np.asarray(indices.to_numpy(zero_copy_only=False), np.int64)
    return dense, np.asarray(np.unique(dense, return_index=True)[1], np.int64)


def _hashable(value: Any) -> Any:
    """Return a hashable value; two are equal if the values are equal as keys or, if these cannot be hashed, as text."""
    # NaN and booleans of numpy are not Python's
    plain = value.tolist() if isinstance(value, np.ndarray | np.floating | np.bool_) else value
    key = comparable(plain)
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key
