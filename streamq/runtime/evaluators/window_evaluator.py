"""The evaluators of results over windows of every kind: aggregates, and the members with the greatest, or least, values.

Partial results are merged over ranges of windows. Aggregates that have none are reduced, in Arrow, from the values of members,
held with numbers of events: over ranges of windows on a grid, or over copies of members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType

from streamq.choices import ClipInput
from streamq.plan.partial import (
    COUNT,
    CopiedMembers,
    MemberReduction,
    Partial,
    RangedMembers,
    RangeReduction,
    Reduction,
)
from streamq.runtime.arrow.columnar import codes, concat, expand_ranges, ints, with_column, with_columns
from streamq.runtime.arrow.values import Ints, Mask, column_ranks, distinct, float_bits
from streamq.runtime.deltas import DIGEST, LE, RE, WEIGHT
from streamq.runtime.evaluators.assigner import Ranges, event_order, find_places, head_events, is_new_pair
from streamq.runtime.evaluators.member_evaluator import MemberEvaluator
from streamq.runtime.grid_ranges import LAST_END, grid_lifetimes
from streamq.runtime.groups import GROUP_NUMBER, HASH, Hashes, combine_hashes, hashes
from streamq.runtime.partials.built_in_partials import PartialMax, PartialMin
from streamq.runtime.partials.ranges import INDEX, TouchedWindows, merge_by_window, merge_partial_rows, row_windows
from streamq.runtime.time.progress_rule import NoRowReason, ProgressRule
from streamq.time import Grid

if TYPE_CHECKING:
    from streamq.runtime.time.lateness import QuarantineRows


def reduced(members: RangedMembers, reductions: Iterable[Reduction]) -> dict[str, pa.Array]:
    """Return the result columns, a value per window; members are copied into their windows only for reductions that need it.

    Raises TypeError for a reduction of neither kind.
    """
    columns: dict[str, pa.Array] = {}
    copies: CopiedMembers | None = None
    for reduction in reductions:
        if isinstance(reduction, RangeReduction):
            columns[reduction.column.name] = reduction.over_ranges(members)
        elif isinstance(reduction, MemberReduction):
            copies = copies or _copied(members)
            columns[reduction.column.name] = reduction.over_members(copies)
        else:
            raise TypeError(f"{type(reduction).__name__} is neither a RangeReduction nor a MemberReduction")
    return columns


def _copied(members: RangedMembers) -> CopiedMembers:
    """Return the members copied into their windows, with their order."""
    row, number = expand_ranges(members.first, members.last)
    if (members.number > 1).any():
        row, number = np.repeat(row, members.number[row]), np.repeat(number, members.number[row])
    order = np.arange(len(row)) if members.place is None else np.argsort(members.place[row], kind="stable")
    rows = members.rows.take(pa.array(row))
    return CopiedMembers(rows, number, members.n, order, members.lasts(row, number), members.window)


def value_columns(reductions: Sequence[Reduction]) -> tuple[str, ...]:
    names = (name for r in reductions for name in (*r.column.args, *filter(None, [r.column.where])))
    return tuple(dict.fromkeys(names))


def reduced_windows(
    windows: TouchedWindows,
    values: pa.Table,
    first: Ints,
    last: Ints,
    reductions: Sequence[Reduction],
    grid: Grid,
    clip: ClipInput,
    order: Sequence[str],
) -> dict[str, Any]:
    """Return the result columns of ``reductions``, a value for each of ``windows``.

    ``first..last`` are the places of the windows of each row of ``values``, which is empty for some; rows have numbers of events,
    and lifetimes, cut as ``clip`` says, if a reduction reads these. ``order``: the columns by which members of one start are
    ordered, if one reads that.
    """
    number = ints(values, COUNT)
    row = np.flatnonzero((first <= last) & (number > 0))
    chosen = values.take(pa.array(row))
    start = end = np.zeros(len(row), np.int64)
    if LE in chosen.column_names:
        start, end = ints(chosen, LE), ints(chosen, RE)
    place = None
    if order:
        place = np.empty(len(row), np.int64)
        place[event_order(chosen, np.zeros(len(row), np.int64), order)[0]] = np.arange(len(row))
    members = RangedMembers(
        rows=chosen.select(list(value_columns(reductions))),
        first=first[row],
        last=last[row],
        number=number[row],
        n=len(windows.index),
        place=place,
        lifetime=(start, end),
        clip=clip,
        window=grid_lifetimes(grid, windows.index),
        groups=windows.rows.select(windows.keys),
    )
    return reduced(members, reductions)


def window_digests(event_hashes: Hashes, members: RangedMembers) -> Ints:
    """Return a number for each window that identifies its members, whose hashes are given; a sum, as their order is in these."""
    sums = np.zeros(members.n + 1, np.uint64)
    np.add.at(sums, members.first, event_hashes)
    np.subtract.at(sums, members.last + 1, event_hashes)
    return np.cumsum(sums)[:-1].view(np.int64)


OWNER = "__owner"
"""The column of a window for the owner of its number."""


@dataclass(frozen=True)
class WindowEvaluator(MemberEvaluator):
    """One row per window with members: keys, the number of members ``__n``, partial results, and reductions of all members.

    order: the payload columns that order first, last and collected values; payload: the columns of events that are set aside.
    reads_values: the reductions read nothing of a member but the values of their columns.
    """

    partials: tuple[Partial, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    order: tuple[str, ...] = ()
    payload: tuple[str, ...] = ()
    reads_values: bool = False

    @property
    def progress_rule(self) -> ProgressRule:
        """The rule of the windows; it also says if a window may have no row, because a module may return none for it."""
        rule = super().progress_rule
        is_open = any(reduction.may_be_none for reduction in self.reductions)
        return replace(rule, may_be_none=NoRowReason.OF_MODULE) if is_open else rule

    def rows(
        self,
        inputs: Sequence[pa.Table],
        since: int,
        upto: int,
        is_asked: Callable[[pa.Table], Mask] | None = None,
        aside: QuarantineRows | None = None,
        sent: pa.Table | None = None,
    ) -> pa.Table:
        """Return the windows' rows, from partial results over ranges; only reductions of all members copy them into every window.

        The windows end after ``since``, and ``upto`` bounds them as :meth:`Assigner.ranges` says. The columns are the keys,
        ``__n``, the partials, the reductions and the stamped lifetime; if windows wait for members, also the last end of a
        member. ``is_asked`` marks, by lifetimes, the rows that somebody reads; the others have NULL as their results: no sum
        overflows in them, and no module is called. ``aside`` takes the windows whose calls fail. Rows of both kinds stay, with
        NULL as the module's result. ``sent``: rows of earlier micro-batches, whose results are taken for windows that have the
        same members still; all rows then have a DIGEST of these.
        """
        table = self._in_order(self.with_partials(inputs[0]))
        ranges = self._ranges(table, since, upto)
        events = table.take(pa.array(ranges.event))
        columns: dict[str, Any] = {OWNER: ranges.owner}
        columns |= {name: events.column(name) for name in self._held_columns}
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
        merged = merge_by_window(
            pa.table(columns), ranges.low, ranges.high, (OWNER,), partials, in_any_order=not self._depends_on_order
        ).in_order([OWNER, INDEX])
        windows = merged.rows
        start, end = ranges.where(ints(windows, OWNER), ints(windows, INDEX))
        head = pa.array(heads[ints(windows, OWNER)])
        columns_of_result = {k: table.column(k).take(head) for k in (*self.keys, GROUP_NUMBER)}
        groups = pa.table(columns_of_result)
        stamped = self._stamped(groups, start, end)
        if self.waits_for_members:
            stamped = with_column(stamped, LAST_END, windows.column(LAST_END))
        is_reported = self._reported(end)
        asked = is_reported if is_asked is None else is_reported & is_asked(stamped)
        values = merged.finished(asked, place)
        finished = [COUNT, *(name for partial in self.partials for name in partial.columns)]
        columns_of_result |= {name: values.column(name) for name in finished}
        if self.waits_for_members:
            columns_of_result[LAST_END] = windows.column(LAST_END)
        if self.reductions:
            ranges = ranges.take(np.flatnonzero(ints(table, COUNT)[ranges.event] > 0))
            members = self._spanned(table, ranges, windows, (start, end), groups.select(list(self.keys)))
            if aside is not None:
                members = replace(members, aside=aside, final=aside.is_final(stamped))
            at = np.arange(windows.num_rows)
            if sent is not None:
                columns_of_result[DIGEST] = window_digests(self._event_hashes(table)[ranges.event], members)
                same = {name: columns_of_result[name] for name in (COUNT, DIGEST)}
                at = self._places_of_results(with_columns(stamped, same), sent, has_failures=aside is not None)
            results = reduced(replace(members, asked=asked & (at < len(at))), self.reductions)
            if sent is not None and (at >= len(at)).any():
                both = {n: pa.chunked_array([result, *sent.column(n).chunks]) for n, result in results.items()}
                results = {name: values.take(pa.array(at)) for name, values in both.items()}
            columns_of_result |= results
        return self._stamped(
            pa.table(columns_of_result).filter(pa.array(is_reported)), start[is_reported], end[is_reported]
        )

    def _event_hashes(self, events: pa.Table) -> Hashes:
        """Return a number for each event that identifies what reductions see of it; floats count by their bits."""
        seen = [*self._values, *self.order, *((LE,) if self.order else ()), *((LE, RE) if self.sensitive else ())]
        columns = map(events.column, dict.fromkeys(seen))
        parts = [hashes(float_bits(c.combine_chunks()) if pa.types.is_floating(c.type) else c) for c in columns]
        return combine_hashes([np.ones(events.num_rows, np.uint64), *parts])

    def _places_of_results(self, windows: pa.Table, sent: pa.Table, *, has_failures: bool) -> Ints:
        """Return the place of each window's results among those of ``windows``, then ``sent``: of a row with the same members.

        Without such a row it is the window's own. has_failures: a result of NULL may be that of a call that failed.
        """
        n, by = windows.num_rows, [*self.keys, LE, RE, COUNT, DIGEST]
        own = np.arange(n)
        if not sent.num_rows:
            return own
        number, first = codes(concat([sent.select(by), windows.select(by)]), by)
        row = first[number[sent.num_rows :]]
        is_sent = row < sent.num_rows
        for name in (r.column.name for r in self.reductions if has_failures):
            is_sent[is_sent] = sent.column(name).is_valid().to_numpy()[row[is_sent]]
        return np.where(is_sent, n + row, own)

    @property
    def _held_columns(self) -> list[str]:
        """The columns of partial results that merge, the number of events first."""
        return [COUNT, *(name for partial in self.partials for name in partial.held_columns)]

    def with_partials(self, events: pa.Table) -> pa.Table:
        """Return events with the columns of their partial results; unchanged if they have these."""
        if COUNT in events.column_names:
            return events
        events = with_column(events, COUNT, np.ones(events.num_rows, np.int64))
        for name, values in [item for partial in self.partials for item in partial.of_events(events).items()]:
            events = with_column(events, name, values)
        return events

    @property
    def condenses(self) -> bool:
        """True if settled events may be replaced by their partial results, and their values with numbers of events.

        No result may need anything else of them.
        """
        return self._has_chains and not self.sensitive and (self.reads_values or not self.reductions)

    @property
    def condenses_at_once(self) -> bool:
        """True as of the base, if no partial result depends on the order of events: it would be that of arrival."""
        return super().condenses_at_once and not self._depends_on_order

    @property
    def combines(self) -> bool:
        """True if points may be one row before they are judged: those in the same windows are late together."""
        return self.condenses_at_once and self.assigner.basic_windows(np.zeros(0, np.int64)) is not None

    def combined(self, points: pa.Table) -> pa.Table:
        """Return a row for the points of a group that are alike and in the same windows, from the first start to the last end."""
        numbers = self.assigner.basic_windows(ints(points, LE))
        bounds = (PartialMin(LE, LE, LongType()), PartialMax(RE, RE, LongType()))
        events = with_column(self.with_partials(points), INDEX, numbers)
        return merge_partial_rows(events, [*self.keys, *self._values, INDEX], (*self.partials, *bounds))

    @property
    def _depends_on_order(self) -> bool:
        return any(partial.depends_on_order for partial in self.partials)

    @property
    def _values(self) -> tuple[str, ...]:
        return value_columns(self.reductions)

    def condensable(self, deltas: pa.Table) -> pa.Table:
        """Return deltas with the columns that are left of events: keys, partial results, values, those of order."""
        ordered = self.assigner.traits.counting.order_by
        names = dict.fromkeys([*self.keys, *ordered, *self._held_columns, *self._values, LE, RE, WEIGHT, HASH])
        return self.with_partials(deltas).select([*names])

    def alike(self, events: pa.Table, number: Ints) -> Ints:
        """Return a number for each event, the same for those that have the same number and the same values for reductions."""
        if not self._values:
            return number
        return codes(with_column(events.select([*self._values]), INDEX, number), [INDEX, *self._values])[0]

    def _merged(self, events: pa.Table, number: Ints) -> tuple[pa.Table, Ints]:
        merged = merge_partial_rows(with_column(events, INDEX, number), [INDEX], self.partials)
        of = ints(merged, INDEX)
        rows = events.take(pa.array(head_events(events, number, self.assigner.traits)[of]))
        return with_columns(rows, {name: merged.column(name) for name in self._held_columns}), of

    def _in_order(self, table: pa.Table) -> pa.Table:
        """Return events in a fixed order if a result depends on it, as that of a user's code may; else as they are.

        The order is by start, then by the columns read, so that a window's result does not depend on arrival.
        """
        added = [name for partial in self.partials if partial.depends_on_order for name in partial.held_columns]
        added += [a for r in self.reductions if r.depends_on_order for a in r.column.args]
        if not added:
            return table
        return table.take(pa.array(_overall_order(table, list(dict.fromkeys(added)))))

    def _spanned(
        self, table: pa.Table, ranges: Ranges, windows: pa.Table, window: tuple[Ints, Ints], groups: pa.Table
    ) -> RangedMembers:
        """Return the members for reductions: each event with the range of rows of ``windows`` that contain it.

        window: the starts and ends of ``windows``; groups: the key values of each.
        """
        first = find_places(ints(windows, OWNER), ints(windows, INDEX), ranges.owner, ranges.low)
        place = None
        if self.order and not self.reads_values:
            place = np.empty(table.num_rows, np.int64)
            place[_overall_order(table, self.order)] = np.arange(table.num_rows)
            place = place[ranges.event]
        names = dict.fromkeys((*self._values, *self.payload))
        return RangedMembers(
            table.select([*names, LE]).take(pa.array(ranges.event)),
            first,
            first + (ranges.high - ranges.low),
            ints(table, COUNT)[ranges.event],
            n=windows.num_rows,
            place=place,
            lifetime=(ints(table, LE)[ranges.event], ints(table, RE)[ranges.event]),
            clip=self.clip,
            window=window,
            groups=groups,
        )


def _overall_order(table: pa.Table, names: Sequence[str]) -> Ints:
    """Return row numbers in the order of start, the columns ``names`` and end, whatever their groups."""
    return event_order(table, np.zeros(table.num_rows, np.int64), names)[0]


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
        """True if settled events stay together in the same windows: all but the best are forgotten."""
        return self._has_chains

    def condensable(self, deltas: pa.Table) -> pa.Table:
        """Return deltas, where windows count rows with the number that each row counts for."""
        counts = self.assigner.traits.counts_rows
        return with_column(deltas, COUNT, np.ones(deltas.num_rows, np.int64)) if counts else deltas

    def condensed(self, events: pa.Table, number: Ints) -> tuple[pa.Table, Ints]:
        """Return the best events of each number, and the number of each.

        Where windows count rows, these keep their order and lifetimes, and the first of a number stays, too, and counts for
        those that are forgotten: no window parts them, and there are better ones in each that has it.
        """
        if not self.assigner.traits.counts_rows:
            return super().condensed(events, number)
        stays = np.zeros(len(number), bool)
        stays[self._best_of(events, number)] = True
        heads = head_events(events, number, self.assigner.traits)[distinct(number)]
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
