"""Evaluators over one stream whose rows are its events: with lifetimes that other events change, or with computed values.

Signals, pieces and repetitions change lifetimes by other events; an event of ``last_rows`` lives while the latest rows window
of its group has it. Expressions that may fail are computed for each event, and events whose user function fails are
separated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.plan.expr import Expr
from streamq.plan.function import Fault
from streamq.plan.schema import Schema
from streamq.runtime.arrow.arrow_expr import attempt, lifetime_part
from streamq.runtime.arrow.columnar import codes, expand_ranges, ints, with_column, with_columns
from streamq.runtime.arrow.overlap import next_after
from streamq.runtime.arrow.values import ORDER, Ints, Mask, column_ranks, combine_numbers, number_values
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluator import SettledProgress
from streamq.runtime.evaluators.assigner import OrderedRows, event_order, groups_to_come
from streamq.runtime.grid_ranges import grid_lifetimes, grid_range
from streamq.runtime.groups import GROUP_NUMBER, ToCome
from streamq.runtime.time.progress_rule import AT_ONCE, SETTLED, EndlessRow, ProgressRule, Release
from streamq.runtime.user_code.calls import NOBODY_TAKES
from streamq.time import INFINITY, MINUS_INFINITY, Grid

if TYPE_CHECKING:
    from streamq.runtime.time.lateness import QuarantineRows


@dataclass(frozen=True)
class SignalEvaluator(SettledProgress):
    """Events end at the next strictly later LE of equal keys; those of one LE at once, if another is later by ``order_by``."""

    keys: tuple[str, ...]
    order_by: tuple[str, ...] = ()

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)

    @property
    def progress_rule(self) -> ProgressRule:
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
        return [ints(inputs[0], RE) >= c]

    def to_come(self, inputs: Sequence[pa.Table], upto: int) -> ToCome:
        """Return the events that live beyond ``upto``, with the start of the first cell from there on."""
        return groups_to_come(ints(inputs[0], GROUP_NUMBER), inputs[0], upto, self.cells.next_start(upto))


@dataclass(frozen=True)
class DistinctIdsEvaluator(SettledProgress):
    """Drops an event if one of its ``ids`` started in ``[LE - within, LE)``, or at LE with a smaller (RE, payload)."""

    ids: tuple[str, ...]
    names: tuple[str, ...]
    within: int

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        return (self.ids,)

    @property
    def progress_rule(self) -> ProgressRule:
        """A row is final once it has started: its end does not move any more, and only earlier events could repeat it."""
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
        """Keep each id's last start before c, if a start at c may lie within the bound of it, and those from c on."""
        table = inputs[0]
        group, le = ints(table, GROUP_NUMBER), ints(table, LE)
        last = np.full(int(group.max(initial=0)) + 1, MINUS_INFINITY)
        np.maximum.at(last, group[le < c], le[le < c])
        earliest = _less(np.array([c]), self.within)[0]
        return [(le >= c) | ((le == last[group]) & (le >= earliest))]


def _less(x: Ints, by: int) -> Ints:
    """Return instants moved back by a number of ticks, at least MINUS_INFINITY."""
    return np.where(x < MINUS_INFINITY + by, MINUS_INFINITY, x - by)


@dataclass(frozen=True)
class LastRowsEvaluator(SettledProgress):
    """Events live from the last row of the first rows window that has them to the last row of the first later one without them.

    Window j of a group has the ``n`` events from place ``j * step`` on, in the order of start and ``order``.
    """

    keys: tuple[str, ...]
    n: int
    step: int
    order: tuple[str, ...]

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)

    @property
    def progress_rule(self) -> ProgressRule:
        return replace(SETTLED, endless=EndlessRow.LATER_ROWS)

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """Return the events that a complete window has, unless a later one without them is complete at the same instant.

        Old ends are ignored; the end is INFINITY until a window without the event is complete.
        """
        rows = self._ordered(inputs[0])
        first = np.maximum(self._first_window_to(rows.place), 0)
        start = self._complete_from(rows, first)
        end = self._complete_from(rows, rows.place // self.step + 1)
        lives = (start < end) & (end > since)
        events = inputs[0].take(pa.array(rows.row[lives]))
        return with_columns(events, {LE: start[lives], RE: end[lives]})

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Keep the events of the latest window complete before c, those since, and before them those of windows it overlaps.

        The windows that an event has entered before are counted from the first one, so those must be there. Rows are dropped by
        whole steps, so that numbers stay right.
        """
        ordered = self._ordered(inputs[0])
        latest = self._first_window_to(ordered.place_since(c)) - 1
        first = np.maximum(latest - (self.n - 1) // self.step, 0)
        is_needed = np.empty(len(ordered.row), bool)
        is_needed[ordered.row] = ordered.place >= first * self.step
        return [is_needed]

    def _ordered(self, table: pa.Table) -> OrderedRows:
        group = ints(table, GROUP_NUMBER)
        return OrderedRows.in_order(event_order(table, group, self.order)[0], group, table)

    def _first_window_to(self, place: Ints) -> Ints:
        """Return the first window whose last row has this place or a later one; it is below 0 if window 0 has."""
        windows: Ints = -((self.n - 1 - place) // self.step)
        return windows

    def _complete_from(self, rows: OrderedRows, window: Ints) -> Ints:
        """Return the start of the last row of each row's window; INFINITY if that has not come."""
        last = window * self.step + self.n - 1
        events = rows.events
        return np.where(last < events, rows.start_at(rows.head, np.minimum(last, events - 1)), INFINITY)


MODULE, REASON = "__module", "__reason"
"""The columns of a failed event for the module and the reason."""


@dataclass(frozen=True)
class AttemptEvaluator(SettledProgress):
    """Adds ``columns`` to each event; ``schema`` types the payload that they read; axis: the type of instants."""

    schema: Schema
    columns: tuple[tuple[str, Expr], ...]
    axis: pa.DataType

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        """No columns: each event is evaluated by itself, so any grouping will do."""
        return ((),)

    @property
    def progress_rule(self) -> ProgressRule:
        return AT_ONCE

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        return [np.zeros(inputs[0].num_rows, bool)]

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int, aside: QuarantineRows | None = None) -> pa.Table:
        """Return the events with their columns; ``aside`` takes those whose module fails. Without it, they raise ModuleFailed.

        Errors of expressions are raised in either case. ``since`` and ``upto`` leave nothing out.
        """
        rows, failed = self.attempted(inputs[0], is_taken=aside is not None)
        if aside is not None:
            set_events_aside(aside, failed)
        return rows

    def attempted(self, events: pa.Table, *, is_taken: bool) -> tuple[pa.Table, pa.Table]:
        """Return the events that do not fail, with their columns, and the others, with ``MODULE`` and ``REASON`` instead.

        If several modules fail on an event, the first is named. Raises the errors of expressions, and ModuleFailed unless
        ``is_taken``: something takes the events that fail.
        """
        payload = {name: events.column(name).combine_chunks() for name in self.schema.names}
        starts, ends = (events.column(name).combine_chunks() for name in (LE, RE))
        lifetime = partial(lifetime_part, starts=starts, ends=ends, axis=self.axis)
        rows, faults = events, list[Fault]()
        for name, expr in self.columns:
            value = attempt(expr, self.schema, payload, lifetime, events.num_rows)
            rows = rows.append_column(name, value.array)
            faults += value.faults
        for fault in faults:
            if not (fault.module and is_taken):
                text = f"{fault.text} {NOBODY_TAKES}" if fault.module else fault.text
                raise fault.kind(text) from fault.cause
        modules = np.full(events.num_rows, None, object)
        reasons = np.full(events.num_rows, None, object)
        for fault in reversed(faults):
            # late rows have the name of the module in a column of its own
            reason = fault.text.removeprefix(f"{fault.module}: it failed; ").removesuffix(".")
            modules[fault.rows], reasons[fault.rows] = fault.module, reason
        is_failed = pa.array(modules, pa.string()).is_valid()
        with_reasons = events.append_column(MODULE, pa.array(modules, pa.string()))
        with_reasons = with_reasons.append_column(REASON, pa.array(reasons, pa.string()))
        return rows.filter(pc.invert(is_failed)), with_reasons.filter(is_failed)


def set_events_aside(aside: QuarantineRows, failed: pa.Table) -> None:
    """Add events that have failed to ``aside``, each as a failure of its own, without a window or group."""
    modules, reasons = failed.column(MODULE).to_pylist(), failed.column(REASON).to_pylist()
    events = failed.drop_columns([MODULE, REASON])
    for i, (module, reason) in enumerate(zip(modules, reasons, strict=True)):
        aside.add(module, reason, events.slice(i, 1), group={})
