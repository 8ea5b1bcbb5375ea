"""Histories: canonical, of answers side by side, and folded from physical streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from streamq.errors import InvalidEvent, SourceError, sentence
from streamq.keywords import check_keywords
from streamq.runtime.event import CTI, INSERT, RETRACT
from streamq.testing.arrival import end_ticks
from streamq.testing.python_values import comparable, plain_values
from streamq.time import INFINITY, plain_integer

if TYPE_CHECKING:
    import pandas as pd

    History: TypeAlias = pa.Table | pd.DataFrame
    """``start`` and ``end`` (int64 ticks; infinity is the largest int64) and the payload columns; a bag of rows."""


def answer_table(rows: Any, verb: str) -> pa.Table:
    """Return an answer as an Arrow table: one itself, a pandas frame without its index, or what offers an Arrow stream.

    Raises SourceError, worded for ``verb``, for any other object; for a query the error tells how to get its answer.
    """
    import pandas as pd

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


Place = tuple[Hashable, int, int]

KINDS = (INSERT, RETRACT, CTI)
"""The kinds of rows of a physical stream."""

TIMES = ("start", "end", "new_end")
"""The columns of a physical stream that hold times."""


def is_physical(table: pa.Table) -> bool:
    """True if a table has the columns of a physical stream and its ``kind`` holds kinds; payload columns may have these names.

    A table without rows is one; a table with a NULL among its kinds is not.
    """
    if not {"kind", "new_end"} <= set(table.column_names):
        return False
    return {_in_small_letters(kind) for kind in table["kind"].unique().to_pylist()} <= set(KINDS)


def _in_small_letters(kind: Any) -> Any:
    """Return a kind as a source of physical rows reads it: capitals do not matter."""
    return kind.lower() if isinstance(kind, str) else kind


@check_keywords
def fold_physical(rows: Iterable[Mapping[str, Any]] | History, id: str | None = None) -> pa.Table:
    """Return the canonical history of a physical stream; its rows, and those of the result, may be in any order.

    ``rows``: an Arrow table, a pandas frame, or rows as dicts. A row has ``kind`` (insert, retract or cti, also in capitals),
    ``start``, ``end``, for retractions ``new_end``, and its payload under any other names; times are ticks (in a table
    timestamps too), an end of None is infinity. A payload column that a row lacks is NULL. A retraction names its event by
    ``id``, start and end if ``id`` is passed (the payload is then that of the insert), else by start, end and payload. Raises
    InvalidEvent for a retraction that matches nothing, and for rows that are not events; SourceError for other objects, and for
    rows without the column ``id``.

    Algorithm: an event is a token at its end, and a retraction moves one token, once. An order in which all tokens can move
    exists iff no end loses more tokens than it gets and every connected group of ends has an insert, so no orders are searched.

    >>> rows = [dict(kind="insert", start=1, end=None, v=3), dict(kind="retract", start=1, end=None, new_end=10, v=3)]
    >>> fold_physical(rows).to_pylist()
    [{'start': 1, 'end': 10, 'v': 3}]
    """

    tokens: Counter[Place] = Counter()
    moves: list[tuple[Place, Place, Mapping[str, Any]]] = []
    payloads: dict[Hashable, list[dict[str, Any]]] = {}
    row_dicts, types = _rows_of(rows)
    names: dict[str, None] = dict.fromkeys(types)
    for row in row_dicts:
        kind = _in_small_letters(row.get("kind"))
        if kind == CTI:
            continue
        payload = {name: value for name, value in row.items() if name not in ("kind", "start", "end", "new_end")}
        names |= dict.fromkeys(payload)
        start: Any = row.get("start")
        end, new_end = end_ticks(row.get("end")), end_ticks(row.get("new_end"))
        if not all(isinstance(plain_integer(time), int) for time in (start, end, new_end)):
            hint = "Times are ticks; a table may have timestamps."
            raise InvalidEvent(sentence("fold_physical", "a row that is not an event", f"found {dict(row)}", hint))
        if kind not in (INSERT, RETRACT) or end <= start or new_end < start:
            raise InvalidEvent(sentence("fold_physical", "a row that is not an event", f"found {dict(row)}"))
        if id is not None and id not in payload:
            raise SourceError(sentence("fold_physical", f"no column {id!r}", f"found {dict(row)}", "id=... names one."))
        event = comparable(payload[id]) if id else tuple((n, comparable(v)) for n, v in sorted(payload.items()))
        here = (event, start, end)
        if kind == INSERT:
            tokens[here] += 1
            payloads.setdefault(here[:2], []).append(payload)
        else:
            moves.append((here, (event, start, new_end), row))
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
    """Return the rows of a table as dicts with times in ticks, and the types of its payload columns.

    Rows that are dicts already are returned as they are, with no types.
    Raises SourceError for other objects.
    """
    if isinstance(stream, Iterable) and not hasattr(stream, "__arrow_c_stream__") and not hasattr(stream, "columns"):
        rows = list(stream)
        for row in rows:
            if not isinstance(row, Mapping):
                hint = "Pass rows as dicts, or a table."
                raise SourceError(sentence("fold_physical", "not a row", f"found {row!r}", hint))
        return rows, {}
    table = answer_table(stream, "fold_physical")
    for name in TIMES:
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, ticks_of(table[name]))
    own = {f.name: f.type for f in table.schema if f.name not in ("kind", *TIMES)}
    columns = [plain_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)], own


def _reached(inserted: Iterable[Place], moves: Iterable[tuple[Place, Place, Any]]) -> set[Place]:
    """Return the places that moves, in either direction, connect with a place of an insert, and the latter themselves."""
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
            raise InvalidEvent(sentence("history", f"no column {name!r}", f"there are: {there}"))
    rest = [name for name in answer.column_names if name not in ("start", "end")]
    start, end = ticks_of(answer["start"]), pc.fill_null(ticks_of(answer["end"]), INFINITY)
    if start.null_count:
        raise InvalidEvent(
            sentence("history", "a start of NULL", f"found {start.null_count} of {answer.num_rows} rows")
        )
    return pa.table([start, end, *(answer[name] for name in rest)], names=["start", "end", *rest])
