"""The base of evaluators over the members of windows: membership, stamps, what must stay, and progress.

The assigner of the kind of windows gives the windows and their members.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.choices import ClipInput, Stamp
from streamq.runtime.arrow.columnar import expand_ranges, ints, with_column
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluators.assigner import Assigner, RangeAssigner, Ranges
from streamq.runtime.grid_ranges import LAST_END, waits_for_members
from streamq.runtime.groups import GROUP_NUMBER, Holds, ToCome
from streamq.runtime.time.progress_rule import Release, saturating
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.time.progress_rule import Cti, ProgressRule


@dataclass(frozen=True)
class Membership:
    """The members of windows: each member's event (by row), window (by owner and number), and the window's interval."""

    event: Ints
    owner: Ints
    index: Ints
    start: Ints
    end: Ints


@dataclass(frozen=True)
class MemberEvaluator(ABC):
    """The membership, stamps and progress of aggregates and top_k.

    assigner: finds the windows of one kind; keys: the group's columns; clip: how members' lifetimes are cut before they are
    read; sensitive: the result depends on time, so a row waits until its window is final; waits_for_members: a window is final
    only once its members are settled, because their ends are read and may move. Rows then have the column LAST_END.
    """

    assigner: Assigner
    keys: tuple[str, ...]
    clip: ClipInput
    stamp: Stamp
    sensitive: bool
    waits_for_members: bool = field(default=False, kw_only=True)

    @abstractmethod
    def rows(
        self, inputs: Sequence[pa.Table], since: int, upto: int, *, is_asked: Callable[[pa.Table], Mask] | None = None
    ) -> pa.Table:
        """Return the result, as :meth:`Evaluator.rows` says; rows that ``is_asked`` does not mark need no values."""

    def _ranges(self, table: pa.Table, since: int, upto: int) -> Ranges:
        """Return the ranges of windows in which events lie: windows that end after ``since``.

        ``upto`` bounds them as :meth:`Assigner.ranges` says; empty ranges are left out.
        """
        # a point at the end lives one tick longer than its window
        since = since - 1 if self.stamp == Stamp.POINT_AT_END and since > MINUS_INFINITY else since
        return self.assigner.ranges(ints(table, GROUP_NUMBER), table, since, upto).some()

    def _members(self, ranges: Ranges) -> Membership:
        """Return every event in each of its windows that is reported."""
        which, index = expand_ranges(ranges.low, ranges.high)
        event, owner = ranges.event[which], ranges.owner[which]
        start, end = ranges.where(owner, index)
        is_reported = self._reported(end)
        return Membership(
            event[is_reported], owner[is_reported], index[is_reported], start[is_reported], end[is_reported]
        )

    def _reported(self, end: Ints) -> Mask:
        """Mark the windows that are reported: all of them, or those with an end if a row is a point at its window's end."""
        return end < INFINITY if self.stamp == Stamp.POINT_AT_END else np.ones(len(end), bool)

    def _stamped(self, rows: pa.Table, start: Ints, end: Ints) -> pa.Table:
        """Return rows with the lifetimes that the stamp gives them: their windows, or the tick from the window's end on."""
        if self.stamp == Stamp.POINT_AT_END:
            start, end = end, end + 1
        return with_column(with_column(rows, LE, start), RE, end)

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        """The key columns of the one input, of the groups that have windows of their own."""
        return (self.assigner.traits.outer_keys(self.keys),)

    @property
    def progress_rule(self) -> ProgressRule:
        """The rule that follows from the kind of window and the stamp.

        A piece, a window between two changes of its members, may become longer until progress is past its end.
        """
        from streamq.runtime.time.progress_rule import MissingRows, ProgressRule

        traits, counting = self.assigner.traits, self.assigner.traits.counting
        wanted = MissingRows(counting.n, counting.distinct, bool(self.group_columns[0])) if counting.n else None
        if self.stamp == Stamp.TIME_BOUND:
            return ProgressRule(self._cti_rule, Release.PAST_END, Release.PAST_START, wanted=wanted)
        point, piece = self.stamp == Stamp.POINT_AT_END, traits.is_piecewise
        at_end = Release.AT_WINDOW_END if point else Release.AT_END
        past_end = Release.PAST_WINDOW_END if point else Release.PAST_END
        return ProgressRule(
            self._cti_rule,
            final=past_end if piece else at_end,
            early=Release.PAST_START if piece and not (point or self.sensitive) else at_end,
            windows=True,
            grid=traits.grid,
            waits_for_members=self.waits_for_members,
            wanted=wanted,
        )

    @property
    def _sends_c(self) -> bool:
        """True if the CTI of the input, c, is sent on unless a row waits.

        Three cases send it: a row is a point at its window's end; a time-bound operator has promised it; or windows are pieces
        between changes, because a change at c or later leaves earlier pieces as they are.
        """
        if self.stamp in (Stamp.POINT_AT_END, Stamp.TIME_BOUND):
            return True
        return self.assigner.traits.is_piecewise and not self.sensitive

    @property
    def _cti_rule(self) -> Cti:
        """The rule by which :meth:`cti` computes the CTI, as explain shows it."""
        from streamq.runtime.time.progress_rule import Cti

        if self._sends_c:
            if not self.waits_for_members:
                return Cti.INPUT
            return Cti.WINDOW_END if self.stamp == Stamp.POINT_AT_END else Cti.EARLIEST_WINDOW
        return self.assigner.cti

    @property
    def condenses(self) -> bool:
        """True if settled events may be replaced by fewer rows; evaluators that know how override it."""
        return False

    @property
    def _has_chains(self) -> bool:
        """True if some settled events stay together in the same windows for good, as :meth:`Assigner.chains` tells.

        Where rows are counted they do so from one window's beginning to the next. Not if a window begins at every row, if
        consecutive rows may be in different groups of a window, or if an end that may move would part them.
        """
        counting = self.assigner.traits.counting
        is_parted = counting.step == 1 or counting.inner_keys or counting.where or self.waits_for_members
        return not (self.assigner.traits.counts_rows and is_parted)

    @property
    def condenses_at_once(self) -> bool:
        """True if events that are never taken back may be replaced before they are settled: they stay in the same windows.

        So they do where these do not depend on other events.
        """
        return self.condenses and isinstance(self.assigner, RangeAssigner)

    @property
    def combines(self) -> bool:
        """True if points may be one row before they are judged; evaluators that know how override it."""
        return False

    def combined(self, points: pa.Table) -> pa.Table:
        """Return fewer rows in place of points, if :attr:`combines`; by default the points."""
        return points

    def condensable(self, deltas: pa.Table) -> pa.Table:
        """Return deltas, with the hashes of their groups, in the form in which events are condensed."""
        return deltas

    def chains(self, events: pa.Table, rows: pa.Table, c: int) -> Ints:
        """Return a number for each of these settled events, the same for those alike that stay in the same windows from now on.

        ``rows`` are those of the events' groups: windows that wait for members count as not final, too.
        """
        return self.alike_in_windows(events, self._least_open_end(rows, c))

    def alike_in_windows(self, events: pa.Table, c: int) -> Ints:
        """Return a number for each event, the same for those alike that are in the same windows that end at or after c - 1."""
        return self.alike(events, self.assigner.chains(ints(events, GROUP_NUMBER), events, c))

    def alike(self, events: pa.Table, number: Ints) -> Ints:
        """Return a number for each event, the same for those that have the same number and may be one row; by default all may."""
        return number

    def condensed(self, events: pa.Table, number: Ints) -> tuple[pa.Table, Ints]:
        """Return rows that replace events, those of each number together, and the number of each row.

        The numbers are those of :meth:`chains`, which says what the lifetime of a row is, or similar ones.
        """
        rows, of = self._merged(events, number)
        by_start, by_end = (np.maximum, np.minimum) if self.assigner.traits.is_piecewise else (np.minimum, np.maximum)
        for by, name in ((by_start, LE), (by_end, RE)):
            bound = np.full(int(number.max(initial=-1)) + 1, MINUS_INFINITY if by is np.maximum else INFINITY)
            by.at(bound, number, ints(events, name))
            rows = with_column(rows, name, bound[of])
        return rows, of

    def _merged(self, events: pa.Table, number: Ints) -> tuple[pa.Table, Ints]:
        """Return rows that replace the events of each number, of any lifetime, and the number of each; by default all."""
        return events, number

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Mark the events of windows that may still change at c.

        In groups with windows that wait for members, those of all windows from the earliest end of a waiting one, in any group,
        on are marked.
        """
        table = inputs[0]
        group = ints(table, GROUP_NUMBER)
        is_needed = self.assigner.needed(group, table, c)
        is_waiting = waits_for_members(rows, c)
        if is_waiting.any():
            in_waiting_group = np.isin(group, ints(rows, GROUP_NUMBER)[is_waiting])
            is_needed |= in_waiting_group & self.assigner.needed(group, table, self._least_open_end(rows, c))
        return [is_needed]

    def _least_open_end(self, rows: pa.Table, c: int) -> int:
        """Return the least end of a row that waits for members at CTI c; at most c."""
        return min(c, int(ints(rows, RE)[waits_for_members(rows, c)].min(initial=c)))

    def holds(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> Holds:
        """Return the starts of waiting rows, until their last members are settled, and of open windows if c is not sent on."""
        waiting = rows.filter(pa.array(waits_for_members(rows, c)))
        until = saturating(ints(waiting, LAST_END), 1) if self.waits_for_members else np.zeros(0, np.int64)
        waits = Holds(ints(waiting, GROUP_NUMBER), ints(waiting, LE), until)
        if self._sends_c:
            return waits
        opened = self.assigner.holds(ints(inputs[0], GROUP_NUMBER), inputs[0], rows, c)
        pairs = zip(vars(waits).values(), vars(opened).values(), strict=True)
        return Holds(*(np.concatenate(pair) for pair in pairs))

    def cti(self, progress: Sequence[int], held: int) -> int:
        """Return the CTI of the output: the least of c and the starts of waiting rows, or of open windows if c is not sent on.

        An infinite c is returned as it is, whatever waits.
        """
        (c,) = progress
        if c in (INFINITY, MINUS_INFINITY):
            return c
        return min(held, c if self._sends_c else self.assigner.latest_cti(c))

    def to_come(self, inputs: Sequence[pa.Table], upto: int) -> ToCome:
        """Return the groups with windows that start at ``upto`` or later, with what the kind of windows knows of them."""
        to_come = self.assigner.to_come(ints(inputs[0], GROUP_NUMBER), inputs[0], upto)
        first = to_come.first
        return (
            to_come if first is None else replace(to_come, first=self._stamped(first, ints(first, LE), ints(first, RE)))
        )

    @property
    def leaves_out_rows_to_come(self) -> bool:
        """True if windows are the pieces between changes: a piece that has not begun changes no result."""
        return self.assigner.traits.is_piecewise
