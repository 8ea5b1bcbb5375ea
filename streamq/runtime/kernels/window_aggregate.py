"""Kernel of windows on a grid: keeps partial results by range of windows, and merges them into a window when it is reported.

State: partial results in bins by their last window, so that a bin is dropped as a whole; if input may be taken back, values with
weights instead of merged results (a minimum cannot be subtracted), unless all can be subtracted. States of a user's module that
do not merge are each of a single window; an event is then a row for each of its windows. Of many events in many hops also blocks
of partials (:mod:`streamq.runtime.state.window_bins`). Cost: a micro-batch adds its own partials; a reported window merges the
blocks, or partials, that it spans; one that is corrected, the partials of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import ClipInput, CountReason
from streamq.plan.partial import COUNT, Partial, Reduction, RowWindow, are_exact
from streamq.runtime.arrow.columnar import codes, concat, expand_ranges, group, ints, with_column, with_columns
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.deltas import (
    LE,
    RE,
    WEIGHT,
    cancelling_deltas,
    net_deltas,
    unit_weights,
    weighted,
    with_ends,
    with_weights,
)
from streamq.runtime.evaluators.window_evaluator import reduced_windows, value_columns
from streamq.runtime.grid_ranges import HI, LO, first_ending_after, grid_lifetimes, last_starting_before, window_range
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, late_error
from streamq.runtime.partials.ranges import (
    EXPLODE_ROWS,
    INDEX,
    MergedWindows,
    TouchedWindows,
    merge_by_window,
    row_windows,
)
from streamq.runtime.state.baskets import SIZES, BinSizes, KernelBaskets
from streamq.runtime.state.bins import ENDLESS
from streamq.runtime.state.window_bins import REPORTED, BlocksBasket, PartialsBasket, ReportedBasket, block_sizes
from streamq.runtime.time.endpoints import Bound, Endpoint, bound_at_end, endpoint
from streamq.runtime.time.lateness import judgement
from streamq.runtime.time.progress_rule import ARRAYS, Cti, ProgressRule, Release
from streamq.time import INFINITY, MINUS_INFINITY, Grid


class OpenWindows:
    """The first open window of each key with an unsettled member; later windows of that key are open, too."""

    def __init__(self, first: pa.Table, keys: Sequence[str]):
        self.first, self.keys = first, list(keys)

    @staticmethod
    def find(partials: pa.Table, keys: Sequence[str], c: int) -> OpenWindows | None:
        """Return the open windows at CTI c; None if there is none."""
        if c == INFINITY:
            return None
        is_unsettled = pc.and_(pc.greater_equal(partials.column(RE), c), pc.greater(partials.column(COUNT), 0))
        unsettled = partials.filter(is_unsettled)
        return OpenWindows(group(unsettled, keys, {LO: (LO, "min")}), keys) if unsettled.num_rows else None


def least_open(windows: OpenWindows | None, otherwise: int) -> int:
    """Return the first window of any key that is not final, at most ``otherwise``."""
    return otherwise if windows is None else min(otherwise, pc.min(windows.first.column(LO)).as_py())


def first_open(rows: pa.Table, windows: OpenWindows | None, otherwise: int) -> Ints:
    """Return, for each row, the first window of its key that is not final, at most ``otherwise``."""
    first = np.full(rows.num_rows, otherwise, np.int64)
    if windows is None:
        return first
    opened, keys = windows.first, windows.keys
    if not keys:
        return np.minimum(first, ints(opened, LO))
    number, _ = codes(concat([opened.select(keys).cast(rows.select(keys).schema), rows.select(keys)]), keys)
    of_key = np.full(int(number.max(initial=0)) + 1, otherwise, np.int64)
    of_key[number[: opened.num_rows]] = ints(opened, LO)
    return np.minimum(first, of_key[number[opened.num_rows :]])


@dataclass(frozen=True)
class WindowAggregateKernel:
    """A kernel of aggregates over windows of a grid.

    points: declared points, without ``__re``; merges: partial results may be merged for good, because input is insert-only, or,
    if it ``retracts``, because events can be taken out of them again;
    infinite: lifetimes may never end; reads_end: an argument reads an end that may still move, so a window waits until its
    members are settled; final: windows are reported once they are final, else at the watermark; early: windows are reported as
    soon as they have a member; explode_rows: the number of copies of partials beyond which ranges are cut into dyadic nodes;
    sizes: the sizes at which bins are split by group; reductions: aggregates of values, which are held with numbers of events
    (not with ``merges``); clip: how lifetimes are cut that they read; order: the columns by which they order members of a start;
    at_ends: rows are points at their windows' ends.
    """

    keys: tuple[str, ...]
    window: Grid
    partials: tuple[Partial, ...]
    points: bool
    merges: bool
    infinite: bool = False
    reads_end: bool = False
    final: bool = False
    early: bool = False
    explode_rows: int = EXPLODE_ROWS
    sizes: BinSizes = SIZES
    reductions: tuple[Reduction, ...] = ()
    clip: ClipInput = ClipInput.FULL
    order: tuple[str, ...] = ()
    at_ends: bool = False
    retracts: bool = False

    @property
    def progress_rule(self) -> ProgressRule:
        """Windows are reported one by one, at their ends; final ones also wait for members whose ends are read."""
        release, cti = Release.AT_END, Cti.EARLIEST_WINDOW
        if self.at_ends:
            release, cti = Release.AT_WINDOW_END, Cti.WINDOW_END if self.reads_end else Cti.INPUT
        rule = ProgressRule(
            cti,
            final=release,
            early=release,
            windows=True,
            grid=self.window,
            waits_for_members=self.reads_end,
            may_be_empty=True,
        )
        return rule.released(final=self.final, early=self.early)

    # map side

    def combine(self, port: int, table: pa.Table) -> pa.Table:
        """Return partial results of the events, a row for each key and range of windows, or for each of their values in it."""
        return self._combined(self._partials(table))

    def announce(self, port: int, table: pa.Table) -> list[Endpoint] | None:
        """Return the endpoints of the events as window numbers, which bound windows at the end.

        None if there are no deltas, or if the stream has no endless lifetimes. Weights of equal endpoints are summed up, those of
        sum 0 left out; if partials are merged, which are never retracted, only the greatest of each first window is returned,
        and that of its endless lifetimes apart.
        """
        if not self.infinite or table.num_rows == 0:
            return None
        table = with_weights(table)
        le, re = ints(table, LE), ints(table, RE)
        endless = re == INFINITY
        low = first_ending_after(self.window, le, ARRAYS)
        last = last_starting_before(self.window, endpoint(le, re, ARRAYS), ARRAYS)
        rows = pa.table({"low": low, "last": last, "endless": endless.astype(np.int64), "w": table.column(WEIGHT)})
        # the first window is included, because late partials are dropped where c is known
        is_final = self.merges and not self.retracts
        if is_final:
            weights = group(rows, ["low", "endless"], {"last": ("last", "max"), "w": ("w", "max")})
        else:
            weights = group(rows, ["low", "endless", "last"], {"w": ("w", "sum")})
        return [
            Endpoint(r["last"], bool(r["endless"]), r["w"], is_final, r["low"]) for r in weights.to_pylist() if r["w"]
        ]

    # one bucket, one micro-batch

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Add partials, and report the windows that the watermark (or, in final mode, the CTI) has reached.

        Windows reported before that are not final are corrected; in early mode, all windows are sent as corrections. Partials of
        final windows are forgotten. Late events are counted. The CTI sent is that of the progress rule.
        """
        totals = Totals()
        grid = self.window
        open_before, open_now = grid.first_ending_after(clock.c_before), grid.first_ending_after(clock.c)
        fresh = [p for a in arrivals if (p := self._judged(a, totals)).num_rows]
        new = self._arrived(fresh)
        bound = Bound.ENDLESS if self.infinite else Bound.NONE
        last_of_all = bound_at_end(state, clock, bound, self.window)

        if self.final:
            report_from, report_to = open_before, open_now - 1 if open_now != INFINITY else last_of_all
        elif self.early:
            # every window is reported by corrections, none at its end
            report_from, report_to = INFINITY, MINUS_INFINITY
        else:
            report_from = grid.first_ending_after(clock.m_before)
            report_to = grid.first_ending_after(clock.m) - 1 if clock.m != INFINITY else last_of_all

        held = self._held.read(state, MINUS_INFINITY, INFINITY) if self.reads_end else None
        closed = OpenWindows.find(held, self.keys, clock.c_before) if held is not None else None
        dirty = self._touched(state, new, least_open(closed, open_before), report_from, last_of_all)
        last_corrected = last_of_all if self.early else INFINITY
        if clock.form_changed and self.final:
            # windows that were reported before they were final are reported again once they are
            state.drop_basket(REPORTED)
        elif clock.form_changed:
            # an earlier run has reported more windows, or fewer, so all are corrected
            last_corrected = last_of_all if self.early else max(report_to, MINUS_INFINITY)
            report_from, report_to = INFINITY, MINUS_INFINITY
            dirty = TouchedWindows.of_all([dirty, self._not_final(state, new, closed, open_before, last_corrected)])
        out: list[pa.Table] = []
        least = open_now
        everything = self._with_new(held, new) if self.reads_end else None
        if everything is not None:
            opened = OpenWindows.find(everything, self.keys, clock.c)
            least = least_open(opened, open_now)
            if self.final:
                out += self._final_rows(everything, opened, closed, open_before, report_to)
            else:
                out += self._rows(everything, report_from, report_to)
        elif report_to >= report_from:
            due = self.partials_in(state, new, report_from, report_to)
            out += [] if due is None else self._rows(due, report_from, report_to)
        if dirty is not None:
            if not self.reads_end:
                everything = self._with_new(self._held.read(state, INFINITY, MINUS_INFINITY, dirty), new)
            out += [] if everything is None else self._corrected(state, everything, dirty, last_corrected)
        if not self.final and out and clock.c != INFINITY:
            self._reported.add(state, out, least)
        self.keep(state, new if clock.c != INFINITY else None, least, clock.m)
        next_due = None
        if not self.early:
            next_due = self._held.next_end(state, least if self.final else grid.first_ending_after(clock.m))
        return Output(self._deltas(out), self._cti(least, clock.c), totals, next_due)

    def preview(self, state: KernelBaskets, new: pa.Table, first: int, last: int) -> pa.Table | None:
        """Return the rows of the windows ``first..last`` over the state and partial results that it lacks; None: none."""
        due = self.partials_in(state, new, first, last)
        return None if due is None else self._deltas(self._rows(due, first, last))

    def partials_in(self, state: KernelBaskets, new: pa.Table | None, first: int, last: int) -> pa.Table | None:
        """Return the partial results of the windows ``first..last``: those in state, and new ones; None: there are none."""
        return self._with_new(self._blocks.read(state, first, last), new)

    def keep(self, state: KernelBaskets, new: pa.Table | None, least: int, m: int) -> None:
        """Add partial results, but for those of windows before ``least``, whose state goes; merge blocks up to the watermark m.

        Of a long micro-batch most windows are final.
        """
        if new is not None:
            later = new.filter(pa.array(ints(new, HI) >= least))
            if later.num_rows:
                self._blocks.add(state, later)
        self._blocks.merge_past(state, self.window.last_starting_before(m))
        for basket in (self._held, self._blocks, self._reported):
            basket.bins(state).forget(least)

    # partial results

    def _partials(self, table: pa.Table) -> pa.Table:
        """Return a row with partial results for each event, with its range of windows; none for events in gaps.

        A delta of weight n has n rows. The columns are the keys, LO, HI, the weight as ``__n`` and the partials; also the
        lifetime if ends are read.
        """
        table = with_weights(unit_weights(table))
        low, high = window_range(self.window, ints(table, LE), None if self.points else ints(table, RE), ARRAYS)
        columns: dict[str, Any] = {name: table.column(name) for name in self.keys}
        columns |= {LO: pa.array(low), HI: pa.array(high)}
        if self._has_lifetimes:
            lifetimes = with_ends(table)
            columns |= {LE: lifetimes.column(LE), RE: lifetimes.column(RE)}
            table = lifetimes
        columns[COUNT] = table.column(WEIGHT)
        weighed = with_column(table, COUNT, columns[COUNT])
        for partial in self.partials:
            of_events = self.merges and not self.retracts
            columns |= partial.of_events(weighed) if of_events else partial.of_weighted(weighed)
        columns |= {name: table.column(name) for name in self._values}
        partials = pa.table(columns)
        if self.window.hop > self.window.size:
            partials = partials.filter(pc.less_equal(partials.column(LO), partials.column(HI)))
        return partials

    def _arrived(self, fresh: Sequence[pa.Table]) -> pa.Table | None:
        """Return what came in one table, a row for each key and range unless it may be retracted; None if nothing came."""
        if not fresh:
            return None
        # one table comes merged from the map side
        rows = fresh[0] if len(fresh) == 1 else self._combined(concat(fresh))
        return self._by_window(rows, ints(rows, LO), ints(rows, HI)) if self.by_window and self.merges else rows

    def _combined(self, rows: pa.Table) -> pa.Table:
        """Return new rows with those of one key and range merged, if a part of the events can be merged without the others."""
        return rows if self._held.adds_later else self._held.merged(rows)

    @property
    def by_window(self) -> bool:
        return any(partial.by_window for partial in self.partials)

    def _by_window(self, rows: pa.Table, low: Ints, high: Ints, number: Ints | None = None) -> pa.Table:
        """Return rows of events once for each window ``low..high``, of one that cuts the lifetimes that partial results read.

        ``number``: the numbers of the windows, if low and high are their places in it.
        """
        which, index = expand_ranges(low, high)
        rows = with_columns(rows.take(pa.array(which)), {LO: index, HI: index})
        if LE not in rows.column_names:
            return rows
        starts, ends = grid_lifetimes(self.window, index if number is None else number[index])
        le, re = ints(rows, LE), ints(rows, RE)
        le = np.maximum(le, starts) if self.clip.cuts_starts else le
        re = np.minimum(re, ends) if self.clip.cuts_ends else re
        for partial in self.partials:
            rows = partial.cut_lifetimes(rows, le, re)
        return rows.drop_columns([LE, RE])

    def _with_new(self, held: pa.Table | None, new: pa.Table | None) -> pa.Table | None:
        both = [table for table in (held, new) if table is not None]
        if not both:
            return None
        # partial results that merge need not be merged twice, by range and then by window
        return concat(both) if self.merges else self._held.merged(concat(both))

    def _judged(self, arrival: Arrival, totals: Totals) -> pa.Table:
        """Return the arrival's partials without late ones, or with the part of them that the policy, or the level, adjusts.

        The CTI is rounded down to a window's end, so that a partial result is late as a whole or not at all. The events of late
        ones are counted, as dropped or adjusted. Raises LateEvent if the policy is to fail.
        """
        table, judge = arrival.table, arrival.judge
        if judge is None or arrival.c == MINUS_INFINITY:
            return table
        promised = self.window.floor_to_end(arrival.promised)

        def events(mask: Mask) -> int:
            return int(self._events(table)[mask].sum())

        # a partial result is late by the number of its first window
        verdict = judgement(
            judge,
            ints(table, LO),
            self.window.first_ending_after(arrival.c),
            self.window.first_ending_after(arrival.promised),
            lambda is_broken: late_error(judge, events(is_broken), promised),
        )
        if not verdict.is_late.any():
            return table
        is_left = verdict.acts & (ints(table, HI) >= self._first_left(arrival.c))
        is_gone = verdict.is_late & ~is_left
        totals.add(judge.source, CountReason.DROPPED, events(is_gone))
        totals.add(judge.source, CountReason.ADJUSTED, events(is_left))
        table = with_column(table, LO, verdict.acting_from(ints(table, LO)))
        if LE in table.column_names:
            since = self.window.floor_to_end(arrival.c)
            table = with_column(table, LE, np.where(verdict.is_late, since, ints(table, LE)))
        return table.filter(pa.array(~is_gone))

    def _events(self, table: pa.Table) -> Ints:
        return ints(table, COUNT)

    def _first_left(self, c: int) -> int:
        """Return the window that begins at c rounded down: the part of a late event after c lies in it, or is empty.

        If windows do not begin where others end, rows are judged one by one, before they are combined.
        """
        return self.window.first_ending_after(c) + self.window.size // self.window.hop - 1

    # baskets

    @property
    def _values(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*value_columns(self.reductions), *self.order)))

    @property
    def _has_lifetimes(self) -> bool:
        """True if events come with their lifetimes, and are held with them unless each of their windows has cut these."""
        readers: tuple[Reduction | Partial, ...] = (*self.reductions, *self.partials)
        return self.reads_end or any(reader.reads_lifetimes for reader in readers)

    @property
    def _held(self) -> PartialsBasket:
        return PartialsBasket(
            keys=self.keys,
            grid=self.window,
            partials=self.partials,
            points=self.points and not self.by_window,
            merges=self.merges,
            has_lifetimes=self._has_lifetimes and not (self.merges and self.by_window),
            values=self._values,
            # bins of which some groups are read
            parted=not (self.final or self.reads_end),
            sizes=self.sizes,
            retracts=self.retracts,
        )

    @property
    def held_form(self) -> str:
        """The form in which members are held, as explain shows it."""
        if self.by_window and self.merges:
            return "a state of a module for each window"
        if self.reductions:
            return "values, each with the number of its events, and partial results"
        if self.may_have_blocks:
            above = f"{self.sizes.blocks_above:,}"
            form = "partial results of hops" if self.merges else "sums with weights of hops"
            return f"{form} and, in a bucket with more than {above} rows of them, of blocks of 8, 64, ... hops"
        return "partial results" if self.merges else "values with weights"

    @property
    def may_have_blocks(self) -> bool:
        """True if many rows of basic windows are merged into blocks: they merge, for good or as sums, and windows have enough.

        That does not depend on the form of the rows, so that a run in another form finds its state as it needs it.
        """
        merge = self.merges and not (self.retracts or self.by_window)
        merge = merge or (are_exact(self.partials) and not self.reductions)
        return merge and not self.reads_end and bool(block_sizes(self.window, self.sizes.block_rank))

    @property
    def _blocks(self) -> BlocksBasket:
        rank = self.sizes.block_rank if self.may_have_blocks else None
        return BlocksBasket(held=self._held, rank=rank, above=self.sizes.blocks_above)

    @property
    def _reported(self) -> ReportedBasket:
        values = [name for partial in self.partials for name in partial.columns]
        values += [reduction.column.name for reduction in self.reductions]
        return ReportedBasket(self.keys, (*self.keys, INDEX, COUNT, *values, WEIGHT), self.sizes)

    # windows

    def _rows(self, partials: pa.Table, first: int, last: int) -> list[pa.Table]:
        """Return the windows ``first..last`` that have members as inserts, in one table; an empty list if there are none.

        Raises RuntimeError for a range that has no end, neither by HI nor by ``last``.
        """
        if first > last:
            return []
        low, high = np.maximum(ints(partials, LO), first), np.minimum(ints(partials, HI), last)
        if not (low <= high).any():
            return []
        if (high[low <= high] == INFINITY).any():
            raise RuntimeError("window: a lifetime without an end reached the end of the stream without a bound")
        return self._rows_in(partials, low, high)

    def _rows_in(self, partials: pa.Table, low: Ints, high: Ints) -> list[pa.Table]:
        """Return the windows ``low..high`` of each partial result, of which some have any, as :meth:`_rows` does."""
        rows = self._merged(partials, low, high, self.keys).finished(place=self.place)
        return [weighted(self._with_reductions(rows, partials, low, high), 1)]

    def _touched_rows(self, partials: pa.Table, touched: TouchedWindows) -> list[pa.Table]:
        """Return the touched windows that have members as :meth:`_rows` does."""
        windows, low, high = touched.places(partials, ints(partials, LO), ints(partials, HI))
        if not (low <= high).any():
            return []
        merged = self._merged(partials.drop_columns(list(self.keys)), low, high, (), windows.index)
        names = windows.rows.select([*self.keys, INDEX]).take(merged.rows.column(INDEX))
        values = merged.rows.drop_columns([INDEX])
        rows = pa.table([*names.columns, *values.columns], names=[*names.column_names, *values.column_names])
        rows = replace(merged, rows=rows).finished(place=self.place)
        return [weighted(self._with_reductions(rows, partials, ints(partials, LO), ints(partials, HI)), 1)]

    def _with_reductions(self, rows: pa.Table, values: pa.Table, low: Ints, high: Ints) -> pa.Table:
        """Return the rows of windows with members, in some order, with the results of the reductions.

        ``low..high`` are the windows in which each row of ``values`` lies.
        """
        if not self.reductions:
            return rows
        windows, first, last = TouchedWindows(rows, self.keys).places(values, low, high)
        results = reduced_windows(
            windows, values, first, last, self.reductions, self.window, clip=self.clip, order=self.order
        )
        return with_columns(windows.rows, results)

    def _merged(
        self, partials: pa.Table, low: Ints, high: Ints, keys: Sequence[str], number: Ints | None = None
    ) -> MergedWindows:
        """Return partial results merged per key and window; ``low..high`` are their windows, of which some have any.

        ``number``: the numbers of the windows, if low and high are their places in it.
        """
        inside = low <= high
        if self.by_window and not self.merges:
            partials = self._by_window(partials.filter(pa.array(inside)), low[inside], high[inside], number)
            low = high = ints(partials, LO)
            inside = np.ones(len(low), bool)
        beside = (LO, HI, LE, RE, *self._values)
        rest = partials.drop_columns([n for n in beside if n in partials.column_names])
        rest = rest.filter(pa.array(inside))
        if not self.merges:
            for partial in self.partials:
                rest = partial.from_weighted(rest)
        return merge_by_window(rest, low[inside], high[inside], keys, self.partials, self.explode_rows)

    @property
    def place(self) -> Callable[[pa.Table], RowWindow]:
        """The function that gives errors the window of a row, and its group."""
        return row_windows(lambda row: grid_lifetimes(self.window, ints(row, INDEX)), lambda row: row.select(self.keys))

    def _touched(
        self, state: KernelBaskets, new: pa.Table | None, first: int, report_from: int, last_of_all: int
    ) -> TouchedWindows | None:
        """Return the windows, from ``first`` on, that are reported already, or at once, and may change; None if there are none.

        ``first`` is the first window that is not final, ``report_from`` the first that has not been reported; ``last_of_all`` the
        last of endless lifetimes, INFINITY if there are none. If windows are reported at once, these are the windows of new
        partials, those reported after ``last_of_all``, and for endless lifetimes the windows by which that has moved since the
        call before, which state remembers.
        """
        if not self.early:
            if new is None or self.final or report_from == MINUS_INFINITY:
                return None
            return self._windows_of(new, first, np.minimum(ints(new, HI), report_from - 1))
        last_before = state.values.get("last", MINUS_INFINITY)
        last_now = last_of_all if last_of_all != INFINITY else MINUS_INFINITY
        state.values["last"] = last_now
        least, last = min(last_before, last_now), max(last_before, last_now)

        def windows_of(partials: pa.Table, first: int) -> TouchedWindows | None:
            high = ints(partials, HI)
            return self._windows_of(partials, first, np.where(high == INFINITY, last, high))

        touched = [] if new is None else [windows_of(new, first)]
        endless = self._held.read_bins(state, [ENDLESS]) if least < last else None
        if endless is not None:
            touched.append(windows_of(endless, max(first, least + 1)))
        if last_of_all < INFINITY:
            # the end of the input may remove windows that have been reported
            touched.append(self._reported.windows_after(state, last_of_all))
        return TouchedWindows.of_all(touched)

    def _not_final(
        self, state: KernelBaskets, new: pa.Table | None, closed: OpenWindows | None, open_before: int, last: int
    ) -> TouchedWindows | None:
        """Return the windows up to ``last`` that were not final, and all those reported; None if there are none.

        ``closed`` are the windows that waited for members before, ``open_before`` is the first window that had not ended.
        """
        first = least_open(closed, open_before)
        reported = self._reported.windows_after(state, first if first == MINUS_INFINITY else first - 1)
        tables = [t for t in (self._held.read(state, MINUS_INFINITY, INFINITY), new) if t is not None]
        if not tables:
            return reported
        partials = concat(tables)
        low = np.maximum(ints(partials, LO), first_open(partials, closed, open_before))
        high = np.minimum(ints(partials, HI), last)
        high[high == INFINITY] = MINUS_INFINITY
        return TouchedWindows.of_all([TouchedWindows.of_ranges(partials, self.keys, low, high), reported])

    def _windows_of(self, partials: pa.Table, first: int, high: Ints) -> TouchedWindows | None:
        """Return the windows of partials, from ``first`` up to ``high`` of each; None if there are none."""
        return TouchedWindows.of_ranges(partials, self.keys, np.maximum(ints(partials, LO), first), high)

    def _corrected(
        self, state: KernelBaskets, everything: pa.Table, dirty: TouchedWindows, last: int
    ) -> list[pa.Table]:
        """Return retractions and their replacements for the windows in ``dirty``, as one table, or none if nothing changes.

        None after ``last`` is inserted.
        """
        inserted = dirty.up_to(last)
        fresh = [] if inserted is None else self._touched_rows(everything, inserted)
        old = [self._reported.rows([table]) for table in self._reported.read(state, dirty)]
        old = [cancelling_deltas(table.filter(pa.array(dirty.has(table)))) for table in old]
        if not (fresh or old):
            return []
        deltas = net_deltas(self._reported.rows([*old, *fresh]))
        return [deltas] if deltas.num_rows else []

    def _final_rows(
        self,
        partials: pa.Table,
        opened: OpenWindows | None,
        before: OpenWindows | None,
        open_before: int,
        report_to: int,
    ) -> list[pa.Table]:
        """Return the rows of windows, up to ``report_to``, that were not final before and are now, as one table or none.

        ``before`` and ``opened`` are the windows that waited for members before and wait now (None: none), ``open_before`` the
        first window that had not ended before.
        """
        rows = self._rows(partials, least_open(before, open_before), report_to)
        if not rows:
            return []
        table = rows[0]
        index = ints(table, INDEX)
        final = (index >= first_open(table, before, open_before)) & (index < first_open(table, opened, INFINITY))
        return [table.filter(pa.array(final))] if final.any() else []

    # results

    def _cti(self, least: int, c: int) -> int:
        """Return the CTI to send: the start of the window ``least``, the first that may change, or of points its end, at most c.

        Infinite numbers of windows stay as they are.
        """
        if least in (INFINITY, MINUS_INFINITY):
            return c if self.at_ends else least
        return min(c, self.window.end(least)) if self.at_ends else self.window.start(least)

    def _deltas(self, out: list[pa.Table]) -> pa.Table | None:
        """Return rows of windows as deltas, with the lifetimes of their windows, or their ends; None if there are none.

        Of a window without an end there is no point at its end.
        """
        if not out:
            return None
        table = self._reported.rows(out)
        start, end = grid_lifetimes(self.window, ints(table, INDEX))
        if self.at_ends:
            table = table.filter(pa.array(end < INFINITY))
            start, end = end[end < INFINITY], end[end < INFINITY] + 1
        table = with_column(with_column(table, LE, start), RE, end)
        return table.drop_columns([INDEX]) if table.num_rows else None
