"""Match the rows of a physical stream with what they change, and fold them into living events."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from typing import Any, NamedTuple

import pyarrow as pa

from streamq.errors import InvalidEvent, check_keywords
from streamq.runtime.deltas import CTI, INSERT, RETRACT
from streamq.testing.recorded import Column, Names, RecordedRow, read_stream

Rows = Sequence[RecordedRow]
"""Inserts and retractions in order of their micro-batches."""


@check_keywords
def fold_physical(rows: Any, id: str | None = None) -> pa.Table:
    """Return the canonical history of a physical stream; its rows, and those of the result, may be in any order.

    ``rows``: an Arrow table, a pandas frame, or rows as dicts. A row has ``kind`` (insert, retract or cti, also in capitals),
    ``start``, ``end``, for retractions ``new_end``, and its payload under any other names; times are ticks or timestamps, an end
    of None is infinity. A payload column that a row lacks is NULL. A retraction names its event by ``id``, start and end if
    ``id`` is passed (the payload is then that of the insert), else by start, end and payload. Raises InvalidEvent for a
    retraction that matches nothing, and for rows that are not events; SourceError for other objects, and for rows without the
    column ``id``.

    >>> rows = [dict(kind="insert", start=1, end=None, v=3), dict(kind="retract", start=1, end=None, new_end=10, v=3)]
    >>> fold_physical(rows).to_pylist()
    [{'start': 1, 'end': 10, 'v': 3}]
    """
    stream = read_stream(rows, Names(id=id), "fold_physical", is_bag=True)
    for row in stream.rows:
        if row.fault:
            reason = f"{row.fault}: {stream.row(row)}"
            raise InvalidEvent("fold_physical", "a row that is not an event", reason)
    items = [row for row in stream.rows if row.kind != CTI]
    for row in unmatched(items, lambda start: math.inf)[0][:1]:
        raise InvalidEvent("fold_physical", "a retraction that matches nothing", f"found {stream.row(row)}")
    events = history_of(items)
    inserts = [event.insert.at for event in events]
    columns = {name: _taken(stream.columns[name], inserts) for name in stream.payload}
    times = ([event.row.start for event in events], [event.end for event in events])
    return pa.table([*(pa.array(ticks, pa.int64()) for ticks in times), *columns.values()], ["start", "end", *columns])


def _taken(column: Column, places: Sequence[int]) -> pa.Array:
    if isinstance(column, list):
        return pa.array([column[at] for at in places])
    return column.take(pa.array(places, pa.int64()))


def _grouped(rows: Iterable[RecordedRow], key: Callable[[RecordedRow], Hashable]) -> Iterator[list[RecordedRow]]:
    """Yield the rows of each key, in the order of their first ones."""
    groups: dict[Hashable, list[RecordedRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    yield from groups.values()


def in_order(row: RecordedRow) -> tuple[int, int]:
    """Return the key by which rows are in the order of the stream."""
    return row.batch, row.at


def _event(row: RecordedRow) -> tuple[Hashable, ...]:
    return row.whose, row.start


# matching


def unmatched(items: Rows, deadline: Callable[[int], float]) -> tuple[list[RecordedRow], list[RecordedRow]]:
    """Return the retractions that match no event, and those that arrive before the event they match, in order.

    Within a micro-batch, inserts come before retractions, and the order of retractions does not matter. The event of a
    retraction may arrive up to the end of micro-batch ``deadline(start)``. After a retraction that matches nothing, later items
    are judged as if it had matched.
    """
    lost: list[RecordedRow] = []
    early: list[RecordedRow] = []
    for rows in _grouped(items, _event):
        if any(row.kind == RETRACT for row in rows):
            tokens = _Tokens()
            tokens.judge(rows, deadline(rows[0].start or 0))
            lost += tokens.lost
            early += tokens.late
    return sorted(lost, key=in_order), sorted(early, key=in_order)


@dataclass
class _Tokens:
    """The state of one event: the number of tokens at each end, and the retractions that wait for a token at an end.

    ``origins`` are the ends at which tokens were inserted, ``late`` the retractions that waited, ``lost`` those that matched
    none.
    """

    live: Counter[int] = field(default_factory=Counter)
    waiting: dict[int, deque[RecordedRow]] = field(default_factory=lambda: defaultdict(deque))
    origins: set[int] = field(default_factory=set)
    late: list[RecordedRow] = field(default_factory=list)
    lost: list[RecordedRow] = field(default_factory=list)

    def judge(self, rows: Rows, deadline: float) -> None:
        """Apply the rows, micro-batch by micro-batch: ``lost`` are then those that match nothing, ``late`` those that came early.

        Retractions that find no token by the end of micro-batch ``deadline`` match nothing. Of retractions that only match each
        other's new ends, one counts as matching nothing.
        """
        for number, part in groupby(rows, key=lambda row: row.batch):
            if number > deadline:
                self._give_up()
            self._apply(list(part))
        self._give_up()
        circles = _unreached(self.origins, [row for row in rows if row.kind == RETRACT])
        adrift = {row.at for circle in circles for row in circle}
        self.lost += [circle[0] for circle in circles]
        self.late = [row for row in {row.at: row for row in self.late}.values() if row.at not in adrift]

    def _apply(self, rows: Rows) -> None:
        """Apply one micro-batch; a retraction whose new end is not after the start deletes the event.

        A retraction that finds no token waits. Added to ``late`` are those that now find the token that they waited for, and one
        of each circle of retractions that move no token but each other's.
        """
        before = {end for end, n in self.live.items() if n}
        inserted = [row.end for row in rows if row.kind == INSERT]
        moves = [row for row in rows if row.kind == RETRACT]
        self.origins |= set(inserted)
        self.live.update(inserted)
        self.live.update(row.new_end for row in moves if _remains(row))
        for end, wait in self.waiting.items():
            while wait and self.live[end]:
                self.live[end] -= 1
                self.late.append(wait.popleft())
        for leaving in _grouped(moves, lambda row: row.end):
            end = leaving[0].end
            there = min(self.live[end], len(leaving))
            self.live[end] -= there
            self.waiting[end].extend(leaving[there:])
        here = before | set(inserted) | {end for end, wait in self.waiting.items() if wait}
        # a cycle of retractions needs a token that was there before
        self.late += [circle[0] for circle in _unreached(here, moves)]

    def _give_up(self) -> None:
        """Add all waiting retractions to ``lost``; their ends become origins, and no token is taken or added."""
        for end, wait in self.waiting.items():
            if wait:
                self.lost += wait
                self.origins.add(end)
                wait.clear()


def _remains(row: RecordedRow) -> bool:
    return row.start is not None and row.new_end > row.start


def _unreached(origins: Iterable[int], moves: Rows) -> list[list[RecordedRow]]:
    """Return the moves of each connected group of ends that contains no origin; empty if there is no such group."""
    above: dict[int, int] = {}

    def root(end: int) -> int:
        """Return the end that stands for the group of an end."""
        while above.setdefault(end, end) != end:
            above[end] = above[above[end]]
            end = above[end]
        return end

    for row in moves:
        above[root(row.end)] = root(row.new_end)
    reached = {root(end) for end in origins}
    return list(_grouped((row for row in moves if root(row.end) not in reached), lambda row: root(row.end)))


# folding


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that a consumer sees once a micro-batch is complete: an insert, or a retraction if ``new_end`` is not None.

    ``row`` is the row of the change; ``other`` that of the insert if it was made of a delete and an insert, else None.
    """

    row: RecordedRow
    end: int
    new_end: int | None = None
    other: RecordedRow | None = None

    @property
    def start(self) -> int:
        """The start of the event that changes."""
        assert self.row.start is not None
        return self.row.start

    @property
    def sync(self) -> int:
        """The earliest instant that changes."""
        return self.start if self.new_end is None else min(self.end, self.new_end)


def fold_items(items: Rows) -> list[Change]:
    """Fold the items of each micro-batch: a delete and an insert of one event in one micro-batch form a retraction.

    If an event has one item in a micro-batch, that item is a change. If it has several, ends that one item adds and another
    removes cancel out; the remaining ends are paired from the latest down.
    """
    changes: list[Change] = []
    for rows in _grouped(items, lambda row: (row.batch, row.whose, row.start)):
        if len(rows) == 1:
            (row,) = rows
            changes.append(Change(row=row, end=row.end, new_end=row.new_end if row.kind == RETRACT else None))
            continue
        removed, added = _ends(rows)
        sides = (sorted(_remaining(*side), key=lambda end: -end[0]) for side in ((removed, added), (added, removed)))
        for gone, come in zip_longest(*sides):
            if gone is None:
                changes.append(Change(row=come[1], end=come[0]))
            elif come is None:
                changes.append(Change(row=gone[1], end=gone[0], new_end=gone[1].start))
            else:
                changes.append(Change(row=gone[1], end=gone[0], new_end=come[0], other=come[1]))
    return sorted(changes, key=lambda change: in_order(change.row))


End = tuple[int, RecordedRow]
"""An end, and the row that removes or adds it."""


def _ends(rows: Rows) -> tuple[list[End], list[End]]:
    """Return the ends that rows of one event remove, and those that they add."""
    removed = [(row.end, row) for row in rows if row.kind == RETRACT]
    added = [
        (row.end if row.kind == INSERT else row.new_end, row) for row in rows if row.kind == INSERT or _remains(row)
    ]
    return removed, added


def _remaining(ends: Sequence[End], opposite: Sequence[End]) -> list[End]:
    """Return the ends that do not cancel out with equal ``opposite`` ones; the first ones do."""
    cancelled = Counter(end for end, _ in opposite)
    remaining = []
    for end, row in ends:
        if cancelled[end]:
            cancelled[end] -= 1
        else:
            remaining.append((end, row))
    return remaining


class Event(NamedTuple):
    """An event of a history: the row that set its end, its first insert (or else that row), and its end."""

    row: RecordedRow
    insert: RecordedRow
    end: int

    @property
    def start(self) -> int:
        """The start of the event."""
        assert self.row.start is not None
        return self.row.start


def history_of(items: Rows) -> list[Event]:
    """Return the events that remain once every retraction has replaced the lifetime that it retracts by its new one.

    A retraction that matches no event removes nothing, and still adds its new lifetime. Empty lifetimes are left out. The
    remaining events of one lifetime belong to the last rows that added it.
    """
    events = []
    for rows in _grouped(items, _event):
        if len(rows) == 1 and rows[0].kind == INSERT:
            events.append(Event(rows[0], rows[0], rows[0].end))
            continue
        insert = next((row for row in rows if row.kind == INSERT), None)
        removed, added = _ends(rows)
        events += [Event(row, insert or row, end) for end, row in _remaining(added, removed)]
    return events
