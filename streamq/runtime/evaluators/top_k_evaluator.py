"""The evaluator of ``top_k`` over windows of every kind: the members with the greatest, or least, values, and their ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from streamq.plan.partial import COUNT
from streamq.runtime.arrow.columnar import expand_ranges, ints, with_column
from streamq.runtime.arrow.values import Ints, Mask, column_ranks, distinct
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluators.assigner import Ranges, is_new_pair
from streamq.runtime.evaluators.member_evaluator import MemberEvaluator
from streamq.runtime.grid_ranges import LAST_END
from streamq.runtime.groups import GROUP_NUMBER

BLOCK = 8
"""The number of windows of a block; events in all of its windows are ranked together before they are copied into each."""

COPIES = 8
"""The number of windows an event, on average, up to which events are copied without blocks."""


@dataclass(frozen=True)
class Ranking:
    """The ``k`` members of each window with the greatest (or least) ``by``, their ``payload``, rank and place.

    ties: "keep" all members equal to the k-th, or "break" ties by the payload, start and end, so that there are exactly ``k`` (or
    all, if fewer). rank: the column for SQL's RANK; row_number: that for the place of each when ties are broken, empty: none.
    """

    k: int
    by: str
    desc: bool
    ties: str
    payload: tuple[str, ...]
    rank: str
    row_number: str = ""

    def ranked(self, table: pa.Table, event: Ints, owner: Ints, index: Ints) -> RankedMembers:
        """Return members in the order of their windows and values; a member is an event, by row, in a window, by owner and index.

        NULL is the least value.
        """
        return self.ranked_by(self.places(table), event, owner, index)

    def places(self, table: pa.Table) -> tuple[Ints, ...]:
        """Return numbers by which the events of a table are ranked: of their values and, if ties are broken, of their places."""
        value = column_ranks(table, [self.by])[0].astype(np.int64)
        value = -value if self.desc else value
        if self.ties == "keep":
            return (value,)
        place = np.empty(table.num_rows, np.int64)
        ends = (ints(table, name) for name in (RE, LE) if name in table.column_names)
        place[np.lexsort((*ends, *reversed(column_ranks(table, self.payload))))] = np.arange(table.num_rows)
        return value, place

    def ranked_by(self, places: tuple[Ints, ...], event: Ints, owner: Ints, index: Ints) -> RankedMembers:
        """Return members as :meth:`ranked` does, by what :meth:`places` returned."""
        order = np.lexsort((*(numbers[event] for numbers in reversed(places)), index, owner))
        value = places[0][event][order]
        number = np.arange(len(order))
        first = np.zeros(len(order), np.int64)
        rank = first
        if len(order):
            new = is_new_pair(owner[order], index[order])
            first = np.maximum.accumulate(np.where(new, number, 0))
            new[1:] |= value[1:] != value[:-1]
            rank = np.maximum.accumulate(np.where(new, number, 0)) - first + 1
        number = number - first
        return RankedMembers(order, rank, number, rank <= self.k if self.ties == "keep" else number < self.k)

    def with_places(self, rows: pa.Table, rank: Ints, number: Ints) -> pa.Table:
        """Return rows with their ranks, and, if they have a column, their places, which are counted from 0 here, from 1 there."""
        rows = with_column(rows, self.rank, pa.array(rank, pa.int32()))
        return with_column(rows, self.row_number, pa.array(number + 1, pa.int32())) if self.row_number else rows


@dataclass(frozen=True)
class RankedMembers:
    """Members in the ``order`` of their windows and values, and in that order their ranks, places from 0 on, and the best."""

    order: Ints
    rank: Ints
    number: Ints
    is_best: Mask


@dataclass(frozen=True)
class TopKEvaluator(MemberEvaluator):
    """The best members of each window as a ``ranking`` tells."""

    ranking: Ranking = field(kw_only=True)

    def rows(
        self, inputs: Sequence[pa.Table], since: int, upto: int, *, is_asked: Callable[[pa.Table], Mask] | None = None
    ) -> pa.Table:
        """Return the first ``k`` members of each window by ``by``, ranked as SQL's RANK; NULL is the least value.

        With ``ties`` "keep", members equal to the k-th are returned, too; with "break", exactly ``k`` (or all, if fewer), of
        equal ones the least by payload, start and end. The columns are the payload, the rank, the row number if it has a name,
        and the stamped lifetime; if windows wait for members, also the last end of any member of the window. Rows have
        all of these, whatever ``is_asked`` marks.
        """
        table = inputs[0]
        ranges, places = self._ranges(table, since, upto), self.ranking.places(table)
        # the last end of a window is read from all of its members
        members = self._members(ranges if self.waits_for_members else self._few(ranges, places))
        ranked = self.ranking.ranked_by(places, members.event, members.owner, members.index)
        order, is_best = ranked.order, ranked.is_best
        last_end = np.zeros(0, np.int64)
        if self.waits_for_members and len(order):
            of_window = np.flatnonzero(is_new_pair(members.owner[order], members.index[order]))
            last_ends = np.maximum.reduceat(ints(table, RE)[members.event[order]], of_window)
            last_end = np.repeat(last_ends, np.diff(np.append(of_window, len(order))))[is_best]
        order = order[is_best]
        rows = table.select([*self.ranking.payload, GROUP_NUMBER]).take(pa.array(members.event[order]))
        rows = self.ranking.with_places(rows, ranked.rank[is_best], ranked.number[is_best])
        if self.waits_for_members:
            rows = with_column(rows, LAST_END, last_end)
        return self._stamped(rows, members.start[order], members.end[order])

    def _few(self, ranges: Ranges, places: tuple[Ints, ...]) -> Ranges:
        """Return ranges of fewer windows in all, in which the best of each window are those that they are in ``ranges``.

        Of the events that are in all windows of a block the best alone can be among the best of one of these. They are found
        in the same way, as blocks are windows of wider ones; so an event is copied into O(log n) windows of n.
        """
        low, high = ranges.low, ranges.high
        if int((high - low + 1).sum()) <= COPIES * len(low):
            return ranges
        first, end = -(-low // BLOCK), (high + 1) // BLOCK
        has_blocks = first < end
        blocks = self._few(replace(ranges, low=first, high=end - 1).take(has_blocks), places)
        which, block = expand_ranges(blocks.low, blocks.high)
        event, owner = blocks.event[which], blocks.owner[which]
        ranked = self.ranking.ranked_by(places, event, owner, block)
        best = ranked.order[ranked.is_best]
        inside = Ranges(event[best], owner[best], block[best] * BLOCK, block[best] * BLOCK + BLOCK - 1, ranges.where)
        before = replace(ranges, high=np.where(has_blocks, first * BLOCK - 1, high))
        after = replace(ranges, low=end * BLOCK).take(has_blocks)
        parts = [vars(part) for part in (inside, before, after)]
        names = ("event", "owner", "low", "high")
        joined = {name: np.concatenate([part[name] for part in parts]) for name in names}
        return Ranges(**joined, where=ranges.where).some()

    @property
    def condenses(self) -> bool:
        """True if settled events stay together in the same windows: all but the best are forgotten.

        Where windows count events, an end that may move would part those that are next to one another.
        """
        return self.assigner.has_chains and not (self.assigner.counts_events and self.waits_for_members)

    def condensable(self, deltas: pa.Table) -> pa.Table:
        """Return deltas, where windows count events with the number that each row counts for."""
        counts = self.assigner.counts_events
        return with_column(deltas, COUNT, np.ones(deltas.num_rows, np.int64)) if counts else deltas

    def condensed(self, events: pa.Table, number: Ints) -> tuple[pa.Table, Ints]:
        """Return the best events of each number, and the number of each.

        Where windows count events, these keep their order and lifetimes, and the first of a number stays, too, and counts for
        those that are forgotten: no window parts them, and there are better ones in each that has it.
        """
        if not self.assigner.counts_events:
            return super().condensed(events, number)
        stays = np.zeros(len(number), bool)
        stays[self._best_of(events, number)] = True
        heads = self.assigner.heads(events, number)[distinct(number)]
        stays[heads] = True
        count = ints(events, COUNT).copy()
        all_of_number = np.bincount(number, count).astype(np.int64)
        count[stays] = 1
        count[heads] += (all_of_number - np.bincount(number, stays).astype(np.int64))[number[heads]]
        return with_column(events, COUNT, count).filter(pa.array(stays)), number[stays]

    def _merged(self, events: pa.Table, number: Ints) -> tuple[pa.Table, Ints]:
        """Return the best events of each number: no other can be among the best of a window with all of these."""
        best = self._best_of(events, number)
        return events.take(pa.array(best)), number[best]

    def _best_of(self, events: pa.Table, number: Ints) -> Ints:
        every = np.arange(len(number))
        ranked = self.ranking.ranked(events, every, number, every * 0)
        return ranked.order[ranked.is_best]
