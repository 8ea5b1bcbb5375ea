"""Retractions matched with the events they take back, micro-batch by micro-batch.

An event is a token that stands at its end; a retraction moves one token of its place. Where the rows in the order they
have already say that every token is there when it is moved, sorting shows it; only what is left is looked at in Python.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from streamq.testing.recorded import Bools, Ints

NEVER = 2**62
"""A deadline that does not come."""


@dataclass(frozen=True)
class Items:
    """Inserts and retractions, in order of their micro-batches: ``event`` is equal for rows of one start and payload (or id).

    ``taken`` are the retractions, ``end`` is what an insert makes or a retraction takes back, ``new_end`` what it makes.
    """

    event: Ints
    is_retraction: Bools
    start: Ints
    end: Ints
    new_end: Ints
    batch: Ints


def unmatched(items: Items, deadline: Ints) -> tuple[list[int], list[int]]:
    """The retractions that match nothing, and those that have come before what they match.

    In a micro-batch inserts count before retractions, which count in any order. What a retraction takes back may come
    after it up to the end of micro-batch ``deadline`` (one an item, equal for one event), then it matches nothing.
    What follows a retraction that matches nothing is judged as if it had matched.
    """
    unmatched_rows: list[int] = []
    early_rows: list[int] = []
    doubtful = np.isin(items.event, items.event[_without_token(items)])
    for rows in _runs(items.event, np.flatnonzero(doubtful)):
        judged = _Event().judge(items, rows, int(deadline[rows[0]]))
        unmatched_rows += judged[0]
        early_rows += judged[1]
    return sorted(unmatched_rows), sorted(early_rows)


def _without_token(items: Items) -> Ints:
    """The retractions that, the rows of a micro-batch taken inserts first and then as they stand, find no token."""
    rows = np.arange(len(items.event))
    takes, makes = (
        np.flatnonzero(items.is_retraction),
        np.flatnonzero(~items.is_retraction | (items.new_end > items.start)),
    )
    new_ends = np.where(items.is_retraction, items.new_end, items.end)
    row = np.concatenate([takes, makes])
    weight = np.repeat([-1, 1], [len(takes), len(makes)])
    place = numbered(items.event[row], np.concatenate([items.end[takes], new_ends[makes]]))
    order = np.lexsort((weight, rows[row], items.is_retraction[row], items.batch[row], place))
    total = np.cumsum(weight[order])
    first = np.flatnonzero(np.diff(place[order], prepend=-1))
    before = np.repeat(total[first] - weight[order][first], np.diff(np.append(first, len(order))))
    return np.asarray(row[order][total < before], np.int64)


def numbered(*columns: Ints) -> Ints:
    """A dense number for every combination of values."""
    numbers = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, dense = np.unique(column, return_inverse=True)
        numbers = np.unique(numbers * max(1, len(values)) + dense, return_inverse=True)[1].astype(np.int64)
    return numbers


def _runs(of: Ints, rows: Ints) -> Iterator[list[int]]:
    """The rows of each value, in order."""
    rows = rows[np.argsort(of[rows], kind="stable")]
    for part in np.split(rows, np.flatnonzero(np.diff(of[rows])) + 1):
        if len(part):
            yield part.tolist()


@dataclass
class _Event:
    """The tokens of one start and payload: how many stand at an end, and the retractions that wait for one to come there."""

    live: Counter[int] = field(default_factory=Counter)
    waiting: dict[int, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    origins: set[int] = field(default_factory=set)
    late: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    def judge(self, items: Items, rows: Sequence[int], deadline: int) -> tuple[list[int], list[int]]:
        """The retractions among the rows that match nothing, and those that come too early."""
        moves = {i: (int(items.end[i]), int(items.new_end[i])) for i in rows if items.is_retraction[i]}
        for part in _runs(items.batch, np.array(rows)):
            if items.batch[part[0]] > deadline:
                self._give_up()
            inserted = [int(items.end[i]) for i in part if i not in moves]
            self._take(inserted, {i: moves[i] for i in part if i in moves}, int(items.start[part[0]]))
        self._give_up()
        circles = _unreached(self.origins, moves)
        adrift = {i for circle in circles for i in circle}
        return self.lost + [circle[0] for circle in circles], [i for i in dict.fromkeys(self.late) if i not in adrift]

    def _take(self, inserted: Sequence[int], moves: dict[int, tuple[int, int]], start: int) -> None:
        """One micro-batch."""
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
        # retractions that lead in a circle need a token to lead around
        self.late += [circle[0] for circle in _unreached(here, moves)]

    def _give_up(self) -> None:
        for end, wait in self.waiting.items():
            if wait:
                self.lost += wait
                self.origins.add(end)
                wait.clear()


def _unreached(origins: Iterable[int], moves: dict[int, tuple[int, int]]) -> list[list[int]]:
    """The moves of each connected group of ends that has no origin."""
    above: dict[int, int] = {}

    def root(end: int) -> int:
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


__all__ = ["NEVER", "Items", "numbered", "unmatched"]
