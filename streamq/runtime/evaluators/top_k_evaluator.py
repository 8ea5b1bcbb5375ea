"""The evaluator of ``top_k`` over windows of every kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import ints
from streamq.runtime.evaluators.member_evaluator import MemberEvaluator
from streamq.runtime.evaluators.numbering import is_new_pair
from streamq.runtime.event import LE, RE
from streamq.runtime.groups import GROUP_NUMBER
from streamq.runtime.open_windows import LAST_END
from streamq.runtime.values import Ints, Mask, column_ranks


@dataclass(frozen=True)
class TopKEvaluator(MemberEvaluator):
    """The ``k`` members of each window with the greatest (or least) ``by``, their ``payload`` and rank.

    row_number: the column for the place of each in its window when ties are broken; empty: none.
    """

    k: int = 1
    by: str = ""
    desc: bool = True
    ties: str = "keep"
    payload: tuple[str, ...] = ()
    rank: str = "rank"
    row_number: str = ""

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
        order, rank, number, is_best = self._ranked(table, members.event, members.owner, members.index)
        last_end = np.zeros(0, np.int64)
        if self.waits_for_members and len(order):
            of_window = np.flatnonzero(is_new_pair(members.owner[order], members.index[order]))
            last_ends = np.maximum.reduceat(ints(table, RE)[members.event[order]], of_window)
            last_end = np.repeat(last_ends, np.diff(np.append(of_window, len(order))))[is_best]
        order, rank, number = order[is_best], rank[is_best], number[is_best]
        rows = table.select([*self.payload, GROUP_NUMBER]).take(pa.array(members.event[order]))
        rows = rows.append_column(self.rank, pa.array(rank, pa.int32()))
        if self.waits_for_members:
            rows = rows.append_column(LAST_END, pa.array(last_end))
        if self.row_number:
            rows = rows.append_column(self.row_number, pa.array(number + 1, pa.int32()))
        return self._stamped(rows, members.start[order], members.end[order])

    @property
    def condenses(self) -> bool:
        """True if settled events stay together in the same windows: all but the best are forgotten, unless windows count them."""
        return self.assigner.has_chains and not self.assigner.counts_events

    def _merged(self, events: pa.Table, number: Ints) -> tuple[pa.Table, Ints]:
        """Return the best events of each number: no other can be among the best of a window with all of these."""
        every = np.arange(len(number))
        order, _, _, is_best = self._ranked(events, every, number, every * 0)
        best = order[is_best]
        return events.take(pa.array(best)), number[best]

    def _ranked(self, table: pa.Table, event: Ints, owner: Ints, index: Ints) -> tuple[Ints, Ints, Ints, Mask]:
        """Return the order of members by window and value, and in that order their ranks, their places from 0 on, and the best.

        A member is an event, by row, in a window, by owner and index.
        """
        value = column_ranks(table, [self.by])[0][event].astype(np.int64)
        value = -value if self.desc else value
        if self.ties == "break":
            place = np.empty(table.num_rows, np.int64)
            rest = (ints(table, RE), ints(table, LE), *reversed(column_ranks(table, self.payload)))
            place[np.lexsort(rest)] = np.arange(table.num_rows)
            order = np.lexsort((place[event], value, index, owner))
        else:
            order = np.lexsort((value, index, owner))
        value = value[order]
        number = np.arange(len(order))
        first = np.zeros(len(order), np.int64)
        rank = first
        if len(order):
            new = is_new_pair(owner[order], index[order])
            first = np.maximum.accumulate(np.where(new, number, 0))
            new[1:] |= value[1:] != value[:-1]
            rank = np.maximum.accumulate(np.where(new, number, 0)) - first + 1
        number = number - first
        is_best = rank <= self.k if self.ties == "keep" else number < self.k
        return order, rank, number, is_best


__all__ = ["TopKEvaluator"]
