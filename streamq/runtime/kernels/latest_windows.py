"""Kernels of aggregates over the last rows of one stream, or over the pairs of the last rows of two.

Rows get their numbers once c has passed their starts, and the windows of last rows are ranges of numbers. A result row lives
from the instant at which a window is complete to the next one at which a member of its group comes or goes; of windows that
are complete at one instant only the latest counts. Of one stream the kernel of windows on a grid holds partial results by step
and group (Liarou et al., section 3: basic windows). Of two, new rows meet those of the other side's latest window, and their
pairs are added up by group and by pair of steps: of n steps a side 2n - 1 of the n * n pairs are new in a slide.

State: rows from c on; the rows that live; of one stream partial results of steps, and the windows at which groups change; of
two the rows of the latest windows, and partial results of pairs of steps. Cost: the new rows, the groups that they change, and a
merge of the partial results of these; of two streams also the hashes of the rows of the latest windows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.plan.partial import COUNT, Partial
from streamq.runtime.arrow.columnar import codes, concat, group, ints, split_by, with_column, with_columns
from streamq.runtime.arrow.values import Ints, distinct
from streamq.runtime.deltas import LE, RE, WEIGHT, net_retractions, weighted
from streamq.runtime.evaluators.joins import JoinEvaluator
from streamq.runtime.grid_ranges import HI, LO
from streamq.runtime.groups import HASH, distinct_hashes, number_groups, with_hashes
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.kernels.recompute import new_deltas
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.kernels.windows_of_sizes import NumberedRows, RowNumbers
from streamq.runtime.partials.ranges import INDEX, TouchedWindows, merge_by_window, merge_partial_rows
from streamq.runtime.state.baskets import Basket, KernelBaskets
from streamq.runtime.state.time_bins import TimeBins
from streamq.runtime.time.progress_rule import SETTLED, EndlessRow, ProgressRule
from streamq.time import INFINITY

OPEN = "open"
"""The basket of the result rows that live on, by the rows before c."""

PREVIEWS = "previews"
"""The basket of the result rows that have been sent and may change, where rows from c on have completed windows."""

CHANGES = "changes"
"""The basket of the windows to come at which a member of a group comes or goes, by their numbers."""

PAIRS = "pairs"
"""The basket of partial results of pairs of steps."""

LASTS = ("__last0", "__last1")
"""The columns of the last window with a pair's row of each side."""

PARTS = 4
"""The number of bins in which the rows of a window lie, and that of chunks from which a bin is written anew."""

NUMBER = "__number"
"""The column of a row's number."""


@dataclass(frozen=True, eq=False)
class ChangedRows:
    """The rows that begin with new windows, and for each group that changes, as LE, the first instant at which it does."""

    rows: pa.Table
    ends: pa.Table

    def succeed(self, living: pa.Table | None) -> tuple[pa.Table, pa.Table]:
        """Return the rows that have ended, of those that lived until now and of these, and those that live on."""
        rows = self.rows
        if living is not None:
            keys = [name for name in self.ends.column_names if name != LE]
            number, _ = codes(concat([table.select([*keys, LE]) for table in (living, self.ends)]), keys)
            end_of = np.full(int(number.max(initial=0)) + 1, INFINITY)
            end_of[number[living.num_rows :]] = ints(self.ends, LE)
            rows = concat([with_column(living, RE, end_of[number[: living.num_rows]]), rows])
        is_living = pa.array(ints(rows, RE) == INFINITY)
        return rows.filter(pc.invert(is_living)), rows.filter(is_living)


@dataclass(frozen=True, eq=False)
class CompletedWindows:
    """The windows that new rows complete, the latest of each instant, by numbers; ``at`` are the instants, in order."""

    numbers: Ints
    at: Ints

    def touched(self, rows: pa.Table, number: Ints, keys: Sequence[str]) -> TouchedWindows:
        """Return the latest windows at the instants at which windows of these numbers are complete, by the groups of the rows."""
        latest = self.numbers[np.searchsorted(self.numbers, number)]
        return TouchedWindows(group(with_column(rows, INDEX, latest), [*keys, INDEX], {}), keys)

    def changed(
        self, touched: TouchedWindows, values: pa.Table, low: Ints, high: Ints, partials: Sequence[Partial]
    ) -> ChangedRows:
        """Return the rows of the windows in which groups change; ``values`` are partial results of windows ``low..high``."""
        keys = touched.keys
        windows, first, last = touched.places(values, low, high)
        begins = self.at[np.searchsorted(self.numbers, windows.index)]
        is_head = np.diff(codes(windows.rows, keys)[0], prepend=-1) != 0
        ends = np.append(np.where(is_head[1:], INFINITY, begins[1:]), INFINITY)
        heads = with_column(windows.rows.filter(pa.array(is_head)), LE, begins[is_head]).select([*keys, LE])
        inside = first <= last
        held = [COUNT, *(name for partial in partials for name in partial.held_columns)]
        merged = merge_by_window(
            values.select(held).filter(pa.array(inside)), first[inside], last[inside], (), partials
        )
        rows = merged.finished()
        place = ints(rows, INDEX)
        names = {name: windows.rows.column(name).take(pa.array(place)) for name in keys}
        return ChangedRows(with_columns(rows, {**names, LE: begins[place], RE: ends[place]}), heads)


@dataclass(frozen=True)
class LatestKernel(UncombinedKernel):
    """A kernel of aggregates over the latest windows of rows of its ports, by groups of ``keys``.

    numbers: those of each port's rows; inputs: each port's columns; result: the columns of a row; final: rows are sent once they
    are final; early: as soon as they have a member.
    """

    numbers: tuple[RowNumbers, ...]
    inputs: tuple[pa.Schema, ...]
    keys: tuple[str, ...]
    result: tuple[str, ...]
    partials: tuple[Partial, ...]
    final: bool = False
    early: bool = False

    @property
    def progress_rule(self) -> ProgressRule:
        return replace(SETTLED, endless=EndlessRow.LATER_ROWS).released(final=self.final, early=self.early)

    @abstractmethod
    def _changed(self, state: KernelBaskets, new: Sequence[NumberedRows], *, keeps: bool) -> ChangedRows | None:
        """Return what changes with the windows that new rows complete; None if nothing does.

        ``keeps``: the rows are those before c, and the state is that after them from now on.
        """

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Number the rows before c, end the results that they change, begin others, and correct those of rows from c on."""
        totals, ports = Totals(), range(len(self.numbers))
        fresh = new_deltas(arrivals, self.inputs, ((),) * len(ports), totals, ports)
        waiting = [TimeBins(state, f"waiting{port}") for port in ports]
        passed = [
            bins.advance([table.drop_columns([HASH])], clock.c) for bins, table in zip(waiting, fresh, strict=True)
        ]
        was_ahead, was_sent = state.values.get(PREVIEWS, False), state.values.get("sends", False)
        before = self._numbered(state, passed)
        changes = self._changed(state, before, keeps=True) if any(len(new.starts) for new in before) else None
        for port, new in enumerate(before):
            state.values[f"numbered{port}"] = new.first + len(new.starts)
        after = self._numbered(state, [None if self.final else self._reached(bins.rows(), clock) for bins in waiting])
        ahead = self._changed(state, after, keeps=False) if any(len(new.starts) for new in after) else None
        is_over, sends = clock.c == INFINITY, not self.final
        due = None if is_over else self._due(waiting, after)
        if changes is None and ahead is None and not (is_over or was_ahead) and was_sent == sends:
            return Output(None, clock.c, totals, due)
        living = state.read_all(OPEN)
        sent = state.read_all(PREVIEWS) if was_ahead else living
        rows: list[pa.Table] = []
        if changes is not None:
            ended, living = changes.succeed(living)
            rows.append(ended)
            state.drop_basket(OPEN)
            state.basket(OPEN).append("", living)
        state.drop_basket(PREVIEWS)
        state.values[PREVIEWS], state.values["sends"] = ahead is not None, sends
        if ahead is not None:
            previews = concat(ahead.succeed(living))
            state.basket(PREVIEWS).append("", previews)
            rows.append(previews)
        elif (sends or is_over) and living is not None:
            rows.append(living)
        if is_over:
            for basket in state.names():
                state.drop_basket(basket)
        deltas = [weighted(table, 1).select([*self.result, LE, RE, WEIGHT]) for table in rows]
        deltas += [weighted(sent, -1)] if sent is not None and was_sent and sends else []
        return Output(net_retractions(concat(deltas)) if deltas else None, clock.c, totals, due)

    def _reached(self, waiting: pa.Table | None, clock: Clock) -> pa.Table | None:
        """Return the rows from c on that are sent already, or None."""
        if waiting is None or self.early:
            return waiting
        return waiting.filter(pa.array(ints(waiting, LE) < clock.m))

    def _numbered(self, state: KernelBaskets, passed: Sequence[pa.Table | None]) -> list[NumberedRows]:
        """Return the rows of each port by their numbers; None: a port has none."""
        tables = [
            pa.schema([*schema, (LE, pa.int64()), (RE, pa.int64()), (WEIGHT, pa.int64())]).empty_table()
            if rows is None
            else rows
            for schema, rows in zip(self.inputs, passed, strict=True)
        ]
        first = [state.values.get(f"numbered{port}", 0) for port in range(len(tables))]
        return [numbers.rows(*each) for numbers, *each in zip(self.numbers, tables, first, strict=True)]

    def _due(self, waiting: Sequence[TimeBins], after: Sequence[NumberedRows]) -> int | None:
        """Return the progress that completes the next window of a port with rows that have come; None if they complete none."""
        instants = []
        for numbers, bins, rows in zip(self.numbers, waiting, after, strict=True):
            number = numbers.last_row(numbers.first_window(rows.first + len(rows.starts)))
            if (instant := bins.nth(number - rows.first)) is not None:
                instants.append(instant + 1)
        return min(instants, default=None)


@dataclass(frozen=True)
class LatestWindowsKernel(LatestKernel):
    """A kernel over the last rows of one stream; ``windows`` is that of windows over the numbers of rows."""

    windows: WindowAggregateKernel = field(kw_only=True)

    def _changed(self, state: KernelBaskets, new: Sequence[NumberedRows], *, keeps: bool) -> ChangedRows | None:
        """Merge the partial results of the groups that have a row more, or fewer, in a window than in the one before."""
        (numbers,), (rows,) = self.numbers, new
        partials = self.windows.combine(0, rows.members)
        begin, end = numbers.completed(rows)
        # no window begins before row 0
        low, high = np.maximum(ints(partials, LO), 0), ints(partials, HI)
        keys = partials.select(list(self.keys))
        points = [weighted(with_column(keys, LE, at) if self.keys else pa.table({LE: at}), 1) for at in (low, high + 1)]
        coming, changes = TimeBins(state, CHANGES), None
        due = coming.advance(points, end) if keeps else coming.peek(points, end)
        if begin < end and due is not None:
            number = np.arange(begin, end)
            at = rows.starts[numbers.last_row(number) - rows.first]
            is_latest = np.append(at[1:] != at[:-1], True)
            latest = CompletedWindows(number[is_latest], at[is_latest])
            values = self.windows.partials_in(state, partials, begin, end - 1)
            changes = latest.changed(
                latest.touched(due, ints(due, LE), self.keys), values, ints(values, LO), ints(values, HI), self.partials
            )
        if keeps:
            self.windows.keep(state, partials, end, rows.first + len(rows.starts))
        return changes


@dataclass(frozen=True)
class LatestPairsKernel(LatestKernel):
    """A kernel over the pairs of the last rows of two streams, as the evaluator makes them."""

    evaluator: JoinEvaluator = field(kw_only=True)

    def _changed(self, state: KernelBaskets, new: Sequence[NumberedRows], *, keeps: bool) -> ChangedRows | None:
        """Pair the rows that enter a window, add the pairs up by steps, and merge them at the instants at which groups change."""
        sides = [_PairedRows(state, port, *each) for port, each in enumerate(zip(self.numbers, new, strict=True))]
        at = distinct(np.concatenate([side.completed for side in sides]))
        entering = [side.entering(at, keeps=keeps) for side in sides]
        if not len(at):
            return None
        left, right = entering
        columns = self.evaluator.group_columns
        held = sides[0].held(at, right, columns[1]), sides[1].held(at, left, columns[0])
        pairs = self._pairs(left, concat([held[1], right])), self._pairs(held[0], right)
        values, added = self._summed(concat(pairs)), 0
        stored = state.basket(PAIRS)
        if (before := stored.read("")) is not None:
            over = [side.instants(at, ints(before, last) + 1) for side, last in zip(sides, LASTS, strict=True)]
            before = with_columns(before, {LE: np.full(before.num_rows, -1), RE: np.minimum(*over)})
            before = before.filter(pa.array(ints(before, RE) >= 0))
            values, added = concat([before, values]), before.num_rows
        low, high = ints(values, LE), ints(values, RE)
        latest = CompletedWindows(np.arange(len(at)), at)
        is_change = np.concatenate([low >= 0, high < len(at)])
        twice = concat([values, values]).filter(pa.array(is_change))
        changes = None
        if twice.num_rows:
            touched = latest.touched(twice, np.concatenate([low, high])[is_change], self.keys)
            changes = latest.changed(touched, values, np.maximum(low, 0), high - 1, self.partials)
        if keeps:
            living = values.drop_columns([LE, RE]).filter(pa.array(high == len(at)))
            if stored.known("").chunks < PARTS:
                new_living = living.slice(int((high[:added] == len(at)).sum()))
                stored.append("", new_living, living.num_rows - stored.known("").rows)
            else:
                stored.replace("", living)
            for side, rows, by in zip(sides, entering, columns, strict=True):
                side.keep(at, rows, by)
        return changes

    def _pairs(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Return the pairs of rows, each as long as both are in the latest windows."""
        left, right = number_groups([left, right], self.evaluator.group_columns)
        return self.evaluator.paired(left, right, *self.evaluator.pairs(left, right))

    def _summed(self, pairs: pa.Table) -> pa.Table:
        """Return partial results of pairs by group, steps and lifetime."""
        by = [*self.keys, *LASTS, LE, RE]
        pairs = with_column(pairs, COUNT, np.ones(pairs.num_rows, np.int64))
        columns = {name: pairs.column(name) for name in (*by, COUNT)}
        for partial in self.partials:
            columns |= partial.of_events(pairs)
        return merge_partial_rows(pa.table(columns), by, self.partials)


def add_rows(basket: Basket, bin: str, rows: pa.Table) -> None:
    """Add rows to a bin, which is written anew once it has many chunks."""
    if basket.known(bin).chunks < PARTS:
        basket.append(bin, rows)
    elif (held := basket.read(bin)) is not None:
        basket.replace(bin, concat([held, rows]))


@dataclass(frozen=True, eq=False)
class _PairedRows:
    """A side of pairs in a micro-batch: its rows so far, ``new`` ones, and the windows that these complete.

    Instants are places among those, of both sides, at which a window is complete: -1 before the first, as many as there are
    after the last.
    """

    state: KernelBaskets
    port: int
    numbers: RowNumbers
    new: NumberedRows

    @property
    def members(self) -> pa.Table:
        """The new rows, without the columns that have ordered them."""
        return self.new.members.drop_columns(list(self.numbers.order_by))

    @property
    def completed(self) -> Ints:
        """The instants at which windows are complete, in order."""
        begin, end = self.numbers.completed(self.new)
        return self.new.starts[self.numbers.last_row(np.arange(begin, end)) - self.new.first]

    def instants(self, at: Ints, window: Ints) -> Ints:
        """Return the places among ``at`` of the instants at which windows are complete."""
        begin, end = self.numbers.completed(self.new)
        places = np.append(np.searchsorted(at, self.completed), len(at))
        return np.where(window < begin, -1, places[np.clip(window - begin, 0, end - begin)])

    def entering(self, at: Ints, *, keeps: bool) -> pa.Table:
        """Return the rows whose first window is complete now, with their lifetimes in instants; ``keeps``: the others wait."""
        _, end = self.numbers.completed(self.new)
        before = self.numbers.last_row(end - 1) + 1 if end else 0
        bins, fresh = TimeBins(self.state, f"entering{self.port}"), [weighted(self.members, 1)]
        rows = bins.advance(fresh, before) if keeps else bins.peek(fresh, before)
        rows = fresh[0].slice(0, 0) if rows is None else rows
        number = ints(rows, LE)
        return self._alive(at, rows, self.instants(at, self.numbers.first_window(number)))

    def held(self, at: Ints, others: pa.Table, by: Sequence[str]) -> pa.Table:
        """Return the rows of the latest windows so far of the groups of new rows of the other side."""
        basket = self._basket
        hashes = distinct_hashes([with_hashes(others, by)])
        tables = [rows for bin in basket if len(hashes) and (rows := basket.read_groups(bin, hashes)) is not None]
        rows = concat([self.members.slice(0, 0), *(table.drop_columns([HASH]) for table in tables)])
        return self._alive(at, rows, np.full(rows.num_rows, -1))

    def _alive(self, at: Ints, rows: pa.Table, since: Ints) -> pa.Table:
        """Return the rows that are in a latest window, from the instants ``since`` on, with their lifetimes."""
        last = self.numbers.last_window(ints(rows, LE))
        until = self.instants(at, last + 1)
        alive = with_columns(rows, {LASTS[self.port]: last, NUMBER: rows.column(LE), LE: since, RE: until})
        return alive.filter(pa.array(since < until))

    def keep(self, at: Ints, rows: pa.Table, by: Sequence[str]) -> None:
        """Hold the rows that live on, and drop the bins of rows that are in no later window."""
        _, end = self.numbers.completed(self.new)
        basket, width = self._basket, max(1, self.numbers.n // PARTS)
        for bin in basket:
            if (int(bin) + 1) * width <= (end - 1) * self.numbers.step:
                basket.drop(bin)
        rows = rows.filter(pa.array(ints(rows, RE) == len(at)))
        rows = with_hashes(with_column(rows, LE, rows.column(NUMBER)), by)
        rows = rows.select([*self.members.column_names, HASH])
        for number, mine in split_by(rows, ints(rows, LE) // width):
            add_rows(basket, str(number), mine)

    @property
    def _basket(self) -> Basket:
        return self.state.basket(f"rows{self.port}")
