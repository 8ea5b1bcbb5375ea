"""Histories: canonical, of answers side by side, summed up from deltas, drawn as timelines in plain text, and compared.

Two histories are compared as bags of rows, floats within a tolerance; their difference is drawn along the time axis.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from streamq import html
from streamq.choices import OutputForm
from streamq.errors import InvalidEvent, SourceError, check_keywords
from streamq.html import shortened_value, with_escapes
from streamq.operators.input_table import as_arrow
from streamq.runtime.deltas import INSERT, LE, RE, RETRACT, WEIGHT
from streamq.sources.insert_only import intervals
from streamq.sources.physical import physical
from streamq.testing.arrival import Row, comparable, keys, table_rows
from streamq.testing.folding import fold_physical
from streamq.testing.oracle.values import ticks
from streamq.testing.recorded import KINDS
from streamq.time import INFINITY, INTEGER, show_ticks

if TYPE_CHECKING:
    import pandas as pd

    History: TypeAlias = pa.Table | pd.DataFrame
    """``start`` and ``end`` (int64 ticks; infinity is the largest int64) and the payload columns; a bag of rows."""

    from streamq.pictures.picture import Picture


def answer_table(rows: Any, verb: str) -> pa.Table:
    """Return an answer as an Arrow table: one itself, a pandas frame, or what offers an Arrow stream.

    Raises SourceError, worded for ``verb``, for any other object; for a query the error tells how to get its answer.
    """
    if (table := as_arrow(rows, verb)) is not None:
        return table
    hint = "Fold physical rows with t.fold_physical(rows), or write a table with t.table(columns, rows)."
    ways = ("to_arrow", "toArrow")
    if any(way in dir(rows) for way in ways):
        hint = f"Pass its answer: .{next(way for way in ways if way in dir(rows))}()."
    raise SourceError(verb, "takes an Arrow table or a pandas frame", f"found {type(rows).__name__}", hint)


RESULT = "result"
"""The column of a table of several histories with the number of a row's result, from 1."""


def side_by_side(histories: Sequence[pa.Table]) -> pa.Table:
    """Return the histories of several results as one table, one history as it is.

    A row has NULL in the columns of other results; the names of columns begin with the result's number.
    """

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

    prefix = f"{number}."
    names = [name for name in histories.column_names if name in ("start", "end") or name.startswith(prefix)]
    rows = histories.filter(pc.equal(histories.column(RESULT), number)).select(names)
    return rows.rename_columns([name.removeprefix(prefix) for name in names])


def is_physical(table: pa.Table) -> bool:
    """True if a table has the columns of a physical stream and its ``kind`` holds kinds; payload columns may have these names.

    A table without rows is one; a table with a NULL among its kinds is not.
    """
    if not {"kind", "new_end"} <= set(table.column_names):
        return False
    kinds = table["kind"].unique().to_pylist()
    return all(isinstance(kind, str) and kind.lower() in KINDS for kind in kinds)


@check_keywords
def history(table: History) -> pa.Table:
    """Return the canonical history of a table, or of an answer as a user gets it.

    ``start`` and ``end`` become int64 ticks and come first; an end of NULL becomes infinity. The rows of a physical stream,
    which have ``kind`` and ``new_end``, are folded: see :func:`fold_physical`. Raises SourceError for an object that is not a
    table, and InvalidEvent for a table without lifetimes, for a start of NULL, and for rows that cannot be folded.

    >>> from streamq import testing as t
    >>> changes = t.table("kind string, start int, end int, new_end int, v int", [("insert", 1, 9, None, 3)])
    >>> t.history(changes).to_pylist()
    [{'start': 1, 'end': 9, 'v': 3}]
    """

    answer = answer_table(table, "history")
    if is_physical(answer):
        answer = fold_physical(answer)
    for name in ("start", "end"):
        if name not in answer.column_names:
            there = ", ".join(answer.column_names)
            raise InvalidEvent("history", f"no column {name!r}", f"there are: {there}")
    rest = [name for name in answer.column_names if name not in ("start", "end")]
    start, end = ticks(answer["start"]), pc.fill_null(ticks(answer["end"]), INFINITY)
    if start.null_count:
        raise InvalidEvent("history", "a start of NULL", f"found {start.null_count} of {answer.num_rows} rows")
    return pa.table([start, end, *(answer[name] for name in rest)], names=["start", "end", *rest])


# timelines in plain text


def shown(t: int, axis: str) -> str:
    """Return an instant as text, without a fraction of a second that is zero."""
    return show_ticks(t, axis).replace(".000000Z", "Z")


def interval(start: int, end: int, axis: str) -> str:
    """Return a lifetime as text: ``[1, 5)``."""
    return f"[{shown(start, axis)}, {shown(end, axis)})"


class Axis:
    """A section of the time axis that contains all rows ``(start, end, ...)``, drawn at most WIDTH characters wide.

    >>> axis = Axis([(1, 5), (3, INFINITY)])
    >>> print(axis.draw(1, 5), axis.label(1, 5))
    |---)  [1, 5)
    >>> print(axis.draw(3, INFINITY), axis.label(3, INFINITY))
      |-->  [3, inf)
    """

    WIDTH = 48

    def __init__(self, rows: Sequence[Sequence[Any]], axis: str = INTEGER):
        """Begin at the first instant but INFINITY, else at 0, and end after the last; ``axis`` is the time axis of labels."""
        ends = sorted({t for row in rows for t in row[:2] if t != INFINITY}) or [0]
        self.low, self.high = ends[0], ends[-1] + 1
        self.axis = axis
        self.wide = max(len(self._label(*row[:2])) for row in rows) if rows else 0

    def _place(self, t: int) -> int:
        """Return the column of an instant; INFINITY, at which a wrong answer may begin, is at the end."""
        if t == INFINITY:
            return self._last()
        span = self.high - self.low
        return t - self.low if span <= self.WIDTH else (t - self.low) * self.WIDTH // span

    def _last(self) -> int:
        return min(self.WIDTH, self.high - self.low)

    def draw(self, start: int, end: int) -> str:
        """Return a lifetime as a bar: ``  |---)``, or ``  |-->`` if it never ends."""
        a, b = self._place(start), self._place(end)
        body = "|" + "-" * max(0, b - a - 1)
        return (" " * a + body + (">" if end == INFINITY else ")")).ljust(self._last() + 2)

    def mark(self, t: int) -> str:
        """Return an instant as a mark: ``   !``."""
        return (" " * self._place(t) + "!").ljust(self._last() + 2)

    def _label(self, start: int, end: int) -> str:
        return interval(start, end, self.axis)

    def label(self, start: int, end: int) -> str:
        """Return a lifetime as ``[1, 5)``, padded to the widest label."""
        return self._label(start, end).ljust(self.wide)


@check_keywords
def plot(
    rows: Any,
    *,
    key: str | Sequence[str] | None = None,
    between: tuple[int | dt.datetime, int | dt.datetime] | None = None,
    title: str = "rows",
) -> Picture:
    """Return a picture of an answer, a history, or the rows of a physical stream, as :meth:`Stream.plot` draws its inputs.

    ``rows``: an Arrow table or a pandas frame with ``start`` and ``end``; those of a changelog also have ``kind`` and
    ``new_end``, and what they take back is drawn with what replaced it. ``key`` and ``between`` as in :meth:`Stream.plot`.
    Raises SourceError for other objects, UnknownColumn for rows without lifetimes, InvalidEvent for rows that are no events.

    >>> from streamq import testing as t
    >>> rows = [("insert", 1, 9, None, 3), ("retract", 1, 9, 4, 3)]
    >>> t.plot(t.table("kind string, start bigint, end bigint, new_end bigint, v int", rows), title="readings")
    readings
      readings: 2 events, from 1 to 9. 1 taken back, 1 of them replaced.
      The axis goes from 1 to 9.
    """
    table = answer_table(rows, "plot")
    if is_physical(table):
        stream = physical(table, kind="kind", start="start", end="end", new_end="new_end", name=title)
    else:
        stream = intervals(table, start="start", end="end", name=title)
    return stream.plot(key=key, between=between)


class WrongOutput(AssertionError):
    """Raised for outputs that do not sum to a history: they retract a row that was never inserted, or a final row."""


def sum_deltas(out: Sequence[pa.Table], output: str, axis: str = INTEGER) -> pa.Table:
    """Sum the deltas of all micro-batches into a history; raise WrongOutput if they do not form one.

    ``output`` is their form: in final rows every weight must be 1.
    ``axis`` is the time axis in which the error shows instants.
    """
    if output == OutputForm.CHANGELOG:
        return net(out, axis)
    table = pa.concat_tables(out)
    if pc.any(pc.not_equal(table.column(WEIGHT), 1)).as_py():
        raise WrongOutput("a final row is retracted")
    return as_history(table.drop_columns([WEIGHT]))


def from_changelog(rows: pa.Table) -> pa.Table:
    """Convert changelog rows to deltas, with lifetimes in ticks; CTIs are left out.

    A retraction becomes a delta of weight -1 and, unless it deletes its event, one of weight 1. Inserts and new lifetimes come
    first, then what is taken back.
    """
    kind, events = rows.column("kind"), rows.drop_columns(["kind", "new_end"])
    is_retraction = pc.equal(kind, RETRACT)
    moved = events.set_column(events.column_names.index("end"), "end", rows.column("new_end")).filter(is_retraction)
    inserted = [
        events.filter(pc.equal(kind, INSERT)),
        moved.filter(pc.not_equal(moved["end"], moved["start"]).fill_null(True)),
    ]
    return pa.concat_tables([_weighed(pa.concat_tables(inserted), 1), _weighed(events.filter(is_retraction), -1)])


def _weighed(rows: pa.Table, weight: int) -> pa.Table:
    ticked = history(rows)
    names = [{"start": LE, "end": RE}.get(name, name) for name in ticked.column_names]
    return ticked.rename_columns(names).append_column(WEIGHT, pa.array([weight] * ticked.num_rows, pa.int64()))


def net(tables: Sequence[pa.Table], axis: str = INTEGER) -> pa.Table:
    """Sum deltas, a table a micro-batch, into a history; raise WrongOutput if a weight is negative after any micro-batch.

    ``axis`` is the time axis in which the error shows instants.
    """
    table = pa.concat_tables(tables)
    names = [n for n in table.column_names if n != WEIGHT]
    weights: Counter[Any] = Counter()
    rows: dict[Any, int] = {}
    last = {sum(t.num_rows for t in tables[: i + 1]) - 1 for i in range(len(tables))}
    touched: set[Any] = set()
    for i, (key, weight) in enumerate(zip(keys(table.select(names)), table[WEIGHT].to_pylist(), strict=True)):
        weights[key] += weight
        rows.setdefault(key, i)
        touched.add(key)
        if i not in last:
            continue
        # deltas of one micro-batch have no order, so check at its end
        for one in touched:
            if weights[one] < 0:
                row = dict(zip(names, one, strict=True))
                lifetime = interval(row.pop(LE), row.pop(RE), axis)
                raise WrongOutput(f"a row is retracted that was not there: {lifetime} {row}")
        touched = set()
    copies = [rows[key] for key, n in weights.items() for _ in range(n)]
    return as_history(table.select(names).take(pa.array(copies, pa.int64())))


def as_history(table: pa.Table) -> pa.Table:
    """Rename the lifetime columns of deltas to those of a history."""
    return table.rename_columns([{LE: "start", RE: "end"}.get(n, n) for n in table.column_names])


SHOWN = 20
"""The greatest number of missing, and of extra, rows that a Difference prints."""


@dataclass(frozen=True)
class Difference:
    """The difference of two histories: rows missing from the actual one, extra rows in it, or differing columns."""

    missing: tuple[Row, ...] = ()
    extra: tuple[Row, ...] = ()
    names: tuple[str, ...] = ()
    columns: str = ""
    axis: str = INTEGER

    def __repr__(self) -> str:
        """Return the columns that differ or, for missing and extra rows, their number and the first SHOWN as timelines."""
        if self.columns:
            return f"the histories have different columns: {with_escapes(self.columns)}"
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

    def _repr_html_(self) -> str:
        if self.columns:
            return html.fragment(html.lines(str(self)))
        axis = Axis([], self.axis)
        rows = [
            (part, axis.label(row[0], row[1]), *row[2:])
            for part, some in (("missing", self.missing), ("extra", self.extra))
            for row in sorted(some, key=_order)
        ]
        counts = f"{len(self.missing)} missing (only in the expected history), {len(self.extra)} extra (only in the one found)"
        return html.fragment(html.tabulated(("", "lifetime", *self.names[2:]), rows, counts, named=True))

    def _line(self, row: Row, axis: Axis) -> str:
        named = zip(map(with_escapes, self.names[2:]), row[2:], strict=True)
        payload = ", ".join(f"{name}={_quoted(value)}" for name, value in named)
        return f"{axis.draw(row[0], row[1])} {axis.label(row[0], row[1])}  {payload}".rstrip()


@check_keywords
def same_history(actual: History, expected: History, tolerance: float = 1e-9) -> Difference | None:
    """Return None if two histories are equal as bags of rows, else their difference.

    Columns match by name, in any order. Floats are equal within ``tolerance`` times the greater of them and 1; NaN
    equals NaN, -0.0 equals 0.0, NULL equals NULL. Between two Arrow tables, or two pandas frames, the kinds of column types
    (integer, float, decimal of a scale, ...) must agree too. Both arguments are converted by :func:`history`, so a user's answers
    can be compared. Raises SourceError for what is no table.
    """
    a, b = (history(answer_table(answer, "same_history")) for answer in (actual, expected))
    names = tuple(b.column_names)
    if sorted(a.column_names) != sorted(names):
        return Difference(columns=f"found {', '.join(a.column_names)}; expected {', '.join(names)}")
    a = a.select(list(names))
    if type(actual) is type(expected) and (wrong := _kinds_differ(a, b)):
        return Difference(columns=wrong)
    return _bag_difference(a, b, names, tolerance)


@check_keywords
def assert_same_history(actual: History, expected: History, tolerance: float = 1e-9) -> None:
    """Raise AssertionError with the printed :class:`Difference` if :func:`same_history` returns one."""
    difference = same_history(actual, expected, tolerance)
    if difference is not None:
        raise AssertionError(f"not the expected history\n{difference}")


def _kinds_differ(a: pa.Table, b: pa.Table) -> str:
    """Return the columns whose kinds of types differ, as text; empty if none do."""
    # pyarrow gives a column of only NULLs the type null, which matches any kind
    pairs = [(x, y) for x, y in zip(a.schema, b.schema, strict=True) if "null" not in (_kind(x.type), _kind(y.type))]
    return "; ".join(f"{x.name} is {x.type}, expected {y.type}" for x, y in pairs if _kind(x.type) != _kind(y.type))


def _kind(kind: pa.DataType) -> str:
    """Return the name of a type's kind; types of one kind, such as int32 and int64, may be compared.

    Kinds of lists and structs do not tell their parts' types, those of timestamps neither unit nor zone.
    """
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
    """Return the rows of two tables that have no partner in the other; None if there are none.

    Equal rows cancel out first. The rest are paired, within the tolerance, among rows that differ in floats only.
    """
    actual_counts, expected_counts = Counter(keys(actual)), Counter(keys(expected))
    if actual_counts == expected_counts:
        return None
    extra, missing = (
        _surplus(actual, actual_counts, expected_counts),
        _surplus(expected, expected_counts, actual_counts),
    )
    unpaired: list[Row] = []
    close = _by_exact_columns(extra)
    for key, wanted in _by_exact_columns(missing).items():
        unpaired += _unmatched(wanted, close.get(key, []), tolerance)
    extra = [row for rows in close.values() for row in rows]
    return Difference(tuple(unpaired), tuple(extra), names) if unpaired or extra else None


def _surplus(table: pa.Table, own: Counter[Row], other: Counter[Row]) -> list[Row]:
    """Return the rows of a table beyond those of the other table: a row as many times as its count is greater here.

    ``own`` and ``other`` count rows by key.
    """
    over = own - other
    chosen = []
    for i, key in enumerate(keys(table)):
        if over[key] > 0:
            over[key] -= 1
            chosen.append(i)
    return table_rows(table.take(chosen)) if chosen else []


def _by_exact_columns(rows: Iterable[Row]) -> dict[Row, list[Row]]:
    """Group rows by their values that are not floats."""
    grouped: dict[Row, list[Row]] = {}
    for row in rows:
        key = tuple("float" if isinstance(v, float) else comparable(v) for v in row)
        grouped.setdefault(key, []).append(row)
    return grouped


def _unmatched(wanted: list[Row], offered: list[Row], tolerance: float) -> list[Row]:
    """Return the wanted rows that a maximum matching leaves without a partner; remove the matched rows from ``offered``."""
    near = [[j for j, other in enumerate(offered) if _near(row, other, tolerance)] for row in wanted]
    match_of: dict[int, int] = {}

    def place(i: int, seen: set[int]) -> bool:
        """True if wanted row ``i`` gets a partner that is not in ``seen``, if need be by giving other rows another one."""
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
    """True if all floats of two rows are equal within the tolerance, and infinities exactly; other values are not compared."""
    for x, y in zip(a, b, strict=True):
        if isinstance(x, float) and comparable(x) != comparable(y):
            if not abs(x - y) <= tolerance * max(1.0, abs(x), abs(y)) or math.isinf(x) or math.isinf(y):
                return False
    return True


def _quoted(value: Any) -> str:
    """Return a value as Python writes it, shortened as in a table."""
    return shortened_value(value, repr) if isinstance(value, str) else shortened_value(repr(value))


def _order(row: Row) -> tuple[Any, ...]:
    return (row[0], row[1], *((value is not None, type(value).__name__, _sortable(value)) for value in row[2:]))


def _sortable(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value if isinstance(value, int | str | bytes | Decimal) else repr(value)
