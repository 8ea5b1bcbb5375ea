"""Evaluators over one stream that change lifetimes by other events in it: signals, pieces, repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.grid import Grid
from streamq.runtime.columnar import codes, expand_ranges, ints, with_column
from streamq.runtime.evaluator import SettledProgress
from streamq.runtime.event import LE, RE
from streamq.runtime.grid_ranges import grid_lifetimes, grid_range
from streamq.runtime.groups import GROUP_NUMBER, ToCome
from streamq.runtime.overlap import next_after
from streamq.runtime.release import Release
from streamq.runtime.values import ORDER, Ints, Mask, column_ranks, combine_numbers, number_values
from streamq.time import MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule


@dataclass(frozen=True)
class SignalEvaluator(SettledProgress):
    """Events end at the next strictly later LE of equal keys; those of one LE at once, if another is later by ``order_by``."""

    keys: tuple[str, ...]
    order_by: tuple[str, ...] = ()

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        """The keys."""
        return (self.keys,)

    @property
    def progress_rule(self) -> ProgressRule:
        """Rows are final once they are settled; the last one of a key ends with the next."""
        from streamq.runtime.progress_rule import SETTLED, EndlessRow

        return replace(SETTLED, endless=EndlessRow.THE_NEXT)

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """Return the events, each ended by the next later start of its keys; INFINITY if there is none. Old ends are ignored.

        With ``order_by`` only the last events of a start are among them.
        """
        table = inputs[0]
        if self.order_by:
            table = table.filter(pa.array(self._is_last(table)))
        group, le = ints(table, GROUP_NUMBER), ints(table, LE)
        return with_column(table, RE, next_after(group, le, group, le))

    def _is_last(self, table: pa.Table) -> Mask:
        """Mark the events that are last by ``order_by`` among those of their keys and start."""
        place, _ = codes(table, (GROUP_NUMBER, LE))
        rank, _ = combine_numbers([number_values(table.column(name), ORDER) for name in self.order_by])
        greatest = np.full(int(place.max(initial=0)) + 1, -1)
        np.maximum.at(greatest, place, rank)
        return np.asarray(rank == greatest[place])

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Keep each key's last samples before c, all that start then, and those from c on; ends do not count."""
        table = inputs[0]
        group, le = ints(table, GROUP_NUMBER), ints(table, LE)
        least = np.full(int(group.max(initial=0)) + 1, MINUS_INFINITY)
        before = le < c
        np.maximum.at(least, group[before], le[before])
        return [le >= np.minimum(least[group], c)]


@dataclass(frozen=True)
class ChopEvaluator(SettledProgress):
    """Lifetimes cut at the points of a grid."""

    cells: Grid

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        """The start: each event is cut by itself, so any grouping will do."""
        return ((LE,),)

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """Return the pieces of each event in cells that end after ``since``, as far as the pieces start before ``upto``.

        That holds for all events; an endless one has no piece if ``upto`` is INFINITY.
        """
        table = inputs[0]
        le, re = ints(table, LE), ints(table, RE)
        low, high = grid_range(self.cells, table, since, upto)
        which, index = expand_ranges(low, high)
        start, end = grid_lifetimes(self.cells, index)
        begin, end = np.maximum(le[which], start), np.minimum(re[which], end)
        # in a cell that starts before the bound an event may start after it
        is_bounded = begin < upto
        pieces = table.take(pa.array(which[is_bounded]))
        return with_column(with_column(pieces, LE, begin[is_bounded]), RE, end[is_bounded])

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Keep unsettled events."""
        return [ints(inputs[0], RE) >= c]

    def to_come(self, inputs: Sequence[pa.Table], upto: int) -> ToCome:
        """Return the events that live beyond ``upto``, with the start of the first cell from there on."""
        later = ints(inputs[0], GROUP_NUMBER)[ints(inputs[0], RE) > upto]
        return ToCome(later, np.full(len(later), self.cells.next_start(upto)))


@dataclass(frozen=True)
class DistinctIdsEvaluator(SettledProgress):
    """Drops an event if one of its ``ids`` started in ``[LE - within, LE)``, or at LE with a smaller (RE, payload)."""

    ids: tuple[str, ...]
    names: tuple[str, ...]
    within: int

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        """The ids."""
        return (self.ids,)

    @property
    def progress_rule(self) -> ProgressRule:
        """A row is final once it has started: its end does not move any more, and only earlier events could repeat it."""
        from streamq.runtime.progress_rule import SETTLED

        return replace(SETTLED, final=Release.PAST_START)

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """Return the events that repeat none, in their order; ids that are NULL are equal. ``since`` and ``upto`` leave out none.

        Sorted by id and (LE, RE, payload), an event repeats the one before it if that has the same id and starts at most
        ``within`` earlier, even if that is left out itself.
        """
        table = inputs[0]
        if not table.num_rows:
            return table
        group, le, re = ints(table, GROUP_NUMBER), ints(table, LE), ints(table, RE)
        order = np.lexsort((*reversed(column_ranks(table, self.names)), re, le, group))
        group, le = group[order], le[order]
        same = np.zeros(len(order), bool)
        # the event before has the same start, or the greatest smaller one
        same[1:] = (group[1:] == group[:-1]) & (le[:-1] >= _less(le[1:], self.within))
        return table.take(pa.array(np.sort(order[~same])))

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Keep each id's last start before c, if it is within reach of c, and those from c on."""
        table = inputs[0]
        group, le = ints(table, GROUP_NUMBER), ints(table, LE)
        last = np.full(int(group.max(initial=0)) + 1, MINUS_INFINITY)
        np.maximum.at(last, group[le < c], le[le < c])
        reach = _less(np.array([c]), self.within)[0]
        return [(le >= c) | ((le == last[group]) & (le >= reach))]


def _less(x: Ints, by: int) -> Ints:
    """Return instants moved back by a number of ticks, at least MINUS_INFINITY."""
    return np.where(x < MINUS_INFINITY + by, MINUS_INFINITY, x - by)
