"""Match the rows of a physical stream with what they change, and fold them into living events."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.errors import InvalidEvent, sentence
from streamq.keywords import check_keywords
from streamq.runtime.event import CTI, RETRACT
from streamq.testing.recorded import (
    KINDS,
    NO_ITEM,
    Bools,
    Column,
    Ints,
    Names,
    RecordedStream,
    no_items,
    own_columns,
    read_stream,
)

NEVER = 2**62
"""A deadline after all micro-batches."""


@dataclass(frozen=True)
class Items:
    """Inserts and retractions in order of their micro-batches.

    ``event`` is a number for each start and payload (or id). ``end`` is the end that an insert sets or that a retraction
    replaces, ``new_end`` the end that a retraction sets.
    """

    event: Ints
    is_retraction: Bools
    start: Ints
    end: Ints
    new_end: Ints
    batch: Ints


def items_of(stream: RecordedStream, rows: Ints) -> Items:
    """Return rows of a stream that are inserts and retractions."""
    return Items(
        dense_numbers(stream.whose[rows], stream.start[rows]),
        stream.kind[rows] == KINDS.index(RETRACT),
        stream.start[rows],
        stream.end[rows],
        stream.new_end[rows],
        stream.batch[rows],
    )


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
    stream = read_stream(rows, Names(id=id), "fold_physical")
    wrong = no_items(stream)
    for row in np.flatnonzero(wrong >= 0)[:1].tolist():
        reason = f"{NO_ITEM[wrong[row]]}: {stream.row(row)}"
        raise InvalidEvent(sentence("fold_physical", "a row that is not an event", reason))
    there = np.flatnonzero(stream.kind != KINDS.index(CTI))
    items = items_of(stream, there)
    # the order of rows does not matter, as in one micro-batch
    items = replace(items, batch=np.zeros(len(there), np.int64))
    for row in unmatched(items, np.full(len(there), NEVER))[0][:1]:
        found = f"found {stream.row(int(there[row]))}"
        raise InvalidEvent(sentence("fold_physical", "a retraction that matches nothing", found))
    events = history_of(items)
    inserts = stream.at[there[events.insert]]
    own = {name: column for name, column in stream.columns.items() if name not in own_columns(stream.names)}
    columns = {name: _taken(column, inserts) for name, column in own.items()}
    return pa.table({"start": pa.array(events.start), "end": pa.array(events.end), **columns})


def _taken(column: Column, places: Ints) -> pa.Array:
    return pa.array([column[at] for at in places]) if isinstance(column, list) else column.take(pa.array(places))


def unmatched(items: Items, deadline: Ints) -> tuple[list[int], list[int]]:
    """Return the rows of the retractions that match no event, and of those that arrive before the event they match.

    Within a micro-batch, inserts come before retractions, and the order of retractions does not matter. The event of a
    retraction may arrive up to the end of micro-batch ``deadline`` (a number for each item, equal for all items of an event).
    After a retraction that matches nothing, later items are judged as if it had matched.
    """
    unmatched_rows: list[int] = []
    early_rows: list[int] = []
    is_doubtful = np.isin(items.event, items.event[_without_token(items)])
    for rows in _rows_by_value(items.event, np.flatnonzero(is_doubtful)):
        judged = _Event().judge(items, rows, int(deadline[rows[0]]))
        unmatched_rows += judged[0]
        early_rows += judged[1]
    return sorted(unmatched_rows), sorted(early_rows)


def _without_token(items: Items) -> Ints:
    """Return rows of the events in which some retraction finds no token; they need not be retractions, and may be there twice.

    Each micro-batch's inserts are applied first, then its retractions in order. An event without such a retraction has no row.
    """
    rows = np.arange(len(items.event))
    removing, adding = (
        np.flatnonzero(items.is_retraction),
        np.flatnonzero(~items.is_retraction | (items.new_end > items.start)),
    )
    new_ends = np.where(items.is_retraction, items.new_end, items.end)
    row = np.concatenate([removing, adding])
    weight = np.repeat([-1, 1], [len(removing), len(adding)])
    place = dense_numbers(items.event[row], np.concatenate([items.end[removing], new_ends[adding]]))
    order = np.lexsort((weight, rows[row], items.is_retraction[row], items.batch[row], place))
    total = np.cumsum(weight[order])
    first = np.flatnonzero(np.diff(place[order], prepend=-1))
    before = np.repeat(total[first] - weight[order][first], np.diff(np.append(first, len(order))))
    return np.asarray(row[order][total < before], np.int64)


def dense_numbers(*columns: Ints) -> Ints:
    """Return, for each row, a number for its combination of values; numbers are dense from 0, in the order of the values."""
    numbers = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, dense = np.unique(column, return_inverse=True)
        numbers = np.unique(numbers * max(1, len(values)) + dense, return_inverse=True)[1].astype(np.int64)
    return numbers


def _rows_by_value(values: Ints, rows: Ints) -> Iterator[list[int]]:
    """Yield the ``rows`` of each value, in ascending order of values; ``values`` has the value of item i at place i."""
    rows = rows[np.argsort(values[rows], kind="stable")]
    for part in np.split(rows, np.flatnonzero(np.diff(values[rows])) + 1):
        if len(part):
            yield part.tolist()


@dataclass
class _Event:
    """The state of one event: the number of tokens at each end, and the retractions that wait for a token at an end.

    ``origins`` are the ends at which tokens were inserted, ``late`` the retractions that waited, ``lost`` those that matched
    none.
    """

    live: Counter[int] = field(default_factory=Counter)
    waiting: dict[int, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    origins: set[int] = field(default_factory=set)
    late: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    def judge(self, items: Items, rows: Sequence[int], deadline: int) -> tuple[list[int], list[int]]:
        """Apply the rows, micro-batch by micro-batch; return the retractions that match nothing, and those that came early.

        Retractions that find no token by the end of micro-batch ``deadline`` match nothing. Of retractions that only match each
        other's new ends, one counts as matching nothing.
        """
        moves = {i: (int(items.end[i]), int(items.new_end[i])) for i in rows if items.is_retraction[i]}
        for part in _rows_by_value(items.batch, np.array(rows)):
            if items.batch[part[0]] > deadline:
                self._give_up()
            inserted = [int(items.end[i]) for i in part if i not in moves]
            self._apply(inserted, {i: moves[i] for i in part if i in moves}, int(items.start[part[0]]))
        self._give_up()
        circles = _unreached(self.origins, moves)
        adrift = {i for circle in circles for i in circle}
        return self.lost + [circle[0] for circle in circles], [i for i in dict.fromkeys(self.late) if i not in adrift]

    def _apply(self, inserted: Sequence[int], moves: dict[int, tuple[int, int]], start: int) -> None:
        """Apply one micro-batch: the ends of its inserts, and the (end, new end) of each retraction, by row.

        ``start`` is the event's start; a retraction whose new end is not after it deletes the event. A retraction that finds no
        token waits. Added to ``late`` are those that now find the token that they waited for, and one of each circle of
        retractions that move no token but each other's.
        """
        before = {end for end, n in self.live.items() if n}
        self.origins |= set(inserted)
        self.live.update(inserted)
        self.live.update(new_end for _, new_end in moves.values() if new_end > start)
        for end, wait in self.waiting.items():
            while wait and self.live[end]:
                self.live[end] -= 1
                self.late.append(wait.popleft())
        leaving: dict[int, list[int]] = defaultdict(list)
        for i, (end, _) in moves.items():
            leaving[end].append(i)
        for end, rows in leaving.items():
            there = min(self.live[end], len(rows))
            self.live[end] -= there
            self.waiting[end].extend(rows[there:])
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


def _unreached(origins: Iterable[int], moves: dict[int, tuple[int, int]]) -> list[list[int]]:
    """Return the rows of the moves of each connected group of ends that contains no origin; empty if there is no such group."""
    above: dict[int, int] = {}

    def root(end: int) -> int:
        """Return the end that stands for the group of an end."""
        while above.setdefault(end, end) != end:
            above[end] = above[above[end]]
            end = above[end]
        return end

    for a, b in moves.values():
        above[root(a)] = root(b)
    reached = {root(end) for end in origins}
    groups: dict[int, list[int]] = {}
    for i, (end, _) in moves.items():
        if root(end) not in reached:
            groups.setdefault(root(end), []).append(i)
    return list(groups.values())


@dataclass(frozen=True, kw_only=True)
class FoldedChanges:
    """Inserts and retractions in order of their micro-batches, as a consumer sees them once a micro-batch is complete.

    ``row`` and ``other`` are the numbers of the items that form a change: one item and -1, or a delete and an insert that are a
    pair. ``sync`` is the earliest instant that changes. The other fields are those of Items.
    """

    row: Ints
    other: Ints
    is_retraction: Bools
    start: Ints
    end: Ints
    new_end: Ints
    batch: Ints
    sync: Ints

    def __len__(self) -> int:
        return len(self.row)


def fold_items(items: Items) -> FoldedChanges:
    """Fold the items of each micro-batch: a delete and an insert of one event in one micro-batch form a retraction.

    If an event has one item in a micro-batch, that item is a change. If it has several, ends that one item adds and another
    removes cancel out; the remaining ends are paired from the latest down.
    """
    group = dense_numbers(items.batch, items.event)
    is_alone = np.bincount(group, minlength=1)[group] == 1
    single = np.flatnonzero(is_alone)
    retracted_ends, new_ends, deleted, inserted = _pair_ends(items, group, np.flatnonzero(~is_alone))
    none = np.full(len(items.event), -1)
    row = np.concatenate([single, retracted_ends[0], deleted[0], inserted[0]])
    other = np.concatenate([none[single], new_ends[0], none[deleted[0]], none[inserted[0]]])
    is_retraction = np.concatenate(
        [
            items.is_retraction[single],
            np.repeat([True, False], [len(retracted_ends[0]) + len(deleted[0]), len(inserted[0])]),
        ]
    )
    end = np.concatenate([items.end[single], retracted_ends[1], deleted[1], inserted[1]])
    new_end = np.concatenate([items.new_end[single], new_ends[1], items.start[deleted[0]], inserted[1]])
    # in order of micro-batches and rows
    order = np.lexsort((row, items.batch[row]))
    row, other, is_retraction, end, new_end = row[order], other[order], is_retraction[order], end[order], new_end[order]
    start = items.start[row]
    sync = np.where(is_retraction, np.minimum(end, new_end), start)
    return FoldedChanges(
        row=row,
        other=other,
        is_retraction=is_retraction,
        start=start,
        end=end,
        new_end=new_end,
        batch=items.batch[row],
        sync=sync,
    )


Halves = tuple[Ints, Ints]
"""Numbers of items, and the end that each item removes or adds."""


def _pair_ends(items: Items, group: Ints, rows: Ints) -> tuple[Halves, Halves, Halves, Halves]:
    """Return removed ends and added ends that form retractions, then the other removed ends, then the other added ends.

    ``group`` numbers the event and micro-batch of each item; ``rows`` are the items to pair.
    """
    removing = rows[items.is_retraction[rows]]
    adding = rows[~items.is_retraction[rows] | (items.new_end[rows] > items.start[rows])]
    row = np.concatenate([removing, adding])
    added_end = np.where(items.is_retraction[adding], items.new_end[adding], items.end[adding])
    end = np.concatenate([items.end[removing], added_end])
    is_added = np.repeat([False, True], [len(removing), len(adding)])
    place = dense_numbers(group[row], end)
    remains = _rank(place, is_added, row) >= _counts(place, ~is_added, is_added)
    row, end, is_added = row[remains], end[remains], is_added[remains]
    event = group[row]
    rank = _rank(event, is_added, -end)
    is_paired = rank < _counts(event, ~is_added, is_added)

    def half(mask: Bools) -> Halves:
        order = np.lexsort((rank[mask], event[mask]))
        return row[mask][order], end[mask][order]

    return (
        half(is_paired & ~is_added),
        half(is_paired & is_added),
        half(~is_paired & ~is_added),
        half(~is_paired & is_added),
    )


def _rank(group: Ints, plus: Bools, by: Ints) -> Ints:
    """Return the position of each row, from 0 for the least ``by``, among the rows of its group with its sign ``plus``.

    Rows that are equal in all of these keep their order.
    """
    order = np.lexsort((by, plus, group))
    both = (group * 2 + plus)[order]
    first = np.flatnonzero(np.diff(both, prepend=-1))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return ranks


def _counts(group: Ints, wanted: Bools, plus: Bools) -> Ints:
    """Return, for each row, the number of rows in its group whose sign is ``wanted``."""
    counts = np.bincount(group * 2 + plus, minlength=2 * (int(group.max(initial=-1)) + 1))
    return np.asarray(counts[group * 2 + wanted], np.int64)


@dataclass(frozen=True)
class Events:
    """The events of a history: the item that set each event's end, its first insert (or else that item), and its lifetime."""

    row: Ints
    insert: Ints
    start: Ints
    end: Ints


def history_of(items: Items) -> Events:
    """Return the events that remain once every retraction has replaced the lifetime that it retracts by its new one.

    A retraction that matches no event removes nothing, and still adds its new lifetime. Empty lifetimes are left out.
    """
    rows = np.arange(len(items.event))
    row = np.concatenate([rows, rows[items.is_retraction]])
    end = np.concatenate([np.where(items.is_retraction, items.new_end, items.end), items.end[items.is_retraction]])
    is_first_end = np.arange(len(row)) < len(rows)
    place = dense_numbers(items.event[row], end)
    # the remaining events of one lifetime belong to the last items that added it
    left = _counts(place, is_first_end, is_first_end) - _counts(place, ~is_first_end, is_first_end)
    there = is_first_end & (_rank(place, is_first_end, -row) < left) & (end > items.start[row])
    row, end = row[there], end[there]
    first = np.full(int(items.event.max(initial=-1)) + 1, -1)
    inserts = rows[~items.is_retraction][::-1]
    first[items.event[inserts]] = inserts
    insert = first[items.event[row]]
    return Events(row, np.where(insert >= 0, insert, row), items.start[row], end)
