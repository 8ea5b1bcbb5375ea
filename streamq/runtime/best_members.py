"""The best members of windows: those with the greatest, or least, values, and their ranks among the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import ints, with_column
from streamq.runtime.evaluators.numbering import is_new_pair
from streamq.runtime.event import LE, RE
from streamq.runtime.values import Ints, Mask, column_ranks


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
        value = column_ranks(table, [self.by])[0][event].astype(np.int64)
        value = -value if self.desc else value
        if self.ties == "break":
            place = np.empty(table.num_rows, np.int64)
            ends = (ints(table, name) for name in (RE, LE) if name in table.column_names)
            place[np.lexsort((*ends, *reversed(column_ranks(table, self.payload))))] = np.arange(table.num_rows)
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


__all__ = ["RankedMembers", "Ranking"]
