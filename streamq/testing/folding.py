"""Fold the items of each micro-batch into the changes that a consumer sees, and all items into a history."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamq.testing.matching import Items, dense_numbers
from streamq.testing.recorded import Bools, Ints


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


__all__ = ["FoldedChanges", "Events", "fold_items", "history_of"]
