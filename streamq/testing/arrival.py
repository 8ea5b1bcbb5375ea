"""Items: the inserts, retractions, CTIs and edges that arrive at a source, the CTIs that may precede them, and their table.

Their values are compared as keys are; a scale gives the positions of generated ones.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import types as t

from streamq.errors import PlanError
from streamq.operators import Source
from streamq.plan.schema import Field
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.deltas import CTI, INSERT, RETRACT
from streamq.time import INFINITY, INTEGER, Grid

Row = tuple[Any, ...]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def instant_at(ticks: int, axis: str) -> Any:
    """Return an instant as users write it: ticks on an integer axis, else a datetime in UTC."""
    return ticks if axis == INTEGER else EPOCH + dt.timedelta(microseconds=ticks)


class _Special(Enum):
    """Objects that equal only themselves and are not values of a payload."""

    NAN = "NaN"


def comparable(value: Any) -> Any:
    """Return a hashable value for comparing as keys are: NaN equals itself, -0.0 equals 0.0, lists and structs go by parts.

    A boolean equals no number, unlike in Python. A list of pairs is a map, whose entries have no order.
    """
    match value:
        case bool():
            return _Special, value
        case float():
            return _Special.NAN if math.isnan(value) else value + 0.0
        case [tuple(), *_]:
            return frozenset(comparable(v) for v in value)
        case list() | tuple():
            return tuple(comparable(v) for v in value)
        case dict():
            return tuple((k, comparable(v)) for k, v in value.items())
    return value


def keys(table: pa.Table) -> list[Row]:
    """Return the rows of a table as tuples of comparable values."""
    return table_rows(table, comparable)


def table_rows(table: pa.Table, convert: Callable[[Any], Any] | None = None) -> list[Row]:
    """Return the rows of a table as tuples; ``convert`` is applied to floats, lists, maps, structs, and NULLs in such columns.

    A table without columns has no rows.
    """
    columns = []
    for column in table.columns:
        values = plain_values(column)
        if convert is not None and (pa.types.is_floating(column.type) or pa.types.is_nested(column.type)):
            values = [convert(value) for value in values]
        columns.append(values)
    return list(zip(*columns, strict=True))


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column as Python values; instants and dates beyond Python's range become numbers of microseconds or days."""
    if not _has_instants(column.type):
        return column.to_pylist()
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):
        # convert one by one, so that values within Python's range become datetimes
        return [_python_value(scalar) for scalar in column]


def _python_value(scalar: Any) -> Any:
    """Return a scalar, or the parts of a nested one, as Python values; values beyond Python's range as numbers."""
    kind = scalar.type
    if not scalar.is_valid or not _has_instants(kind):
        return scalar.as_py()
    if pa.types.is_map(kind):
        return [(_python_value(entry["key"]), _python_value(entry["value"])) for entry in scalar.values]
    if pa.types.is_list(kind):
        return [_python_value(item) for item in scalar.values]
    if pa.types.is_struct(kind):
        return {name: _python_value(part) for name, part in scalar.items()}
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return scalar.value


def _has_instants(kind: pa.DataType) -> bool:
    """True for a type of instants or dates, and for a nested type with one in it."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return True
    return pa.types.is_nested(kind) and any(_has_instants(kind.field(i).type) for i in range(kind.num_fields))


class Bounds(Protocol):
    """The instants at which windows or pieces begin and end."""

    def edges_near(self, near: int, many: int) -> Iterator[int]:
        """Yield the starts and ends of ``many`` windows, from about the instant ``near`` on; none where there is no window."""


@dataclass(frozen=True)
class GridBounds:
    """The bounds of the windows of a grid."""

    grid: Grid

    def edges_near(self, near: int, many: int) -> Iterator[int]:
        first = (near - self.grid.offset) // self.grid.hop
        for index in range(first, first + many):
            start = self.grid.offset + index * self.grid.hop
            yield from (start, start + self.grid.size)


@dataclass(frozen=True)
class Scale:
    """The positions of generated events, in ticks: multiples of a unit away from ``anchor``, or a ``step`` beside.

    ``units``: the units, the finest first. ``reach``: how far a result's lifetime can extend beyond all instants of the input.
    ``lengths``: the lengths of time in the query; ``bounds``: those of its windows and pieces.
    """

    anchor: int = 0
    units: tuple[int, ...] = (1,)
    step: int = 1
    reach: int = 13
    lengths: tuple[int, ...] = ()
    bounds: tuple[Bounds, ...] = ()

    @property
    def is_coarse(self) -> bool:
        """True if the query's lengths are many steps long."""
        return self.units[0] > self.step

    def edges(self, near: int, many: int = 3) -> list[int]:
        """Return the starts and ends of ``many`` windows and pieces of each kind, from about the instant ``near`` on.

        They are sorted, without repetitions, and rounded down to ``step``; none without bounds.
        """
        return sorted({t // self.step * self.step for bounds in self.bounds for t in bounds.edges_near(near, many)})

    def with_unit(self, unit: int) -> Scale:
        """Return the scale with one unit, in ticks, instead of the query's lengths."""
        unit = max(self.step, unit // self.step * self.step)
        return dataclasses.replace(self, units=(unit,), reach=13 * unit + self.reach, lengths=(), bounds=())


TICKS = Scale()
"""The scale of single ticks around zero."""


OPEN, CLOSE = "open", "close"
DAY = 86_400_000_000
"""Ticks of a day on a timestamp axis."""


@dataclass(frozen=True)
class Item:
    """One arriving item: an event, a retraction, a CTI or an edge. Times are ticks; an end of None is infinity.

    ``kind`` is insert, retract or cti; at a source of edges it is open or close. A start of None stands for NULL. A row without
    a start, or with an end at or before its start, is not an event. ``beside``: the row's columns beside the payload.
    """

    kind: str
    start: int | None
    end: int | None = None
    new_end: int | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the row that are not times or kinds: the payload, and those beside it."""
        return {**self.payload, **self.beside}

    @property
    def sync(self) -> int:
        """The earliest instant that the item changes; infinity for CTIs and rows that are not events, which change none."""
        if self.kind == CTI or self.start is None or not is_event(self):
            return INFINITY
        return min(end_ticks(self.end), end_ticks(self.new_end)) if self.kind == RETRACT else self.start

    @property
    def times(self) -> list[int]:
        """The item's finite instants."""
        return [time for time in (self.start, self.end, self.new_end) if time is not None]

    @property
    def plain(self) -> dict[str, Any]:
        """The item as a row ``kind, start, end, new_end`` and payload, as ``fold_physical`` and ``check_stream`` read it."""
        return {"kind": self.kind, "start": self.start, "end": self.end, "new_end": self.new_end, **self.payload}


def end_ticks(end: int | None) -> int:
    """Return an end in ticks: the largest int64 for None."""
    return INFINITY if end is None else end


def end_or_none(ticks: int) -> int | None:
    """Return an end as an item has it: None for the largest int64."""
    return None if ticks == INFINITY else ticks


def is_event(item: Item) -> bool:
    """True if a row's columns form an item: it has a start, its end lies after it, and its new end not before it.

    CTIs and edges need a start only.
    """
    if item.start is None:
        return False
    if item.kind not in (INSERT, RETRACT):
        return True
    return item.start < end_ticks(item.end) and not (item.kind == RETRACT and end_ticks(item.new_end) < item.start)


def start_of(item: Item) -> int:
    """Return the start of an item whose start is not NULL."""
    assert item.start is not None
    return item.start


def brings_start(item: Item) -> bool:
    """True if an item's start moves the watermark; that of an end edge or a CTI does not."""
    return item.kind in (INSERT, RETRACT, OPEN)


def comparable_payload(item: Item) -> Any:
    """Return the payload as a hashable value; two are equal if all columns are equal as keys are."""
    return tuple((n, comparable(v)) for n, v in sorted(item.payload.items()))


def bounds(items: Sequence[Item]) -> list[int]:
    """Return, for each item of an arrival sequence, the greatest CTI that may precede it.

    This is the item's sync time. If a retraction of the item's lifetime has arrived first, it is the item's start: until the
    item arrives, the lifetime's total is negative, which is an error once the CTI has passed the start.
    """
    totals: Counter[Any] = Counter()
    deadlines = []
    for item in items:
        bound = item.sync
        if item.kind in (INSERT, RETRACT) and item.start is not None and is_event(item):
            event = (item.start, *((n, comparable(v)) for n, v in sorted(item.payload.items())))
            new_end = item.end if item.kind == INSERT else item.new_end
            if totals[new_end, event] < 0:
                bound = item.start
            totals[new_end, event] += 1
            if item.kind == RETRACT:
                totals[item.end, event] -= 1
        deadlines.append(bound)
    return deadlines


def delay_for(items: Sequence[Item]) -> int:
    """Return the least delay of generated progress, in ticks, for which no item is late, however the sequence is cut.

    It is at least 0. CTIs and rows that are not events do not count.
    """
    greatest, delay = -INFINITY, 0
    for item, bound in zip(items, bounds(items), strict=True):
        if item.kind != CTI and item.start is not None and is_event(item):
            delay = max(delay, greatest - bound)
            greatest = max(greatest, item.start)
    return delay


def count_contradictions(source: Source, items: Sequence[Item]) -> int:
    """Return how many different rows there are beyond one for each id and start; 0 if the source has no ids."""
    if not source.ids:
        return 0
    rows = {(i.start, i.end, comparable_payload(i)) for i in items if i.kind == INSERT and is_event(i)}
    return len(rows) - len({(start, *(v for n, v in whole if n in source.ids)) for start, _, whole in rows})


def count_distinct(items: Sequence[Item]) -> int:
    """Return the number of different items; equal ones, in all fields, count once."""
    rows = {
        (i.kind, i.start, i.end, i.new_end, *((n, comparable(v)) for n, v in sorted(i.payload.items()))) for i in items
    }
    return len(rows)


def table_of(source: Source, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows, whose times are ticks, as an Arrow table with the source's columns and types.

    A column that a row lacks is NULL; dates lose their time of day. Raises PlanError for payloads that their column cannot hold,
    and for integer times; other times raise Arrow's own error.
    """
    times = source.time_columns

    def column(f: Field) -> pa.Array:
        """Return the rows' values in a column; raise PlanError if it cannot hold them."""
        values = [row.get(f.name) for row in rows]
        kind = arrow_type(f.type)
        if f.name not in times or pa.types.is_integer(kind):
            try:
                return pa.array(values, kind, from_pandas=False)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                # generated values always fit, so this one comes from the user's Intent
                instead = f"{str(error).splitlines()[0]} (the column is {f.type.simpleString()})"
                raise PlanError("Intent", f"values that column {f.name!r} cannot hold", instead) from error
        if pa.types.is_date(kind):
            values = [None if v is None else v // DAY for v in values]
            return pa.array(values, pa.int32()).cast(kind)
        return pa.array(values, pa.int64()).cast(kind)

    return pa.table([column(f) for f in source.columns], names=[f.name for f in source.columns])


def tick(source: Source) -> int:
    """Return the resolution of the source's time columns, in ticks: a day for dates, else 1."""
    kinds = {f.name: f.type for f in source.columns}
    return max(DAY if isinstance(kinds[n], t.DateType) else 1 for n in source.time_columns)
