"""Match retractions with the events that they change, micro-batch by micro-batch.

An event is a token that stands at its end; a retraction moves one token from one end to another. Sorting in numpy finds the
retractions that meet a token in the order of the rows; only the others are examined in Python.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from streamq.testing.recorded import Bools, Ints

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


__all__ = ["NEVER", "Items", "dense_numbers", "unmatched"]
