"""Read a recorded physical stream: from a table, rows, literal items, a DataFrame, or the folder of Parquet files of a sink."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from streamq.errors import SourceError
from streamq.operators.input_table import as_arrow
from streamq.plan.schema import MICRO_BATCH
from streamq.run.storage.raw_files import logged_files
from streamq.runtime.deltas import CTI, END, INSERT, RETRACT
from streamq.sources.literal import Item
from streamq.testing.arrival import EPOCH, comparable, plain_values
from streamq.time import INFINITY, INTEGER, TIMESTAMP, plain_integer

KINDS = (INSERT, RETRACT, CTI, END)
"""The kinds of rows of a physical stream."""

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


class RecordedRow(NamedTuple):
    """A row of a stream: its position ``at`` in the input, its item, and the number of its micro-batch, from 0.

    ``kind`` is one of KINDS, None for any other; an end is a CTI at INFINITY. Times are ticks; a ``start`` of None is NULL, a
    missing end is INFINITY.
    ``whose`` is the id or, without ids, the payload, and ``key`` the key, as values that can be compared.
    """

    at: int
    kind: str | None
    start: int | None
    end: int
    new_end: int
    whose: Any
    key: Any
    batch: int

    @property
    def fault(self) -> str:
        """The first reason why the row is not an item; "" for items."""
        if self.kind is None:
            return "a kind that is not insert, retract, cti or end"
        if self.start is None or (self.kind != CTI and self.start == INFINITY):
            return "a start of NULL or infinity"
        if self.kind != CTI and self.end <= self.start:
            return "an end that is not after the start"
        return "a new end before the start" if self.kind == RETRACT and self.new_end < self.start else ""


@dataclass(frozen=True)
class RecordedStream:
    """The rows of a stream in order of their micro-batches.

    ``columns`` are the input's, ``values`` the same as Python's. If the rows have no order, ``ordered`` is False and all of them
    are one micro-batch.
    """

    columns: Mapping[str, Column]
    values: Mapping[str, Sequence[Any]]
    names: Names
    axis: str
    ordered: bool
    rows: Sequence[RecordedRow]

    def row(self, row: RecordedRow) -> dict[str, Any]:
        """Return a row with its values in the input."""
        return {name: column[row.at] for name, column in self.values.items()}

    @property
    def payload(self) -> list[str]:
        """The columns beside those of kinds, times and micro-batches."""
        return payload_columns(self.columns, self.names)


def read_stream(rows: Any, names: Names, verb: str, *, is_bag: bool = False) -> RecordedStream:
    """Read a physical stream; raise SourceError for a column that is missing or has values of the wrong type.

    It is raised, too, for timestamps beside integers, for NULLs among micro-batches, and for what is no stream. ``names`` are
    the columns' names as the user gives them; ``verb`` is the function that errors name. Rows with columns neither of
    kinds nor of new ends are inserts; a NULL in a column of kinds is an unknown kind. ``is_bag``: the order of rows does not
    matter.
    """
    columns, names, ordered = _columns(rows, names, verb)
    ordered = ordered and not is_bag
    values = {name: column if isinstance(column, list) else plain_values(column) for name, column in columns.items()}
    count = len(next(iter(values.values()), ()))
    names = _checked(values, names, count, verb)
    batches: Sequence[int] = range(count) if ordered else [0] * count
    if names.batch is not None:
        ordered, batches = True, _batches(columns[names.batch], names.batch, verb)
    missing: list[Any] = [None] * count
    kinds = [INSERT] * count if names.kind is None else list(map(_kind, values[names.kind]))
    times, axes = [], set[str]()
    for name in (names.start, names.end, names.new_end):
        ticks, axis = _ticks(columns.get(name or "", missing), name or "", verb)
        times.append(ticks)
        axes |= {axis} if axis else set()
    if len(axes) > 1:
        raise SourceError(verb, "times must all be timestamps or all be integers", "found both")
    identity = payload_columns(columns, names) if names.id is None else [names.id]
    whose, keys = (_comparable([columns[name] for name in part], count) for part in (identity, names.key))
    ends = ([INFINITY if end is None else end for end in column] for column in times[1:])
    starts = (INFINITY if kind == END else start for kind, start in zip(kinds, times[0], strict=True))
    kinds = [CTI if kind == END else kind for kind in kinds]
    recorded = list(map(RecordedRow, range(count), kinds, starts, *ends, whose, keys, batches))
    recorded.sort(key=lambda row: row.batch)
    return RecordedStream(columns, values, names, next(iter(axes), INTEGER), ordered, recorded)


def payload_columns(columns: Iterable[str], names: Names) -> list[str]:
    """Return the columns beside those of kinds, times and micro-batches."""
    return [n for n in columns if n not in (names.kind, names.start, names.end, names.new_end, names.batch)]


def _checked(columns: Mapping[str, Sequence[Any]], names: Names, count: int, verb: str) -> Names:
    """Return the names that apply to the columns; those of a plain history if the rows have neither kind nor new end.

    CTIs alone need neither id nor key. ``count`` is the number of rows. Raises SourceError for a needed column that is missing.
    """
    if not columns and not count:
        return Names(kind=None)
    if names.kind is None or (names.kind == Names.kind and not {names.kind, names.new_end} & set(columns)):
        names = replace(names, kind=None, new_end=None)
    there = set(map(_kind, columns.get(names.kind or "", ())))
    if there and there <= {CTI, END}:
        names = replace(names, id=None, key=())
    roles = {"kind": names.kind, "start": names.start, "end": names.end, "id": names.id, "batch": names.batch}
    wanted = {name: role for role, name in roles.items() if name is not None} | dict.fromkeys(names.key, "key")
    if RETRACT in there:
        wanted[str(names.new_end)] = "new_end"
    for name, role in wanted.items():
        if name not in columns:
            instead = f"there are: {', '.join(map(repr, columns))}"
            raise SourceError(verb, f"no column {name!r}", instead, f"Name it: {role}=...")
    return names


# inputs


def _columns(rows: Any, names: Names, verb: str) -> tuple[dict[str, Column], Names, bool]:
    """Return the columns, the names (with the column of micro-batches of a sink's folder), and True if the rows have an order.

    Raises SourceError for an object that is not a stream, for a streaming DataFrame, and for a column of mixed types.
    """
    if isinstance(rows, str | Path):
        table, batch = read_folder(Path(rows), names.batch is None, verb)
        return _named(table), replace(names, batch=names.batch or batch), False
    if hasattr(rows, "isStreaming"):
        if rows.isStreaming:
            hint = "Read the folder of its sink."
            raise SourceError(verb, "a streaming DataFrame", "it has no rows yet", hint)
        return _named(rows.toArrow()), names, False
    if (table := as_arrow(rows, verb)) is not None:
        return _named(table), names, True
    if isinstance(rows, Iterable):
        return _listed(rows, verb), names, True
    hint = "Give a pandas or Arrow table, rows as dicts, items of sq.events, a Spark DataFrame or a folder of Parquet."
    raise SourceError(verb, "not a physical stream", f"found {type(rows).__name__}", hint)


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
    raise SourceError(verb, "not a row", f"found {item!r}", hint)


# columns


def _kind(value: Any) -> str | None:
    """Return the kind that a value names, in upper or lower case; None for any other value."""
    return value.lower() if isinstance(value, str) and value.lower() in KINDS else None


def _batches(column: Column, name: str, verb: str) -> list[int]:
    """Return the number of each row's micro-batch, from 0 and without gaps; raise SourceError for NULLs."""
    numbers, _ = _ticks(column, name, verb)
    if count := numbers.count(None):
        raise SourceError(verb, f"column {name!r} of micro-batches has NULLs", f"found {count}")
    places = {number: place for place, number in enumerate(sorted(set(numbers)))}
    return [places[number] for number in numbers]


TIMES = "Times are timestamps, dates or integers."


def _ticks(column: Column, name: str, verb: str) -> tuple[list[Any], str | None]:
    """Return a column in ticks, with None for NULL, NaN and infinity; and the time axis, None if all are NULL.

    Raises SourceError for a column that does not hold times, and for one with timestamps and integers.
    """
    if not isinstance(column, list) and (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        zone = column.type.tz if pa.types.is_timestamp(column.type) else None
        values = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()).to_pylist()
        return values, None if column.null_count == len(column) else TIMESTAMP
    if not isinstance(column, list) and pa.types.is_integer(column.type):
        return column.to_pylist(), None if column.null_count == len(column) else INTEGER
    ticks: list[int | None] = []
    axes = set[str]()
    for value in column if isinstance(column, list) else column.to_pylist():
        # pandas has NaN and NaT for NULL
        if value is None or value != value or (isinstance(value, float) and value >= 2.0**63):
            ticks.append(None)
        elif isinstance(value, dt.date):
            moment = value if isinstance(value, dt.datetime) else dt.datetime(value.year, value.month, value.day)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
            ticks.append((moment - EPOCH) // dt.timedelta(microseconds=1))
            axes.add(TIMESTAMP)
        elif _is_whole(value) and abs(int(value)) <= INFINITY:
            ticks.append(int(value))
            axes.add(INTEGER)
        else:
            raise SourceError(verb, f"column {name!r} does not hold times", f"found {value!r}", TIMES)
    if len(axes) > 1:
        raise SourceError(verb, f"column {name!r} holds timestamps and integers", "", TIMES)
    return ticks, next(iter(axes), None)


def _is_whole(value: Any) -> bool:
    return type(plain_integer(value)) is int or (isinstance(value, float | np.floating) and bool(value.is_integer()))


def _comparable(columns: Sequence[Column], count: int) -> Iterable[Any]:
    """Return the values of each row in some columns, equal if they are equal as keys; without columns all are equal."""
    parts = []
    for column in columns:
        values = column if isinstance(column, list) else plain_values(column)
        is_plain = values is not column and not (pa.types.is_floating(column.type) or pa.types.is_nested(column.type))
        parts.append(values if is_plain else [_hashable(value) for value in values])
    return zip(*parts, strict=True) if parts else [()] * count


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


# folders


def read_folder(path: Path, batches: bool, verb: str) -> tuple[pa.Table, str | None]:
    """Return the rows of a folder of Parquet files, and the name of their column of micro-batches or None.

    Micro-batches are known from Spark's log (used only if ``batches``) or from folders ``streamq_batch=N``. If there is a log,
    files that it does not list are ignored; one without files gives a table without columns. Raises SourceError if the folder
    does not exist or is not that of one sink.
    """
    if not path.exists():
        raise SourceError(verb, f"no folder {str(path)!r}")
    written = _committed(path)
    if written is None:
        # a folder of several sinks' folders is not one stream
        inner = _folders_with(path, "_spark_metadata", f"{MICRO_BATCH}=*")
        if inner:
            raise _no_sink("a folder with the folder of a sink in it", path, inner, verb)
        try:
            dataset = ds.dataset(path, format="parquet", partitioning="hive")
            table = dataset.to_table()
        except pa.ArrowException as error:
            inner = _folders_with(path, "*.parquet")
            raise _no_sink("not all files in it are Parquet", path, inner, verb) from error
        if not dataset.files:
            raise _no_sink("a folder without Parquet files", path, [], verb)
        return table, MICRO_BATCH if any(path.glob(f"{MICRO_BATCH}=*")) else None
    files, numbers = written
    tables = [ds.dataset(path / name, format="parquet").to_table() for name in files]
    if not tables:
        return pa.table({}), None
    table = pa.concat_tables(tables)
    if not batches or numbers is None or MICRO_BATCH in table.column_names:
        return table, None
    return table.append_column(MICRO_BATCH, pa.array(np.repeat(numbers, [t.num_rows for t in tables]))), MICRO_BATCH


def _no_sink(wrong: str, path: Path, inner: Sequence[Path], verb: str) -> SourceError:
    own = f": {' or '.join(repr(str(p)) for p in inner)}" if inner else ""
    return SourceError(verb, wrong, f"found {str(path)!r}", f"Give the folder of one Parquet sink{own}.")


def _folders_with(path: Path, *patterns: str) -> list[Path]:
    """Return the subfolders, other than partitions, that contain something whose name matches a pattern."""
    folders = [p for p in sorted(path.iterdir()) if p.is_dir() and "=" not in p.name] if path.is_dir() else []
    return [p for p in folders if any(any(p.glob(pattern)) for pattern in patterns)]


def _committed(path: Path) -> tuple[list[str], list[int] | None] | None:
    """Return the files that Spark's file sink has committed, and the micro-batch of each; None if there is no log.

    The second part is None if the log no longer has it. A log entry N lists the files of micro-batch N, an entry N.compact those
    of all up to N; Spark deletes older entries after a while.
    """
    log = path / "_spark_metadata"
    if not log.is_dir():
        return None
    numbers = sorted(int(e.stem) for e in log.iterdir() if e.stem.isdigit() and e.suffix in ("", ".compact"))
    batch_of: dict[str, int] = {}
    for number in numbers:
        for file in logged_files(log, number) or ():
            batch_of.setdefault(file.name, number)
    return list(batch_of), list(batch_of.values()) if numbers == list(range(len(numbers))) else None
