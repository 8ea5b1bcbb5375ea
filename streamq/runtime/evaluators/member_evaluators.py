"""Evaluators of aggregates and top_k over windows of every kind.

The assigner of the kind gives the windows and their members. The aggregation is the same for all kinds: partial results merged
over ranges of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType

from streamq.choices import ClipInput, Stamp
from streamq.plan.partial import COUNT, Partial
from streamq.plan.reduction import RangedMembers, Reduction
from streamq.runtime.built_in_partials import PartialMax
from streamq.runtime.columnar import expand_ranges, ints, with_column
from streamq.runtime.evaluators.assigner import Assigner, Ranges
from streamq.runtime.evaluators.member_reductions import payload_order, reduced
from streamq.runtime.evaluators.numbering import find_places, is_new_pair
from streamq.runtime.event import LE, RE
from streamq.runtime.groups import GROUP_NUMBER, Holds, ToCome
from streamq.runtime.lifetimes import saturating
from streamq.runtime.open_windows import LAST_END, waits_for_members
from streamq.runtime.range_partials import INDEX, merge_by_window, row_windows
from streamq.runtime.release import Release
from streamq.runtime.values import Ints, Mask, column_ranks
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.lateness import QuarantineRows
    from streamq.runtime.progress_rule import Cti, ProgressRule
    from streamq.runtime.user_code.member_changes import CallMemory

OWNER = "__owner"
"""The column of a window for the owner of its number."""


@dataclass(frozen=True)
class Membership:
    """The members of windows: each member's event (by row), window (by owner and number), and the window's interval."""

    event: Ints
    owner: Ints
    index: Ints
    start: Ints
    end: Ints


@dataclass(frozen=True)
class _MemberEvaluator:
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
        """The key columns of the one input."""
        return (self.keys,)

    @property
    def progress_rule(self) -> ProgressRule:
        """The rule that follows from the kind of window and the stamp.

        A piece, a window between two changes of its members, may become longer until progress is past its end.
        """
        from streamq.runtime.progress_rule import ProgressRule

        wanted = self.assigner.wanted(grouped=bool(self.keys))
        if self.stamp == Stamp.TIME_BOUND:
            return ProgressRule(
                self._cti_rule,
                Release.PAST_END,
                Release.PAST_START,
                wanted=wanted,
            )
        point, piece = self.stamp == Stamp.POINT_AT_END, self.assigner.is_piecewise
        at_end = Release.AT_WINDOW_END if point else Release.AT_END
        past_end = Release.PAST_WINDOW_END if point else Release.PAST_END
        return ProgressRule(
            self._cti_rule,
            final=past_end if piece else at_end,
            early=Release.PAST_START if piece and not (point or self.sensitive) else at_end,
            windows=True,
            grid=self.assigner.grid,
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
        return self.assigner.is_piecewise and not self.sensitive

    @property
    def _cti_rule(self) -> Cti:
        """The rule by which :meth:`cti` computes the CTI, as explain shows it."""
        from streamq.runtime.progress_rule import Cti

        if self._sends_c:
            if not self.waits_for_members:
                return Cti.INPUT
            return Cti.WINDOW_END if self.stamp == Stamp.POINT_AT_END else Cti.EARLIEST_WINDOW
        return self.assigner.cti

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
            least_end = min(c, int(ints(rows, RE)[is_waiting].min()))
            in_waiting_group = np.isin(group, ints(rows, GROUP_NUMBER)[is_waiting])
            is_needed |= in_waiting_group & self.assigner.needed(group, table, least_end)
        return [is_needed]

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
        """True if windows are the pieces between changes: a piece that has not begun matters to nobody."""
        return self.assigner.is_piecewise


@dataclass(frozen=True)
class WindowEvaluator(_MemberEvaluator):
    """One row per window with members: keys, the number of members ``__n``, partial results, and reductions of all members.

    order: the payload columns that order first, last and collected values; payload: the columns of events that are set aside.
    """

    partials: tuple[Partial, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    order: tuple[str, ...] = ()
    payload: tuple[str, ...] = ()

    @property
    def progress_rule(self) -> ProgressRule:
        """The rule of the windows; it also says if a window may have no row, because a module may return none for it."""
        from streamq.runtime.progress_rule import NoRowReason

        rule = super().progress_rule
        is_open = any(reduction.may_be_none for reduction in self.reductions)
        return replace(rule, may_be_none=NoRowReason.OF_MODULE) if is_open else rule

    def rows(
        self,
        inputs: Sequence[pa.Table],
        since: int,
        upto: int,
        memory: CallMemory | None = None,
        is_asked: Callable[[pa.Table], Mask] | None = None,
        aside: QuarantineRows | None = None,
    ) -> pa.Table:
        """Return the windows' rows, from partial results over ranges; only reductions of all members copy them into every window.

        The windows end after ``since``, and ``upto`` bounds them as :meth:`Assigner.ranges` says. The columns are the keys,
        ``__n``, the partials, the reductions and the stamped lifetime; if windows wait for members, also the last end of a
        member. ``memory``: the module calls of earlier micro-batches, if any, to which those of now are added. ``is_asked``
        marks, by lifetimes, the rows that somebody reads; for others no module is called. ``aside`` takes the windows whose calls
        fail. Rows of both kinds stay, with NULL as the module's result.
        """
        table = self._in_order(inputs[0])
        ranges = self._ranges(table, since, upto)
        events = table.take(pa.array(ranges.event))
        events = with_column(events, COUNT, np.ones(len(ranges.event), np.int64))
        columns: dict[str, Any] = {OWNER: ranges.owner, COUNT: events.column(COUNT)}
        for partial in self.partials:
            columns |= partial.of_events(events)
        partials = self.partials
        if self.waits_for_members:
            columns[LAST_END] = events.column(RE)
            partials = (*partials, PartialMax(LAST_END, LAST_END, LongType()))
        heads = np.zeros(1 + int(ranges.owner.max(initial=0)), np.int64)
        heads[ranges.owner] = ranges.event

        place = row_windows(
            lambda row: ranges.where(ints(row, OWNER), ints(row, INDEX)),
            lambda row: table.select(self.keys).take(pa.array(heads[ints(row, OWNER)])),
        )
        any_order = not any(partial.depends_on_order for partial in self.partials)
        windows = merge_by_window(
            pa.table(columns), ranges.low, ranges.high, (OWNER,), partials, place=place, in_any_order=any_order
        )
        windows = windows.sort_by([(OWNER, "ascending"), (INDEX, "ascending")])
        start, end = ranges.where(ints(windows, OWNER), ints(windows, INDEX))
        head = pa.array(heads[ints(windows, OWNER)])
        columns_of_result = {k: table.column(k).take(head) for k in (*self.keys, GROUP_NUMBER)}
        names = [COUNT, *(name for partial in self.partials for name in partial.columns)]
        names += [LAST_END] * self.waits_for_members
        columns_of_result |= {name: windows.column(name) for name in names}
        if self.reductions:
            groups = pa.table(columns_of_result).select(list(self.keys))
            members = self._spanned(table, ranges, windows, (start, end), groups)
            stamped = self._stamped(groups, start, end)
            if self.waits_for_members:
                stamped = with_column(stamped, LAST_END, windows.column(LAST_END))
            asked = self._reported(end) & (True if is_asked is None else is_asked(stamped))
            if aside is not None:
                members = replace(members, aside=aside, final=aside.is_final(stamped))
            columns_of_result |= reduced(replace(members, memory=memory, asked=asked), self.reductions)
        is_reported = self._reported(end)
        return self._stamped(
            pa.table(columns_of_result).filter(pa.array(is_reported)), start[is_reported], end[is_reported]
        )

    def _in_order(self, table: pa.Table) -> pa.Table:
        """Return events in a fixed order if a result depends on it, as a sum of floats does; else as they are.

        The order is by start, then by the columns read, so that a window's sum does not depend on arrival.
        """
        added = [name for partial in self.partials if partial.depends_on_order for name in partial.read_columns]
        added += [a for r in self.reductions if r.depends_on_order for a in r.column.args]
        if not added:
            return table
        return table.take(pa.array(np.lexsort((*column_ranks(table, list(dict.fromkeys(added))), ints(table, LE)))))

    def _spanned(
        self, table: pa.Table, ranges: Ranges, windows: pa.Table, window: tuple[Ints, Ints], groups: pa.Table
    ) -> RangedMembers:
        """Return the members for reductions: each event with the range of rows of ``windows`` that contain it.

        window: the starts and ends of ``windows``; groups: the key values of each.
        """
        first = find_places(ints(windows, OWNER), ints(windows, INDEX), ranges.owner, ranges.low)
        place = None
        if self.order:
            place = np.empty(table.num_rows, np.int64)
            place[payload_order(table, self.order, ints(table, LE), ints(table, RE))] = np.arange(table.num_rows)
            place = place[ranges.event]
        names = dict.fromkeys(a for r in self.reductions for a in (*r.column.args, *filter(None, [r.column.where])))
        names |= dict.fromkeys(self.payload)
        return RangedMembers(
            table.select([*names, LE]).take(pa.array(ranges.event)),
            first,
            first + (ranges.high - ranges.low),
            n=windows.num_rows,
            place=place,
            lifetime=(ints(table, LE)[ranges.event], ints(table, RE)[ranges.event]),
            clip=self.clip,
            window=window,
            groups=groups,
        )


@dataclass(frozen=True)
class TopKEvaluator(_MemberEvaluator):
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

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """Return the first ``k`` members of each window by ``by``, ranked as SQL's RANK; NULL is the least value.

        With ``ties`` "keep", members equal to the k-th are returned, too; with "break", exactly ``k`` (or all, if fewer), of
        equal ones the least by payload, start and end. The columns are the payload, the rank, the row number if it has a name,
        and the stamped lifetime; if windows wait for members, also the last end of any member of the window.
        """
        table = inputs[0]
        members = self._members(self._ranges(table, since, upto))
        value = column_ranks(table, [self.by])[0][members.event].astype(np.int64)
        value = -value if self.desc else value
        if self.ties == "break":
            place = np.empty(table.num_rows, np.int64)
            rest = (ints(table, RE), ints(table, LE), *reversed(column_ranks(table, self.payload)))
            place[np.lexsort(rest)] = np.arange(table.num_rows)
            order = np.lexsort((place[members.event], value, members.index, members.owner))
        else:
            order = np.lexsort((value, members.index, members.owner))
        value = value[order]
        number = np.arange(len(order))
        first = np.zeros(len(order), np.int64)
        rank = first
        if len(order):
            new = is_new_pair(members.owner[order], members.index[order])
            first = np.maximum.accumulate(np.where(new, number, 0))
            new[1:] |= value[1:] != value[:-1]
            rank = np.maximum.accumulate(np.where(new, number, 0)) - first + 1
        number = number - first
        is_best = rank <= self.k if self.ties == "keep" else number < self.k
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


__all__ = ["Membership", "TopKEvaluator", "WindowEvaluator"]
