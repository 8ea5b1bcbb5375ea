"""Kernels on the state of windows on a grid, that of ``window_aggregate``: windows of several sizes, of rows, and ``top_k``.

Shorter windows merge the basic windows that the longest ones hold. A micro-batch adds its partial results once; each window
that is reported merges the blocks, or basic windows, that it spans.

``top_k`` keeps the best events of each range of windows, and ranks those of a window: the best of a union are among the best
of its parts (DataCell's partial sorted lists). Its partial results are the best events; if input may be taken back, all
events with weights. A micro-batch ranks its own events by range of windows; a reported window ranks the rows that it spans.

Windows of n rows, one each ``step`` rows, whose members are filtered or grouped: a row's number, its place in the order of all
rows, is final once the CTI has passed its start, if nobody takes rows back. From then on these are windows on a grid over the
axis of numbers (DataCell, Algorithm 2). A window is reported once its last row has its number: at that row's start. State: also
the rows that start at c or later, the number of the others and, where rows are sent before they are final, the windows that end
with a row from c on. Cost: also a sort of the rows that the CTI passes, and, of windows that are not final, of those from c on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from streamq.plan.partial import COUNT
from streamq.runtime.arrow.columnar import codes, concat, expand_ranges, first_places, ints, with_column, with_columns
from streamq.runtime.arrow.values import Ints
from streamq.runtime.deltas import LE, RE, WEIGHT, cancelling_deltas, history_of, net_deltas, weighted
from streamq.runtime.evaluators.assigner import event_order
from streamq.runtime.evaluators.window_evaluator import Ranking, WindowEvaluator
from streamq.runtime.grid_ranges import HI, LO, grid_index
from streamq.runtime.groups import HASH
from streamq.runtime.kernel import Arrival, Clock, Output, Totals
from streamq.runtime.kernels.recompute import RecomputeKernel
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.partials.ranges import INDEX, TouchedWindows
from streamq.runtime.state.baskets import KernelBaskets, Span
from streamq.runtime.state.time_bins import TimeBins
from streamq.runtime.state.window_bins import REPORTED, PartialsBasket, ReportedBasket
from streamq.runtime.time.progress_rule import ARRAYS, Number, ProgressRule
from streamq.time import FIRST_INSTANT, INFINITY, MINUS_INFINITY, Grid

NUMBER = "__window"
"""The column of the number of a row's window size."""


@dataclass(frozen=True)
class WindowsOfSizesKernel(WindowAggregateKernel):
    """A kernel of final windows of several grids over points that nobody takes back.

    ``window`` is the grid of the longest windows, whose hop divides the size, the hop and the distance of each other grid;
    ``partials`` are held, ``columns`` are those of a row. ``results``: the kernel of each grid, which merges and finishes the
    partial results that its windows show. Rows have the number of their grid in NUMBER.
    """

    results: tuple[WindowAggregateKernel, ...] = ()
    columns: tuple[tuple[str, pa.DataType], ...] = ()

    @property
    def progress_rule(self) -> ProgressRule:
        """The rule of the longest windows; shorter ones are reported at their own ends."""
        return replace(super().progress_rule, has_sizes=True)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Add partial results, and report the windows of each grid that the CTI has reached.

        Basic windows are forgotten, and the CTI is sent, as the longest windows say.
        """
        if clock.form_changed:
            # windows that were reported before they were final are reported again once they are
            state.drop_basket(REPORTED)
        new = self._arrived([arrival.table for arrival in arrivals if arrival.table.num_rows])
        places = [_GridPlace(kernel.window, self.window) for kernel in self.results]
        out = []
        for number, (kernel, place) in enumerate(zip(self.results, places, strict=True)):
            rows = kernel._deltas(self._due_rows(state, new, kernel, place, clock))
            if rows is not None:
                out.append(self._numbered(rows, number))
        least = self.window.first_ending_after(clock.c)
        self.keep(state, new if clock.c != INFINITY else None, least, clock.m)
        ends = [place.next_end(self._held.spans(state), clock.c) for place in places]
        due = min((end for end in ends if end is not None), default=None)
        return Output(concat(out) if out else None, self._cti(least, clock.c), due=due)

    def _due_rows(
        self, state: KernelBaskets, new: pa.Table | None, kernel: WindowAggregateKernel, place: _GridPlace, clock: Clock
    ) -> list[pa.Table]:
        """Return the rows of the windows of one grid that the CTI has reached in this micro-batch, as one table or none."""
        first = kernel.window.first_ending_after(clock.c_before)
        last = kernel.window.first_ending_after(clock.c)
        last = last if last == INFINITY else last - 1
        if first > last:
            return []
        begin = place.start(first)
        if begin <= FIRST_INSTANT + place.basic.n:
            # here windows would be numbered below the axis, so that basic windows alone say where they are
            held = self._held.read(state, begin, INFINITY)
        else:
            held = self._blocks.read_between(state, begin, place.start(last), place.end(first))
        due = self._with_new(held, new)
        if due is None:
            return []
        columns = [name for partial in kernel.partials for name in partial.held_columns]
        return kernel._rows(place.ranges(due.select([*self.keys, LO, HI, COUNT, *columns])), first, last)

    def _numbered(self, rows: pa.Table, number: int) -> pa.Table:
        """Return rows of one grid with the columns of all, NULL where the windows do not show them, and the grid's number."""
        rows = with_column(rows, NUMBER, np.full(rows.num_rows, number))
        columns = {name: pa.nulls(rows.num_rows, kind) for name, kind in self.columns}
        return pa.table({**columns, **{name: rows.column(name) for name in rows.column_names}})


@dataclass(frozen=True)
class _GridPlace:
    """The windows of a grid in terms of the basic windows of another one, ``basic``: these are a hop long, and numbered."""

    grid: Grid
    basic: Grid

    @property
    def hop(self) -> int:
        return self.grid.hop // self.basic.hop

    @property
    def size(self) -> int:
        return self.grid.size // self.basic.hop

    @property
    def offset(self) -> int:
        """The number of the first basic window of window 0."""
        return (self.grid.offset - self.basic.offset) // self.basic.hop

    def start(self, index: int) -> int:
        """Return the number of the first basic window of a window; an infinite number itself."""
        return index if index in (INFINITY, MINUS_INFINITY) else self.offset + index * self.hop

    def end(self, index: int) -> int:
        """Return the number of the first basic window after a window; an infinite number itself."""
        return index if index in (INFINITY, MINUS_INFINITY) else self.start(index) + self.size

    def ranges(self, partials: pa.Table) -> pa.Table:
        """Return partial results of basic windows, and of blocks of them, with the ranges of the windows that contain them.

        Before, they have those of the windows of ``basic``: HI is the first basic window, LO goes with the last.
        """
        first, low = ints(partials, HI), ints(partials, LO)
        # a range that would begin before the axis is one basic window's
        behind = np.where(low == FIRST_INSTANT, first + 1, low + self.basic.n)
        low = grid_index(behind, self.size + self.offset - self.hop + 1, self.hop, ARRAYS)
        return with_column(with_column(partials, LO, low), HI, grid_index(first, self.offset, self.hop, ARRAYS))

    def next_end(self, spans: Sequence[Span], c: int) -> int | None:
        """Return the end of the next window after ``c`` that has members in the ``spans`` of bins; None without one."""
        ends, first = [], self.grid.first_ending_after(c)
        for low, high in spans:
            behind = low + self.basic.n if low > FIRST_INSTANT else low
            lowest = (behind - self.size - self.offset + self.hop - 1) // self.hop
            if (high - self.offset) // self.hop >= first:
                ends.append(self.grid.end(max(lowest, first)))
        return min(ends, default=None)


EVENTS = "__events"
"""The column with the number of events that a row stands for, those included that are no longer there since others are better."""


@dataclass(frozen=True)
class RankedWindowsKernel(WindowAggregateKernel):
    """A kernel of the best events of windows, by ``ranking``; it has no partial results and no reductions."""

    ranking: Ranking = field(kw_only=True)

    def combine(self, port: int, table: pa.Table) -> pa.Table:
        """Return the events with their ranges of windows; unless they may be taken back, the best of each key and range.

        A row of each range has the number of its events, by which late ones are counted.
        """
        events = self._partials(table)
        if not self.merges:
            return self._held.merged(events)
        number, first = codes(events, [*self.keys, LO, HI])
        best = self._held.merged(with_column(events, EVENTS, number))
        of, many = ints(best, EVENTS), np.zeros(best.num_rows, np.int64)
        heads = first_places(of)
        many[heads] = np.bincount(number, minlength=len(first))[of[heads]]
        return with_column(best, EVENTS, many)

    def _events(self, table: pa.Table) -> Ints:
        return ints(table, EVENTS) if self.merges else super()._events(table)

    def _arrived(self, fresh: Sequence[pa.Table]) -> pa.Table | None:
        new = super()._arrived(fresh)
        return new if new is None or not self.merges else new.drop_columns([EVENTS])

    @property
    def _values(self) -> tuple[str, ...]:
        keys = set(self.keys)
        return (self.ranking.by, *(name for name in self.ranking.payload if name not in keys))

    @property
    def held_form(self) -> str:
        return "the best events of each range of windows" if self.merges else "events with weights"

    @property
    def may_have_blocks(self) -> bool:
        return False

    @property
    def _held(self) -> PartialsBasket:
        return BestBasket(**vars(super()._held), ranking=self.ranking)

    @property
    def _reported(self) -> ReportedBasket:
        places = [name for name in (self.ranking.rank, self.ranking.row_number) if name]
        return ReportedBasket(self.keys, (*self.ranking.payload, INDEX, *places, WEIGHT), self.sizes)

    def _rows_in(self, partials: pa.Table, low: Ints, high: Ints) -> list[pa.Table]:
        number, _ = codes(partials, self.keys) if self.keys else (np.zeros(partials.num_rows, np.int64), None)
        event, index = _members(partials, low, high)
        return self._best(partials, event, number[event], index, index)

    def _touched_rows(self, partials: pa.Table, touched: TouchedWindows) -> list[pa.Table]:
        windows, first, last = touched.places(partials, ints(partials, LO), ints(partials, HI))
        event, place = _members(partials, first, last)
        return self._best(partials, event, np.zeros(len(event), np.int64), place, windows.index[place])

    def _best(self, events: pa.Table, event: Ints, owner: Ints, place: Ints, index: Ints) -> list[pa.Table]:
        """Return the best members of windows as inserts, in one table; an empty list if there are none.

        A member is an event, by row, in a window, by owner and place; ``index`` are the numbers of the windows.
        """
        if not len(event):
            return []
        ranked = self.ranking.ranked(events, event, owner, place)
        best = ranked.order[ranked.is_best]
        rows = events.select([*self.ranking.payload]).take(pa.array(event[best]))
        rows = self.ranking.with_places(rows, ranked.rank[ranked.is_best], ranked.number[ranked.is_best])
        return [weighted(with_columns(rows, {INDEX: index[best]}), 1)]


@dataclass(frozen=True, kw_only=True)
class BestBasket(PartialsBasket):
    """Events by key and range of windows, of which only the best stay if they merge."""

    ranking: Ranking

    def merged(self, table: pa.Table, windows: Sequence[str] = (LO, HI)) -> pa.Table:
        """Return the best rows of each key and range; if they may be retracted, all, with their weights, that do not cancel."""
        if not self.merges:
            return super().merged(table, windows)
        every = np.arange(table.num_rows)
        ranked = self.ranking.ranked(table, every, codes(table, [*self.keys, *windows])[0], every * 0)
        return table.take(pa.array(np.sort(ranked.order[ranked.is_best])))


def _members(events: pa.Table, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return the members of windows ``first..last`` of each row of ``events``, empty for some: their rows, and their windows."""
    row = np.flatnonzero((first <= last) & (ints(events, COUNT) > 0))
    which, window = expand_ranges(first[row], last[row])
    event = row[which]
    copies = ints(events, COUNT)[event]
    return np.repeat(event, copies), np.repeat(window, copies)


UNNUMBERED = "unnumbered"
"""The basket of rows that start at c or later, before which others may come."""

PREVIEWS = "previews"
"""The basket of the rows, as sent, of windows that end with a row from c on."""

NUMBERED = "numbered"
"""The value of state with the number of rows that have got their numbers."""


@dataclass(frozen=True, eq=False)
class NumberedRows:
    """Rows by their numbers, as LE, from ``first`` on, of which some are members; ``starts``: those of all of them, in order."""

    members: pa.Table
    starts: Ints
    first: int


@dataclass(frozen=True)
class RowNumbers:
    """The numbers of rows by start and ``order_by``, from 0 on, and windows of ``n`` of them, one from each ``step``-th on."""

    n: int
    step: int
    order_by: tuple[str, ...]
    where: str = ""

    def rows(self, deltas: pa.Table, first: int) -> NumberedRows:
        """Return rows by their numbers, of which ``first`` is the first one; those for which ``where`` is true are members."""
        rows = history_of(deltas)
        order, _ = event_order(rows, np.zeros(rows.num_rows, np.int64), self.order_by)
        number = np.empty(len(order), np.int64)
        number[order] = first + np.arange(len(order))
        members = with_column(rows.drop_columns([RE]), LE, number)
        if self.where:
            members = members.filter(members.column(self.where))
        return NumberedRows(members, ints(rows, LE)[order], first)

    def first_window(self, number: Number) -> Number:
        """Return the first window whose last row has this number or a later one."""
        return np.maximum(0, -((self.n - 1 - number) // self.step))

    def last_window(self, number: Ints) -> Ints:
        """Return the last window that begins with this row or an earlier one."""
        return number // self.step

    def last_row(self, window: Number) -> Number:
        """Return the number of the last row of a window."""
        return window * self.step + self.n - 1

    def completed(self, rows: NumberedRows) -> tuple[int, int]:
        """Return the first window that rows complete, and the first one that they do not."""
        return int(self.first_window(rows.first)), int(self.first_window(rows.first + len(rows.starts)))


@dataclass(frozen=True)
class NumberedWindowsKernel(RecomputeKernel[WindowEvaluator]):
    """A kernel of the windows that an evaluator assigns by numbers of rows; ``windows`` is that of windows over the numbers.

    Rows of windows are points at their ends.
    """

    windows: WindowAggregateKernel = field(kw_only=True)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Number the rows before c, report the windows that they complete, and correct those reported with rows from c on."""
        totals = Totals()
        (new,) = self._fresh(arrivals, totals)
        if clock.form_changed and self.final:
            # windows that were reported before they were final are reported again once they are
            state.drop_basket(PREVIEWS)
        waiting = TimeBins(state, UNNUMBERED)
        passed = waiting.advance([new.drop_columns([HASH])], clock.c)
        tables = [] if passed is None else [self._final_rows(state, passed)]
        first = state.values.get(NUMBERED, 0)
        reported = first
        if not self.final:
            previews, reported = self._previews(waiting.rows(), state, first, clock)
            tables += self._changes(state, previews)
        some = [table for table in tables if table is not None]
        change = net_deltas(concat(some)) if some else None
        due = waiting.nth(self._numbers.last_row(int(self._numbers.first_window(reported))) - first)
        if clock.c == INFINITY:
            for basket in state.names():
                state.drop_basket(basket)
        return Output(change, clock.c, totals, None if due is None else due + 1)

    @property
    def _numbers(self) -> RowNumbers:
        counting = self.evaluator.assigner.traits.counting
        return RowNumbers(counting.n, counting.step, counting.order_by, counting.where)

    def _final_rows(self, state: KernelBaskets, passed: pa.Table) -> pa.Table | None:
        """Return the rows of the windows that are complete once the rows ``passed`` have their numbers, which they get now."""
        new = self._numbers.rows(passed, state.values.get(NUMBERED, 0))
        numbered = state.values[NUMBERED] = new.first + len(new.starts)
        # no window begins before row 0, so that none ends before row n - 1
        before, now = (max(number, self._numbers.n - 1) for number in (new.first, numbered))
        members = self.windows.combine(0, new.members)
        rows = self.windows.advance(state, [Arrival(0, members)], Clock(before, now, before, now)).table
        return self._at_ends(rows, new)

    def _previews(
        self, waiting: pa.Table | None, state: KernelBaskets, first: int, clock: Clock
    ) -> tuple[pa.Table | None, int]:
        """Return the rows of the windows that end with a waiting row that progress has reached, and the number that is next.

        That is the number of the first waiting row that it has not reached; ``first`` is that of the first one. None: no rows.
        """
        if waiting is None:
            return None, first
        new = self._numbers.rows(waiting, first)
        after = first + (len(new.starts) if self._sends_at_once else int(np.searchsorted(new.starts, clock.m)))
        begin, end = (int(self._numbers.first_window(number)) for number in (first, after))
        if begin == end:
            return None, after
        rows = self.windows.preview(state, self.windows.combine(0, new.members), begin, end - 1)
        return self._at_ends(rows, new), after

    def _changes(self, state: KernelBaskets, previews: pa.Table | None) -> list[pa.Table | None]:
        """Return the rows ``previews``, which are kept, and retractions of those that were kept before."""
        before = state.read_all(PREVIEWS)
        state.drop_basket(PREVIEWS)
        if previews is not None:
            state.basket(PREVIEWS).append("", previews)
        return [previews, None if before is None else cancelling_deltas(before)]

    def _at_ends(self, rows: pa.Table | None, new: NumberedRows) -> pa.Table | None:
        """Return rows of windows over numbers as points at the ends of the windows, which are those of new rows."""
        if rows is None:
            return None
        end = new.starts[ints(rows, LE) + self._numbers.n - 1 - new.first] + 1
        return with_columns(rows, {LE: end, RE: end + 1}).select([*self.result, LE, RE, WEIGHT])
