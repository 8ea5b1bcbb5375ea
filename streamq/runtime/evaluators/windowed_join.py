"""Evaluator of pairs in windows of a grid: the inner join of members' ranges of windows, then a row for each shared window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.grid import Grid
from streamq.runtime.columnar import expand_ranges, ints, with_columns
from streamq.runtime.evaluators.joins import JoinEvaluator
from streamq.runtime.event import LE, RE
from streamq.runtime.grid_ranges import grid_lifetimes, window_range
from streamq.runtime.groups import GROUP_NUMBER, Holds, ToCome, no_holds
from streamq.runtime.release import Release
from streamq.runtime.tick_arithmetic import ARRAYS
from streamq.runtime.values import Mask
from streamq.time import INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule


@dataclass(frozen=True)
class WindowedJoinEvaluator:
    """Every pair of members of one window of a grid, with the window as lifetime.

    A member's range has the numbers of its windows as a lifetime: from the first to the one after the last, INFINITY if it never
    ends. Two members share the windows in which their ranges overlap; ``pairing`` is the inner join of ranges.
    """

    window: Grid
    pairing: JoinEvaluator

    def ranges(self, members: pa.Table) -> pa.Table:
        """Return members with their ranges in place of their lifetimes, without those that lie in gaps between windows."""
        low, high = window_range(self.window, ints(members, LE), ints(members, RE), ARRAYS)
        ranges = with_columns(members, {LE: low, RE: np.where(high == INFINITY, INFINITY, high + (high != INFINITY))})
        return ranges.filter(pa.array(low <= high)) if self.window.hop > self.window.size else ranges

    def windows(self, pairs: pa.Table, first: int, last: int) -> pa.Table:
        """Return a row for each pair and each window of its range, from window ``first`` to ``last``, with that as lifetime.

        Pairs without an end have none if ``last`` is INFINITY.
        """
        low, end = np.maximum(ints(pairs, LE), first), ints(pairs, RE)
        high = np.minimum(end - 1, last)
        has_some = np.flatnonzero((low <= high) & ((end != INFINITY) | (last != INFINITY)))
        which, index = expand_ranges(low[has_some], high[has_some])
        start, end = grid_lifetimes(self.window, index)
        return with_columns(pairs.take(pa.array(has_some[which])), {LE: start, RE: end})

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """Return the pairs of the windows that end after ``since`` and start before ``upto``, each with its window as lifetime.

        Members with a NULL key have no pair. Endless pairs have no window if ``upto`` is INFINITY.
        """
        left, right = map(self.ranges, inputs)
        pairs = self.pairing.paired(left, right, *self.pairing.pairs(left, right))
        return self.windows(pairs, self.window.first_ending_after(since), self.window.last_starting_before(upto))

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        """The columns that must be equal."""
        return self.pairing.group_columns

    @property
    def progress_rule(self) -> ProgressRule:
        """Windows of a grid are final once they have ended."""
        from streamq.runtime.progress_rule import Cti, NoRowReason, ProgressRule

        return ProgressRule(
            Cti.EARLIEST_WINDOW,
            final=Release.AT_END,
            early=Release.AT_END,
            windows=True,
            grid=self.window,
            may_be_none=NoRowReason.OF_PAIRS,
        )

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Mark the members of windows that end at or after c, and the events that end at or after c."""
        least = self.window.start(self.window.first_ending_after(c - 1))
        return [ints(table, RE) > min(c - 1, least) for table in inputs]

    def holds(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> Holds:
        """Return no holds: the CTI depends on the grid alone."""
        return no_holds()

    def to_come(self, inputs: Sequence[pa.Table], upto: int) -> ToCome:
        """Return the events that live beyond ``upto``, with the start of the first window from there on."""
        later = np.concatenate([ints(table, GROUP_NUMBER)[ints(table, RE) > upto] for table in inputs])
        return ToCome(later, np.full(len(later), self.window.next_start(upto)))

    @property
    def leaves_out_rows_to_come(self) -> bool:
        """False: only a bound leaves out windows."""
        return False

    def cti(self, progress: Sequence[int], held: int) -> int:
        """Return the start of the earliest window that is not final, with members or not; at the end of the input INFINITY."""
        c = min(progress)
        return c if c == INFINITY else self.window.start(self.window.first_ending_after(c))


__all__ = ["WindowedJoinEvaluator"]
