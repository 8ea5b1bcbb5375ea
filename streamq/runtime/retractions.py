"""Retractions and their events: each retraction moves an end, so the retractions of one event form a chain from end to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import codes, concat, ints, with_column
from streamq.runtime.event import NEW_END, RE
from streamq.runtime.lateness import is_behind
from streamq.runtime.values import Mask

EVENT = "__event"
"""The column of a row's event number; rows are matched by it, never by their values."""

BEHIND = "__behind"
"""The column that is true for a retraction that was late when it came."""

EventRow = dict[str, Any]
"""A retraction, or a live event, without its payload."""

Moves = list[tuple[int, EventRow]]
"""Retractions by their numbers in the micro-batch."""

Lifetimes = list[tuple[int, int]]
"""Starts and ends of the lifetimes sent for an event; one that ends where it starts is empty."""

RowPlace = tuple[int, int]
"""An event, by its number, at one of its ends."""


def with_lateness(retractions: pa.Table, c: int) -> pa.Table:
    """Return retractions with BEHIND: true if the lesser of their two ends lies behind c."""
    sync = np.minimum(ints(retractions, RE), ints(retractions, NEW_END))
    return with_column(retractions, BEHIND, is_behind(sync, c))


def event_place(row: EventRow) -> RowPlace:
    """Return the end at which a retraction finds its event: the end that it moves."""
    return (row[EVENT], row[RE])


def destination(move: EventRow) -> RowPlace:
    """Return the end at which a retraction leaves its event, and the next one of its chain finds it."""
    return (move[EVENT], move[NEW_END])


def numbered_event_rows(
    tables: Sequence[pa.Table], names: Sequence[str], technical: frozenset[str]
) -> list[list[EventRow]]:
    """Return the rows of each table as dictionaries, with an event number; rows of equal ``names`` are one event in all tables.

    A dictionary has the columns in ``technical``, and none of the payload.
    """
    number, _ = codes(concat([t.select(names).cast(tables[0].select(names).schema) for t in tables]), names)
    rows = []
    for table in tables:
        part, number = number[: table.num_rows], number[table.num_rows :]
        without_payload = table.select([n for n in table.column_names if n in technical])
        rows.append(with_column(without_payload, EVENT, part).to_pylist())
    return rows


def without_cycles(moves: Moves) -> Moves:
    """Return the moves without those that together lead an event back to the same end.

    Retractions of one event that arrive out of order may be matched in another order than they were made; those left over then
    form cycles, and add up to nothing.
    """
    left = dict(moves)
    leaving: dict[RowPlace, list[int]] = {}
    for number, move in moves:
        leaving.setdefault(event_place(move), []).append(number)
    for first in [number for number, _ in moves]:
        path: list[int] = []
        seen: dict[RowPlace, int] = {}
        at: int | None = first if first in left else None
        while at is not None:
            seen[event_place(left[at])] = len(path)
            path.append(at)
            there = destination(left[at])
            if there in seen:
                for number in path[seen[there] :]:
                    del left[number]
                break
            at = next((n for n in leaving.get(there, ()) if n in left), None)
    return [(number, move) for number, move in moves if number in left]


def is_cut_off(moves: Sequence[EventRow], is_lost: Mask) -> Mask:
    """Mark the lost moves to whose beginning no move leads that is not lost, directly or through lost ones."""
    is_lost = is_lost.copy()
    reached = {destination(move) for move, lost in zip(moves, is_lost, strict=True) if not lost}
    going = True
    while going:
        going = False
        for i, move in enumerate(moves):
            if is_lost[i] and event_place(move) in reached:
                is_lost[i], going = False, True
                reached.add(destination(move))
    return is_lost


def lifetimes_without(some: Sequence[Lifetimes], others: Sequence[Lifetimes]) -> list[tuple[int, int, int]]:
    """Return the lifetimes of events that are not among the ``others`` of the same event, as (event number, start, end).

    Empty ones are left out.
    """
    return [
        (i, start, end)
        for i, (mine, same) in enumerate(zip(some, others, strict=True))
        for start, end in mine
        if end > start and (start, end) not in same
    ]
