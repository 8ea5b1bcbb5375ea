"""What the rows of each micro-batch change once they are folded, and the history that is left of all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamq.testing.matching import Items, numbered
from streamq.testing.recorded import Bools, Ints


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Inserts and retractions, in order of their micro-batches, as a consumer sees them once a micro-batch is complete.

    ``row`` and ``other`` are the items that make it: one and -1, or of a pair the delete and the insert. ``sync`` is the
    earliest instant that changes. The other fields are those of Items.
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


def folded(items: Items) -> Changes:
    """The items folded: a delete and an insert of one event in one micro-batch *are* a retraction.

    An item that is the only one of its event in its micro-batch is taken by its word. Of several, what one gives and
    another takes cancels out, and what is left is paired from the latest end down.
    """
    of = numbered(items.batch, items.event)
    alone = np.bincount(of, minlength=1)[of] == 1
    single = np.flatnonzero(alone)
    retracted_ends, new_ends, deleted, inserted = _paired(items, of, np.flatnonzero(~alone))
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
    # in the order of the rows
    order = np.lexsort((row, items.batch[row]))
    row, other, is_retraction, end, new_end = row[order], other[order], is_retraction[order], end[order], new_end[order]
    start = items.start[row]
    sync = np.where(is_retraction, np.minimum(end, new_end), start)
    return Changes(
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
"""Items, and the end that each takes or gives."""


def _paired(items: Items, of: Ints, rows: Ints) -> tuple[Halves, Halves, Halves, Halves]:
    """The ends taken and the ends given that make retractions, those only taken, those only given."""
    takes = rows[items.is_retraction[rows]]
    gives = rows[~items.is_retraction[rows] | (items.new_end[rows] > items.start[rows])]
    row = np.concatenate([takes, gives])
    gives_end = np.where(items.is_retraction[gives], items.new_end[gives], items.end[gives])
    end = np.concatenate([items.end[takes], gives_end])
    plus = np.repeat([False, True], [len(takes), len(gives)])
    place = numbered(of[row], end)
    left = _rank(place, plus, row) >= _counts(place, ~plus, plus)
    row, end, plus = row[left], end[left], plus[left]
    whose = of[row]
    rank = _rank(whose, plus, -end)
    paired = rank < _counts(whose, ~plus, plus)

    def half(which: Bools) -> Halves:
        order = np.lexsort((rank[which], whose[which]))
        return row[which][order], end[which][order]

    return half(paired & ~plus), half(paired & plus), half(~paired & ~plus), half(~paired & plus)


def _rank(group: Ints, plus: Bools, by: Ints) -> Ints:
    """The place of each row among those of its group and sign."""
    order = np.lexsort((by, plus, group))
    both = (group * 2 + plus)[order]
    first = np.flatnonzero(np.diff(both, prepend=-1))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return ranks


def _counts(group: Ints, wanted: Bools, plus: Bools) -> Ints:
    """How many rows of each row's group have the wanted sign."""
    counts = np.bincount(group * 2 + plus, minlength=2 * (int(group.max(initial=-1)) + 1))
    return np.asarray(counts[group * 2 + wanted], np.int64)


@dataclass(frozen=True)
class Events:
    """The events of a history: the item that gave each its end, the insert of it, and its lifetime."""

    row: Ints
    insert: Ints
    start: Ints
    end: Ints


def history_of(items: Items) -> Events:
    """Every retraction folded into its insert; what matches nothing takes nothing away."""
    rows = np.arange(len(items.event))
    row = np.concatenate([rows, rows[items.is_retraction]])
    end = np.concatenate([np.where(items.is_retraction, items.new_end, items.end), items.end[items.is_retraction]])
    is_first_end = np.arange(len(row)) < len(rows)
    place = numbered(items.event[row], end)
    # of those who gave a place its events, the last as many as are left
    left = _counts(place, is_first_end, is_first_end) - _counts(place, ~is_first_end, is_first_end)
    there = is_first_end & (_rank(place, is_first_end, -row) < left) & (end > items.start[row])
    row, end = row[there], end[there]
    first = np.full(int(items.event.max(initial=-1)) + 1, -1)
    inserts = rows[~items.is_retraction][::-1]
    first[items.event[inserts]] = inserts
    insert = first[items.event[row]]
    return Events(row, np.where(insert >= 0, insert, row), items.start[row], end)


__all__ = ["Changes", "Events", "folded", "history_of"]
