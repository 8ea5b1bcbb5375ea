"""Fold physical streams, whose rows may be in any order, into their canonical history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from streamq.errors import InvalidEvent, SourceError, sentence
from streamq.keywords import check_keywords
from streamq.runtime.event import CTI, INSERT, RETRACT
from streamq.testing.answers import answer_table, ticks_of
from streamq.testing.python_values import comparable, plain_values
from streamq.time import INFINITY, plain_integer

if TYPE_CHECKING:
    import pyarrow as pa

    from streamq.testing.answers import History

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
    import pyarrow as pa

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
        end, new_end = _or_infinity(row.get("end")), _or_infinity(row.get("new_end"))
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


def _or_infinity(end: int | None) -> int:
    return INFINITY if end is None else end


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


__all__ = ["fold_physical", "is_physical"]
