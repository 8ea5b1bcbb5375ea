"""Canonical histories: folding a physical stream into one, and comparing two as bags."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from streamq.errors import InvalidEvent, SourceError, sentence
from streamq.runtime.event import CTI, INSERT, RETRACT
from streamq.testing.timeline import Axis
from streamq.time import INFINITY, INTEGER, plain_integer

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    History: TypeAlias = pa.Table | pd.DataFrame
    """``start`` and ``end`` (int64 ticks; infinity is the largest int64) and the payload columns; a bag of rows."""

Row = tuple[Any, ...]
Place = tuple[Hashable, int, int]
SHOWN = 20
"""How many rows of a kind a Difference prints."""

KINDS = (INSERT, RETRACT, CTI)
"""What a row of a physical stream can be."""


def history(table: History) -> pa.Table:
    """A history from a table, or from an answer as a user gets it.

    ``start`` and ``end`` become int64 ticks and come first; an end of NULL becomes infinity. The rows of a physical stream,
    which have ``kind`` and ``new_end``, are folded: see :func:`fold_physical`. Raises SourceError for what is no table, and
    InvalidEvent for one without lifetimes.

    >>> from streamq import testing as t
    >>> changes = t.table("kind string, start int, end int, new_end int, v int", [("insert", 1, 9, None, 3)])
    >>> t.history(changes).to_pylist()
    [{'start': 1, 'end': 9, 'v': 3}]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    answer = _table(table, "history")
    if _is_physical(answer):
        answer = fold_physical(answer)
    for name in ("start", "end"):
        if name not in answer.column_names:
            there = ", ".join(answer.column_names)
            raise InvalidEvent(sentence("history", f"no column {name!r}", f"there are: {there}"))
    rest = [name for name in answer.column_names if name not in ("start", "end")]
    start, end = _ticks(answer["start"]), pc.fill_null(_ticks(answer["end"]), INFINITY)
    if start.null_count:
        raise InvalidEvent(
            sentence("history", "a start of NULL", f"found {start.null_count} of {answer.num_rows} rows")
        )
    return pa.table([start, end, *(answer[name] for name in rest)], names=["start", "end", *rest])


def _table(rows: Any, verb: str) -> pa.Table:
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


def _is_physical(table: pa.Table) -> bool:
    """Whether rows have kinds: a payload may have columns of these names too."""
    if not {"kind", "new_end"} <= set(table.column_names):
        return False
    return set(table["kind"].unique().to_pylist()) <= set(KINDS)


def _ticks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column.cast(pa.int64())


# folding


def fold_physical(rows: Iterable[Mapping[str, Any]] | History, id: str | None = None) -> pa.Table:
    """The canonical history of a physical stream, in whatever order its rows arrive.

    ``rows``: an Arrow table, a pandas frame, or rows as dicts. A row has ``kind`` (insert, retract or cti), ``start``,
    ``end``, for retractions ``new_end``, and its payload under any other names; times are ticks (in a table timestamps too),
    an end of None is infinity. A retraction names an event by ``id``, start and end
    if ``id`` is given (the payload is then the insert's), else by start, end and payload. Raises InvalidEvent for a
    retraction that matches nothing, and for rows that are no events; SourceError for what are no rows.

    An event is a token that stands at its end; a retraction moves one token, once. There is an order in which all of
    them can move iff no place gives away more tokens than it gets and every connected group of places has an insert:
    so orders need not be searched.

    >>> rows = [dict(kind="insert", start=1, end=None, v=3), dict(kind="retract", start=1, end=None, new_end=10, v=3)]
    >>> fold_physical(rows).to_pylist()
    [{'start': 1, 'end': 10, 'v': 3}]
    """
    import pyarrow as pa

    tokens: Counter[Place] = Counter()
    moves: list[tuple[Place, Place, Mapping[str, Any]]] = []
    payloads: dict[Hashable, list[dict[str, Any]]] = {}
    row_dicts, types = _rows_of(rows)
    names: dict[str, None] = dict.fromkeys(types)
    for row in row_dicts:
        if row.get("kind") == CTI:
            continue
        payload = {name: value for name, value in row.items() if name not in ("kind", "start", "end", "new_end")}
        names |= dict.fromkeys(payload)
        start: Any = row.get("start")
        end, new_end = _or_infinity(row.get("end")), _or_infinity(row.get("new_end"))
        if not all(isinstance(plain_integer(time), int) for time in (start, end, new_end)):
            hint = "Times are ticks; a table may have timestamps."
            raise InvalidEvent(sentence("fold_physical", "a row that is no event", f"found {dict(row)}", hint))
        if row.get("kind") not in (INSERT, RETRACT) or end <= start or new_end < start:
            raise InvalidEvent(sentence("fold_physical", "a row that is no event", f"found {dict(row)}"))
        if id is not None and id not in payload:
            raise SourceError(sentence("fold_physical", f"no column {id!r}", f"found {dict(row)}", "id=... names one."))
        whose = comparable(payload[id]) if id else tuple((n, comparable(v)) for n, v in sorted(payload.items()))
        here = (whose, start, end)
        if row["kind"] == INSERT:
            tokens[here] += 1
            payloads.setdefault(here[:2], []).append(payload)
        else:
            moves.append((here, (whose, start, new_end), row))
    reached = _reached(tokens, moves)
    for here, there, _ in moves:
        tokens[here] -= 1
        tokens[there] += 1
    for here, _, row in moves:
        if tokens[here] < 0 or here not in reached:
            raise InvalidEvent(sentence("fold_physical", "a retraction that matches nothing", f"found {dict(row)}"))
    events = [(place[1], place[2], payloads[place[:2]].pop(0)) for place, n in tokens.items() for _ in range(n)]
    events = [event for event in events if event[1] > event[0]]
    columns: dict[str, Any] = {name: pa.array([e[2].get(name) for e in events], types.get(name)) for name in names}
    lifetimes = {
        "start": pa.array([e[0] for e in events], pa.int64()),
        "end": pa.array([e[1] for e in events], pa.int64()),
    }
    return pa.table(lifetimes | columns)


def _rows_of(stream: Any) -> tuple[Iterable[Mapping[str, Any]], dict[str, pa.DataType]]:
    """Rows as dicts, times in ticks, and the types of their payload as far as they have any."""
    if isinstance(stream, Iterable) and not hasattr(stream, "__arrow_c_stream__") and not hasattr(stream, "columns"):
        rows = list(stream)
        for row in rows:
            if not isinstance(row, Mapping):
                hint = "Rows are dicts, or a table."
                raise SourceError(sentence("fold_physical", "not a row", f"found {row!r}", hint))
        return rows, {}
    table = _table(stream, "fold_physical")
    for name in TIMES:
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, _ticks(table[name]))
    own = {f.name: f.type for f in table.schema if f.name not in ("kind", *TIMES)}
    columns = [plain_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)], own


TIMES = ("start", "end", "new_end")
"""The columns of a physical stream that hold times."""


def _or_infinity(end: int | None) -> int:
    return INFINITY if end is None else end


def _reached(inserted: Iterable[Place], moves: Iterable[tuple[Place, Place, Any]]) -> set[Place]:
    """The places joined, by moves in either direction, to one where a token was put."""
    beside: dict[Place, set[Place]] = {}
    for a, b, _ in moves:
        beside.setdefault(a, set()).add(b)
        beside.setdefault(b, set()).add(a)
    reached, stack = set(inserted), list(inserted)
    while stack:
        for place in beside.get(stack.pop(), set()) - reached:
            reached.add(place)
            stack.append(place)
    return reached


# comparing


@dataclass(frozen=True)
class Difference:
    """What tells two histories apart: rows only in the expected one, rows only in the one found, or their columns."""

    missing: tuple[Row, ...] = ()
    extra: tuple[Row, ...] = ()
    names: tuple[str, ...] = ()
    columns: str = ""
    axis: str = INTEGER

    def __str__(self) -> str:
        if self.columns:
            return f"the histories have different columns: {self.columns}"
        axis = Axis([row for part in (self.missing, self.extra) for row in sorted(part, key=_order)[:SHOWN]], self.axis)
        lines: list[str] = []
        sides = (
            ("missing (only in the expected history)", self.missing),
            ("extra (only in the one found)", self.extra),
        )
        for title, rows in sides:
            if rows:
                lines.append(f"{title}: {len(rows)} row{'s' if len(rows) > 1 else ''}")
                lines += [f"  {self._line(row, axis)}" for row in sorted(rows, key=_order)[:SHOWN]]
                if len(rows) > SHOWN:
                    lines.append(f"  ... and {len(rows) - SHOWN} more")
        return "\n".join(lines)

    def _line(self, row: Row, axis: Axis) -> str:
        payload = ", ".join(f"{name}={value!r}" for name, value in zip(self.names[2:], row[2:], strict=True))
        return f"{axis.draw(row[0], row[1])} {axis.label(row[0], row[1])}  {payload}".rstrip()


def same_history(actual: History, expected: History, tolerance: float = 1e-9) -> Difference | None:
    """None if two histories are equal bags, else what tells them apart.

    Columns match by name, in any order. Floats are equal within ``tolerance`` times the greater of them and 1; NaN
    equals NaN, -0.0 equals 0.0, NULL equals NULL. Between Arrow tables the kinds of types (integer, float, decimal of
    a scale, ...) must agree too. Both are read by :func:`history`, so that answers as a user gets them can be compared.
    """
    a, b = (history(_table(answer, "same_history")) for answer in (actual, expected))
    names = tuple(b.column_names)
    if sorted(a.column_names) != sorted(names):
        return Difference(columns=f"found {', '.join(a.column_names)}; expected {', '.join(names)}")
    a = a.select(list(names))
    if type(actual) is type(expected) and (wrong := _kinds_differ(a, b)):
        return Difference(columns=wrong)
    return _bag_difference(a, b, names, tolerance)


def assert_same_history(actual: History, expected: History, tolerance: float = 1e-9) -> None:
    """Fail with a printed :class:`Difference` where :func:`same_history` finds one."""
    difference = same_history(actual, expected, tolerance)
    if difference is not None:
        raise AssertionError(f"not the expected history\n{difference}")


class _Special(Enum):
    """What equals nothing but itself, and is no value of a payload."""

    NAN = "NaN"


def comparable(value: Any) -> Any:
    """A hashable value under the equality of keys: NaN equals itself, -0.0 is 0.0, lists and structs by their parts.

    A boolean equals no number, though in Python it does. A list of pairs is a map, whose entries have no order.
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
    """The rows, made comparable."""
    return _rows(table, comparable)


def _rows(table: pa.Table, convert: Callable[[Any], Any] | None = None) -> list[Row]:
    import pyarrow as pa

    columns = []
    for column in table.columns:
        values = plain_values(column)
        if convert is not None and (pa.types.is_floating(column.type) or pa.types.is_nested(column.type)):
            values = [convert(value) for value in values]
        columns.append(values)
    return list(zip(*columns, strict=True))


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """A column as Python values; instants and days beyond those that Python has are numbers: microseconds, days."""
    if not _has_instants(column.type):
        return column.to_pylist()
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):
        # one by one, so that those that a datetime has are shown as such
        return [_python_value(scalar) for scalar in column]


def _python_value(scalar: Any) -> Any:
    import pyarrow as pa

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
    import pyarrow as pa

    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return True
    return pa.types.is_nested(kind) and any(_has_instants(kind.field(i).type) for i in range(kind.num_fields))


def _kinds_differ(a: pa.Table, b: pa.Table) -> str:
    # a column of NULLs only, made from Python values, has a type of its own
    pairs = [(x, y) for x, y in zip(a.schema, b.schema, strict=True) if "null" not in (_kind(x.type), _kind(y.type))]
    return "; ".join(f"{x.name} is {x.type}, expected {y.type}" for x, y in pairs if _kind(x.type) != _kind(y.type))


def _kind(kind: pa.DataType) -> str:
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return f"decimal of scale {kind.scale}"
    for name in ("integer", "floating", "timestamp", "list", "struct", "boolean", "date", "null"):
        if getattr(pa.types, f"is_{name}")(kind):
            return name
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    return "binary" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else str(kind)


def _bag_difference(
    actual: pa.Table, expected: pa.Table, names: tuple[str, ...], tolerance: float
) -> Difference | None:
    # equal rows cancel out first; what is left is matched within the tolerance among rows equal but for their floats
    actual_counts, expected_counts = Counter(keys(actual)), Counter(keys(expected))
    if actual_counts == expected_counts:
        return None
    extra, missing = _left(actual, actual_counts, expected_counts), _left(expected, expected_counts, actual_counts)
    unpaired: list[Row] = []
    close = _but_floats(extra)
    for key, wanted in _but_floats(missing).items():
        unpaired += _unmatched(wanted, close.get(key, []), tolerance)
    extra = [row for rows in close.values() for row in rows]
    return Difference(tuple(unpaired), tuple(extra), names) if unpaired or extra else None


def _left(table: pa.Table, own: Counter[Row], other: Counter[Row]) -> list[Row]:
    """The rows of a table that are left when what the other has is taken away."""
    over = own - other
    chosen = []
    for i, key in enumerate(keys(table)):
        if over[key] > 0:
            over[key] -= 1
            chosen.append(i)
    return _rows(table.take(chosen)) if chosen else []


def _but_floats(rows: Iterable[Row]) -> dict[Row, list[Row]]:
    grouped: dict[Row, list[Row]] = {}
    for row in rows:
        key = tuple("float" if isinstance(v, float) else comparable(v) for v in row)
        grouped.setdefault(key, []).append(row)
    return grouped


def _unmatched(wanted: list[Row], offered: list[Row], tolerance: float) -> list[Row]:
    """The wanted rows left over by a greatest matching; those matched are taken out of ``offered``."""
    near = [[j for j, other in enumerate(offered) if _near(row, other, tolerance)] for row in wanted]
    match_of: dict[int, int] = {}

    def place(i: int, seen: set[int]) -> bool:
        for j in near[i]:
            if j not in seen:
                seen.add(j)
                if j not in match_of or place(match_of[j], seen):
                    match_of[j] = i
                    return True
        return False

    left = [row for i, row in enumerate(wanted) if not place(i, set())]
    offered[:] = [row for j, row in enumerate(offered) if j not in match_of]
    return left


def _near(a: Row, b: Row, tolerance: float) -> bool:
    for x, y in zip(a, b, strict=True):
        if isinstance(x, float) and comparable(x) != comparable(y):
            if not abs(x - y) <= tolerance * max(1.0, abs(x), abs(y)) or math.isinf(x) or math.isinf(y):
                return False
    return True


def _order(row: Row) -> tuple[Any, ...]:
    return (row[0], row[1], *((value is not None, type(value).__name__, _sortable(value)) for value in row[2:]))


def _sortable(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value if isinstance(value, int | str | bytes | Decimal) else repr(value)


__all__ = [
    "Difference",
    "assert_same_history",
    "comparable",
    "fold_physical",
    "history",
    "keys",
    "plain_values",
    "same_history",
]
