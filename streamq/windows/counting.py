"""Windows by numbers: count windows of consecutive distinct starts, or ends, and rows windows of consecutive events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import ClipInput, check_word
from streamq.errors import PlanError, check_whole_number, column_names
from streamq.plan.footprint import Footprint, Retention
from streamq.plan.node import ADDED
from streamq.runtime.arrow.columnar import codes, ints
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluators.assigner import (
    Assigner,
    CountMeasure,
    OrderedRows,
    Ranges,
    WindowTraits,
    distinct_pairs,
    event_order,
    find_places,
    first_place,
    group_bounds,
    is_new_pair,
    run_bounds,
)
from streamq.runtime.groups import Holds, no_holds
from streamq.runtime.time.progress_rule import Cti, saturating
from streamq.time import INFINITY
from streamq.windows.window import W, Window, WindowKindVerbs


@dataclass(frozen=True)
class Count(Window):
    """Count windows: ``[s_i, s_(i+n-1) + 1)``, over the distinct starts ``s_1 < s_2 < ...`` of a group's events.

    With ``by="end"`` the s are the finite ends. A window's members are the events that start (end) in it: n, or more where
    several start at one instant. Every instant that n - 1 others follow begins a window; fewer than n make none.
    """

    n: int
    by: str = "start"

    name = "count"

    @classmethod
    def from_arguments(cls, n: Any, by: Any) -> Count:
        """Return windows of n instants; raise PlanError unless n is a whole number of at least 1 and ``by`` "start" or "end"."""
        check_word(by, ("start", "end"), "by", "count_window")
        check_whole_number("count_window", "n", n)
        return cls(n, by)

    def clip(self, asked: str | None) -> str:
        """Return ``asked``, by default "full", by ends "right"; raise PlanError for what windows by ends do not allow."""
        clip = asked or (ClipInput.RIGHT if self.by == "end" else ClipInput.FULL)
        if self.by == "end" and clip not in (ClipInput.NONE, ClipInput.RIGHT):
            wrong, hint = "windows of ends clip right or not at all", 'Say clip_input="none", or leave it out.'
            raise PlanError("count_window", wrong, f"found {clip!r}", hint)
        return clip

    def footprint(self, longest: int | None, keys: tuple[str, ...], *, condenses: bool) -> Footprint:
        return replace(
            super().footprint(longest, keys, condenses=condenses),
            cti="the (n-1)-th greatest instant below c",
            keeps="events of windows not final, or still to come",
            opens="parts of a group that rows touch or with a window due: the events of windows not final",
            for_good="the last events of each group, whose windows others have to end" if keys else "",
        )

    def _retention(self, longest: int, keys: tuple[str, ...], *, condenses: bool) -> Retention | None:
        """Return a bound where the settled events of an instant are one row."""
        return Retention(longest, self.n, keys) if condenses else None

    @property
    def traits(self) -> WindowTraits:
        return WindowTraits(counting=CountMeasure(self.n, distinct=self.by))

    def shown(self, axis: str) -> str:
        return f"{self.n} {self.by}s"

    def assigner(self, names: Sequence[str]) -> Assigner:
        return CountAssigner(self.traits)


class CountVerbs(WindowKindVerbs[W]):
    """The verb for count windows."""

    def count_window(self, n: int, by: str = "start", *, clip_input: str | None = None, stamp: str | None = None) -> W:
        """Windows of ``n`` consecutive distinct starts (or finite ends, ``by="end"``): ``[s_i, s_(i+n-1) + 1 tick)``.

        Members are the events whose start (end) lies in the window: with ties more than n. By ends, ``clip_input`` is "right"
        (the default) or "none". Results are points at the window's end unless ``stamp="align"``. Raises PlanError.

        ::

            events   3 at 1  5 at 4  1 at 9           n = 2
            windows  [1,5):3 5  [4,10):5 1  reported at 5 and 10

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5}), (9, 10, {"v": 1})])
        >>> s.count_window(2).select(total=sq.sum("v")).show()
        total  start  end
            8      5    6
            6     10   11
        """
        window = Count.from_arguments(n, by)
        return self._in_windows(window, "count_window", window.clip(clip_input), stamp)


@dataclass(frozen=True)
class CountAssigner(Assigner):
    """Assigns events to count windows by the distinct instants of their group."""

    @property
    def cti(self) -> Cti:
        return Cti.COUNTED

    def _instants(self, table: pa.Table) -> Ints:
        """Return the starts or the ends of events, as the windows count them."""
        return ints(table, LE if self.traits.counting.distinct == "start" else RE)

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        """Return each event's windows that end after ``since``; ``upto`` bounds nothing.

        A window's number is the place of its first instant among those of all groups. An event without an end is in no window of
        ends.
        """
        mine = self._instants(table)
        finite = np.flatnonzero(mine < INFINITY)
        g, mine = g[finite], mine[finite]
        group, at = distinct_pairs(g, mine)
        place, n = find_places(group, at, g, mine), self.traits.counting.n
        first, last = group_bounds(group, g)
        low = np.maximum(place - n + 1, np.maximum(first, first_place(group, at >= since, g) - n + 1))
        high = np.minimum(place, last - n + 1)
        return Ranges(finite, g, low, high, lambda _, index: (at[index], at[index + n - 1] + 1))

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        """Mark the events from the n-th greatest instant of their group on, where instants after c - 2 count as c - 2.

        In a group of fewer instants mark all.
        """
        mine = self._instants(table)
        group, at = distinct_pairs(g, np.minimum(mine, c - 2))
        first, last = group_bounds(group, g)
        return mine >= (at[np.maximum(last - (self.traits.counting.n - 1), first)] if len(at) else mine)

    def chains(self, g: Ints, table: pa.Table, c: int) -> Ints:
        """Return equal numbers for events of one instant, which are in the same windows."""
        return codes(pa.table({"g": g, "at": self._instants(table)}), ["g", "at"])[0]

    def holds(self, g: Ints, table: pa.Table, rows: pa.Table, c: int) -> Holds:
        """Return the (n-1)-th greatest instant before c of each group, or its first of fewer, until the next instant is past.

        None if n is 1.
        """
        n = self.traits.counting.n
        if n == 1:
            return no_holds()
        mine = self._instants(table)
        past = mine < c
        group, at = distinct_pairs(g[past], mine[past])
        first, last = group_bounds(group, g[past])
        held = at[np.maximum(last - (n - 2), first)] if len(at) else at
        to_come = np.full(int((~past).sum()), INFINITY)
        return Holds(
            np.concatenate([g[past], g[~past]]),
            np.concatenate([held, to_come]),
            np.concatenate([np.full(len(held), INFINITY), saturating(mine[~past], 1)]),
        )


@dataclass(frozen=True)
class Rows(Window):
    """Rows windows: n consecutive events of a group, in the order of start, then ``order_by``; one begins every ``step`` events.

    Window j has the events ``j*step .. j*step + n - 1`` as its members, counted from 0, and lasts from the start of the first
    until one tick after the start of the last. Where events are equal in start and ``order_by``, the rest of the payload decides.
    On a stream the settled events of a group from one window's beginning to the next are one row, if ``step`` is above 1 and all
    results merge, one for each of their values under medians and distinct counts, or the best of them: DataCell's basic windows
    (section 3).

    Events are counted before those that are not members, as ``where`` says, are left out, and before the members of each window
    are grouped by ``inner_keys``.
    """

    n: int
    step: int
    order_by: tuple[str, ...]
    inner_keys: tuple[str, ...] = field(default=(), metadata=ADDED)
    where: str = field(default="", metadata=ADDED)

    name = "rows"

    @classmethod
    def from_arguments(cls, n: Any, step: Any, order_by: Any, verb: str = "rows_window", called: str = "n") -> Rows:
        """Return windows of n rows; raise PlanError for numbers that are not whole or below 1, or a bad ``order_by``.

        ``verb`` and ``called``, the name of its argument ``n``, are the names for errors.
        """
        check_whole_number(verb, called, n)
        check_whole_number(verb, "step", step)
        return cls(n, step, column_names(order_by, verb, "order_by"))

    def footprint(self, longest: int | None, keys: tuple[str, ...], *, condenses: bool) -> Footprint:
        return replace(
            super().footprint(longest, keys, condenses=condenses),
            cti="the start of the first row of the earliest incomplete window",
            keeps="events of windows not final, or still to come",
            opens="parts of a group that rows touch or with a window due: the events of windows not final",
            for_good="the last rows of each group, which windows to come contain"
            if self.traits.outer_keys(keys)
            else "",
        )

    def _retention(self, longest: int, keys: tuple[str, ...], *, condenses: bool) -> Retention:
        return Retention(longest, self.n + self.step, self.traits.outer_keys(keys))

    @property
    def traits(self) -> WindowTraits:
        return WindowTraits(
            counting=CountMeasure(
                self.n, self.step, order_by=self.order_by, inner_keys=self.inner_keys, where=self.where
            )
        )

    def shown(self, axis: str) -> str:
        by = f", order_by={', '.join(self.order_by)}" if self.order_by else ""
        return f"{self.n} rows, step={self.step}{by}"

    def assigner(self, names: Sequence[str]) -> Assigner:
        return RowsAssigner(replace(self, order_by=self.order(names)).traits)

    def order(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return ``order_by``, then the rest of the payload ``names``, which orders ties."""
        return (*self.order_by, *(n for n in names if n not in (*self.order_by, self.where)))


class RowsVerbs(WindowKindVerbs[W]):
    """The verb for rows windows."""

    def rows_window(
        self,
        n: int,
        step: int = 1,
        *,
        order_by: str | Sequence[str] = (),
        clip_input: str = "full",
        stamp: str | None = None,
    ) -> W:
        """Windows of ``n`` events in the order of (start, ``order_by``), every ``step`` events.

        From the first start to the last start + 1 tick; ``order_by`` names columns, the least value comes first, and ties go by
        the rest of the payload, then by the ends.
        Results are points at the window's end unless ``stamp="align"``. Raises PlanError, and UnknownColumn or TypeMismatch for
        ``order_by``.

        ::

            events   3 at 1  5 at 4  1 at 9           n = 2
            windows  [1,5):3 5  [4,10):5 1  reported at 5 and 10

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5}), (9, 10, {"v": 1})])
        >>> s.rows_window(2).select(total=sq.sum("v")).show()
        total  start  end
            8      5    6
            6     10   11
        """
        window = Rows.from_arguments(n, step, order_by)
        return self._in_windows(window, "rows_window", clip_input, stamp)


HEAD = "__head"
"""The column of the first row of an event's group."""


@dataclass(frozen=True)
class RowsAssigner(Assigner):
    """Assigns events to rows windows by their places in their group's order of LE, ``order_by``, RE.

    RE comes last, so that an end that moves does not reorder settled events: it is greater than their ends anyway.

    A window is final once its last event is settled. So a row that stands for several events, which are settled, lies in the
    windows that are not final with all of them, if none begins in its midst; and the last event of such a window is a row.

    Of a window those events are members for which the column ``where`` is true, if it has a name, by groups of ``inner_keys``.
    """

    @property
    def cti(self) -> Cti:
        return Cti.FIRST_ROW

    def _ordered(self, g: Ints, table: pa.Table) -> OrderedRows:
        return OrderedRows.in_order(event_order(table, g, self.traits.counting.order_by)[0], g, table)

    def _first_window(self, place: Ints) -> Ints:
        """Return the number of the first window whose last event has this place, or a later one, in its group."""
        return np.maximum(-((self.traits.counting.n - 1 - place) // self.traits.counting.step), 0)

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        """Return each row's complete windows that end after ``since``; ``upto`` bounds nothing.

        An owner is a group, by the place of its first row among all rows in order, or a group of inner keys in one; its windows
        are numbered from 0 on. A final window has no events that matter, and ends too early, if a row stands for its last event
        and others.
        """
        rows, n, step = self._ordered(g, table), self.traits.counting.n, self.traits.counting.step
        low = self._first_window(np.maximum(rows.place, rows.place_since(since)))
        high = np.minimum(rows.place, rows.events - n) // step

        def where(owner: Ints, index: Ints) -> tuple[Ints, Ints]:
            first = index * step
            return rows.start_at(owner, first), rows.start_at(owner, first + n - 1) + 1

        return self._of_members(Ranges(rows.row, rows.head, low, high, where), table)

    def _of_members(self, ranges: Ranges, table: pa.Table) -> Ranges:
        """Return the ranges of the rows that are members, by owners that tell the groups in a window apart."""
        counting = self.traits.counting
        if counting.where:
            ranges = ranges.take(pc.fill_null(table.column(counting.where), False).to_numpy()[ranges.event])
        if not counting.inner_keys:
            return ranges
        keys = table.select([*counting.inner_keys]).take(pa.array(ranges.event))
        owner, first = codes(keys.append_column(HEAD, pa.array(ranges.owner)), [HEAD, *counting.inner_keys])
        head = ranges.owner[first]
        return replace(ranges, owner=owner, where=lambda owner, index: ranges.where(head[owner], index))

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        """Mark the rows from the first one of the earliest window that ends at or after c - 1, rounded down to whole steps."""
        rows, step = self._ordered(g, table), self.traits.counting.step
        # the last row of a window that is not final has LE >= c - 2; rows are dropped by whole steps, so that numbers stay right
        settled = rows.place_since(c - 2)
        is_needed = np.empty(len(rows.row), bool)
        is_needed[rows.row] = rows.place >= np.minimum(self._first_window(settled), settled // step) * step
        return is_needed

    def chains(self, g: Ints, table: pa.Table, c: int) -> Ints:
        """Return equal numbers for the events from one place at which a window begins up to the next.

        Events that nothing orders keep numbers of their own if such a place parts them: as rows they could not be ordered.
        """
        counting = self.traits.counting
        order, tie = event_order(table, g, counting.order_by)
        rows = OrderedRows.in_order(order, g, table)
        chain = np.cumsum(is_new_pair(rows.head, rows.place // counting.step)) - 1
        first, last = run_bounds(tie)
        chains = np.empty(len(order), np.int64)
        chains[order] = np.where(chain[first] == chain[last], chain, len(order) + np.arange(len(order)))
        return chains

    def holds(self, g: Ints, table: pa.Table, rows: pa.Table, c: int) -> Holds:
        """Return the first row of each group's earliest incomplete window, if it has come, until the group's next row is past."""
        if not len(g):
            return no_holds()
        ordered = self._ordered(g, table)
        past = ordered.place_since(c)
        # the first window without its last row, and its first row, if that has come
        begins = self._first_window(past) * self.traits.counting.step
        begun = (ordered.head == np.arange(len(g))) & (begins < past)
        held = ordered.start_at(ordered.head[begun], begins[begun])
        is_to_come = ordered.start >= c
        to_come = ordered.start[is_to_come]
        return Holds(
            np.concatenate([ordered.group[begun], ordered.group[is_to_come]]),
            np.concatenate([held, np.full(len(to_come), INFINITY)]),
            np.concatenate([np.full(len(held), INFINITY), saturating(to_come, 1)]),
        )
