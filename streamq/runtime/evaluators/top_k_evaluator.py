"""The evaluator of ``top_k`` over windows of every kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamq.plan.partial import COUNT
from streamq.runtime.best_members import Ranking
from streamq.runtime.columnar import ints, with_column
from streamq.runtime.evaluators.member_evaluator import MemberEvaluator
from streamq.runtime.evaluators.numbering import is_new_pair
from streamq.runtime.event import RE
from streamq.runtime.groups import GROUP_NUMBER
from streamq.runtime.open_windows import LAST_END
from streamq.runtime.values import Ints, Mask


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
        members = self._members(self._ranges(table, since, upto))
        ranked = self.ranking.ranked(table, members.event, members.owner, members.index)
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
        heads = self.assigner.heads(events, number)[np.unique(number)]
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
        """Return the rows of the best events of each number."""
        every = np.arange(len(number))
        ranked = self.ranking.ranked(events, every, number, every * 0)
        return ranked.order[ranked.is_best]


__all__ = ["TopKEvaluator"]
