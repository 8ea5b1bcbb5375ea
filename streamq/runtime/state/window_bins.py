"""Baskets of windows on a grid: partial results in bins by their last window, blocks of them, and rows that may still change.

Large bins are split by group, so that what corrects a few groups reads these (:mod:`streamq.runtime.state.bins`).

Blocks are merged partial results of 8, 64, ... consecutive basic windows, which a sliding window reads instead of them.
A window of n hops consists of n basic windows. Those that are over are merged once for each block; from then on a slide merges a
few blocks of each size and the basic windows at both ends that fill none, some 7 log8 n rows a group, and not n.

Blocks are over the basic windows in which events start. An event that lasts longer is also in windows that begin after it. A
slide reads it where it is held; of an event that lasts for more than a few hops these later windows are held apart, as nodes of
2^k windows where that takes no more room: a slide merges those that contain its window, log2 of the longest lifetime.

Small bins and many blocks cost time of their own, which few rows do not repay. So a state has blocks only while it holds many
rows, and changes between the two arrangements as a whole; either is complete by itself.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.plan.partial import COUNT, Partial
from streamq.runtime.arrow.columnar import codes, concat, group, ints, sort, with_column
from streamq.runtime.arrow.values import Ints
from streamq.runtime.deltas import LE, RE, net_deltas
from streamq.runtime.grid_ranges import HI, LO
from streamq.runtime.groups import HASH
from streamq.runtime.partials.ranges import INDEX, TouchedWindows, dyadic_nodes, merge_partial_rows, net_partial_rows
from streamq.runtime.state.baskets import BinSizes, KernelBaskets, Span
from streamq.runtime.state.bins import ENDLESS, Bins, bin_start, class_of
from streamq.runtime.time.progress_rule import saturating
from streamq.time import INFINITY, MINUS_INFINITY, Grid

PARTIALS, REPORTED = "partials", "reported"

UNADDED = 32
"""Events are added to the states of a bin once there are more than twice so many for each state."""

REPORTED_WIDTH = 4
"""The number of windows that a bin of reported rows spans, as log2."""

BLOCKS = "blocks"
"""The basket of blocks; also the value of state that has, for each size, the number of the first block that is not merged."""

RANK = 3
"""The logarithm of the number of basic windows, or smaller blocks, that a block merges."""

FEWER = 4
"""Blocks are given up once there are so many times fewer rows than those above which there are blocks.

So a change, which moves all rows, comes only after most of them have come or gone: a row is moved a few times at most.
"""

_WIDEST = 62
"""The logarithm of the width of the widest bin."""

MOST_NODES = 1.25
"""Ranges are cut into nodes if these are at most so many times as many rows: of few events that last long they would be more."""


@dataclass(frozen=True, kw_only=True)
class PartialsBasket:
    """Partial results of ranges of windows, by ``keys``.

    merges: they are merged for good; else they are values with weights, which may be retracted. has_lifetimes: members of
    different lifetimes stay separate, with these. points: events are points, so that a range has as many windows as the
    grid gives. parted: bins that exceed ``sizes`` are split by group. values: columns of values that are not merged either.
    retracts: events may be taken back, from merged results, too.
    """

    keys: tuple[str, ...]
    grid: Grid
    partials: tuple[Partial, ...]
    points: bool
    merges: bool
    has_lifetimes: bool
    parted: bool
    sizes: BinSizes
    values: tuple[str, ...]
    retracts: bool = False

    def merged(self, table: pa.Table, windows: Sequence[str] = (LO, HI)) -> pa.Table:
        """Merge rows of one key and range; if they may be retracted, only rows of equal values, dropping those that cancel.

        ``windows``: the columns that a range goes by.
        """
        by = [*self.keys, *windows, *((LE, RE) if self.has_lifetimes else ()), *self.values]
        by += [HASH] if HASH in table.column_names else []
        if not self.merges:
            return net_partial_rows(table, by, self.partials)
        rows = merge_partial_rows(table, by, self.partials, keeps_failed=self.retracts)
        return rows.filter(pc.not_equal(rows.column(COUNT), 0)) if self.retracts else rows

    def add(self, state: KernelBaskets, new: pa.Table, places: tuple[Ints, Ints] | None = None) -> None:
        """Put partial results into bins by their last windows, those of endless lifetimes into a bin of their own.

        The bin of a row is about half as wide as its range. ``places``: other numbers of windows to go by, and the widths of the
        bins as logarithms. Ranges that share a bin overlap, so every window that a bin spans has members.
        """
        low, high = ints(new, LO), ints(new, HI)
        if places is None:
            # bins about half as wide as their ranges: few to read, and dropped soon after they are needed
            widths: Ints = np.clip(_length_ranks(low, high) - 1, 0, _WIDEST)
            places = high, widths
        self.bins(state).place(new, *places, span=(low, high), packed=self._packed)

    def spans(self, state: KernelBaskets) -> list[Span]:
        """Return the first and the last window that each bin spans."""
        bins = self.bins(state)
        return [bins.span(bin) for bin in bins]

    def next_end(self, state: KernelBaskets, first: int) -> int | None:
        """Return the end of the next window, from ``first`` on, that had members; all of them may have been retracted.

        None if there is no such window.
        """
        ends = (self.grid.end(max(low, first)) for low, high in self.spans(state) if high >= first)
        return min(ends, default=None)

    def read(
        self,
        state: KernelBaskets,
        first: int,
        last: int,
        touched: TouchedWindows | None = None,
        *,
        without: Container[str] = frozenset(),
    ) -> pa.Table | None:
        """Return the partial results of the windows ``first..last``, and of touched ones those of their groups; None without any.

        Others of the same bins may be among them; the bins ``without`` are left out. If ends are read, members and their
        retractions are summed up.
        """
        bins, tables = self.bins(state), []
        for bin in bins:
            low, high = bins.span(bin)
            if bin in without:
                continue
            if max(first, low) <= min(last, high):
                tables.append(bins.read(bin))
            elif touched is not None:
                tables.append(_touched_rows(bins, bin, touched))
        held = self._all_of(tables)
        # chunks may hold a member and its retraction: sum them up before rows are looked at one by one
        return self.merged(held) if self.has_lifetimes and held is not None else held

    def read_bins(self, state: KernelBaskets, names: Iterable[str]) -> pa.Table | None:
        """Return the partial results of some bins; None if there are none."""
        bins = self.bins(state)
        return self._all_of([bins.read(name) for name in names])

    def _all_of(self, tables: Iterable[pa.Table | None]) -> pa.Table | None:
        """Return stored tables as one, with the first windows of its ranges; None if there are none."""
        some = [table for table in tables if table is not None]
        return self._unpacked(concat(some)) if some else None

    def bins(self, state: KernelBaskets) -> Bins:
        live = self._live if self.adds_later else None
        return Bins(state, PARTIALS, self._compacted, self.keys if self.parted else (), self.sizes, live)

    @property
    def adds_later(self) -> bool:
        """True if new rows are events, which are added to states once all rows of these are at hand."""
        return self.merges and (self.retracts or any(partial.by_window for partial in self.partials))

    def _live(self, rows: pa.Table) -> int:
        """Return how many new rows count as live, so that those of a state are few."""
        return min(rows.num_rows, UNADDED * len(codes(rows, [*self.keys, HI])[1]))

    @property
    def low_is_known(self) -> bool:
        """True if the last window of a range determines the first."""
        return self.points and self.grid.divides

    def _packed(self, table: pa.Table) -> pa.Table:
        """Return the table to store: sorted, to compress well, and without the first window if the last determines it."""
        flat = [k for k in self.keys if not pa.types.is_nested(table.schema.field(k).type)]
        table = sort(table, [HI, *flat])
        return table.drop_columns([LO]) if self.low_is_known else table

    def _unpacked(self, table: pa.Table) -> pa.Table:
        """Return a stored table with the first windows of its ranges."""
        return with_column(table, LO, saturating(ints(table, HI), 1 - self.grid.n)) if self.low_is_known else table

    def _compacted(self, table: pa.Table) -> pa.Table:
        """Return a stored table with its rows merged, again in the form to store."""
        return self._packed(self.merged(self._unpacked(table)))


def block_sizes(grid: Grid, rank: int = RANK) -> range:
    """Return the sizes of blocks, as logarithms of the numbers of their basic windows: up to half a window of the grid.

    There are no sizes if a window has too few basic windows, or does not consist of such.
    """
    return range(rank, grid.n.bit_length() - 1, rank) if grid.divides else range(0)


@dataclass(frozen=True, kw_only=True)
class BlocksBasket:
    """The partial results ``held``, and the blocks over them while state has more than ``above`` of their rows.

    There are none at all if ``rank`` is None. With blocks, rows of ``held`` are in bins by the basic windows in which events
    start, ``2**rank`` a bin, as many as a block of the least size; the later windows of long lifetimes are in bins of other
    widths. A block is a row for each group, with the columns of ``held``. Its HI is its first basic window, which is also the
    number of the last window that contains the whole block.
    """

    held: PartialsBasket
    rank: int | None
    above: int

    @property
    def sizes(self) -> range:
        """The sizes of blocks (:func:`block_sizes`); none if there never are blocks."""
        return range(0) if self.rank is None else block_sizes(self.held.grid, self.rank)

    def read(self, state: KernelBaskets, first: int, last: int) -> pa.Table | None:
        """Return partial results that merge into the windows ``first..last``, in each of which every event occurs once.

        Results of other basic windows may be among them. None if there are none.
        """
        return self.read_between(state, first, last, first + self.held.grid.n)

    def read_between(self, state: KernelBaskets, first: int, last: int, end: int) -> pa.Table | None:
        """Return what :meth:`read` does for windows of any one length, by the numbers of their basic windows.

        ``first`` and ``last``: those with which the first and the last window begin; ``end``: the one behind the first window.
        """
        usable = _Usable(state.values.get(BLOCKS, {}), last, end)
        replaced = {bin for bin, start in self._basic(state) if usable.covers(start, self.sizes)}
        tables = [self.held.read(state, first, last, without=replaced)]
        for bin, start, size in self._blocks(state):
            larger = [s for s in self.sizes if s > size]
            if usable.covers(start, [size]) and not usable.covers(start, larger):
                tables.append(self._read(state, bin, size))
        some = [table for table in tables if table is not None]
        return concat(some) if some else None

    def add(self, state: KernelBaskets, new: pa.Table) -> None:
        """Add partial results, also to blocks that have been merged before they came."""
        if BLOCKS not in state.values:
            self.held.add(state, new)
            return
        new = self._hold(state, new)
        merged = state.values[BLOCKS]
        start = self._starts(new)
        for size in self.sizes:
            is_late = start >> size < merged.get(str(size), MINUS_INFINITY)
            if is_late.any():
                self._append(state, new.filter(pa.array(is_late)), size)

    def merge_past(self, state: KernelBaskets, before: int) -> None:
        """Merge the blocks that end before the basic window ``before``, from those of the next smaller size.

        Before that, state gets blocks if it holds many rows, and gives them up if it holds few.
        """
        if before in (INFINITY, MINUS_INFINITY) or not self.sizes:
            return
        rows, _ = state.size(PARTIALS)
        if BLOCKS in state.values:
            if rows <= self.above // FEWER:
                state.drop_basket(BLOCKS)
                del state.values[BLOCKS]
                self._rearrange(state)
        elif rows > self.above:
            state.values[BLOCKS] = {}
            self._rearrange(state)
        if BLOCKS not in state.values:
            return
        merged = state.values[BLOCKS]
        for size in self.sizes:
            since, upto = merged.get(str(size), MINUS_INFINITY), before >> size
            if upto <= since:
                break
            parts = self._parts(state, size, since << size, upto << size)
            if parts is not None:
                self._append(state, parts, size)
            merged[str(size)] = upto

    def _hold(self, state: KernelBaskets, rows: pa.Table) -> pa.Table:
        """Add rows as they are with blocks; return those by the starts of events, of whose windows the last may be cut off."""
        assert self.rank is not None
        starting, later = self._cut(rows)
        self.held.add(state, starting, (self._starts(starting), np.full(starting.num_rows, self.rank)))
        if later is not None:
            self.held.add(state, later, (ints(later, HI), self._widths(later)))
        return starting

    def _starts(self, rows: pa.Table) -> Ints:
        """Return the basic windows in which events start, of ranges that are not shorter than a window, or before the axis."""
        high = ints(rows, HI)
        return high if self.held.low_is_known else np.minimum(saturating(ints(rows, LO), self.held.grid.n - 1), high)

    def _cut(self, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Split ranges in two tables: the windows up to each event's start, and the later ones of events that outlive a block.

        All windows of an event that ends within a block are in the first table. Ranges of fewer windows than a point has, and
        those without an end, are in the second, as they are. The second is None if it is empty.
        """
        assert self.rank is not None
        if self.held.low_is_known:
            return rows, None
        low, high, start = ints(rows, LO), ints(rows, HI), self._starts(rows)
        has_start = (low <= saturating(high, 1 - self.held.grid.n)) & (high < INFINITY)
        is_short = has_start & (high - start < 1 << self.rank)
        starting = with_column(rows, HI, np.where(is_short, high, start)).filter(pa.array(has_start))
        later = with_column(rows, LO, np.where(has_start, start + 1, low)).filter(pa.array(~is_short))
        return (self.held.merged(starting), self._nodes(later)) if later.num_rows else (starting, None)

    def _nodes(self, ranges: pa.Table) -> pa.Table:
        """Return ranges of windows cut into nodes, unless these are too many."""
        ranges = self.held.merged(ranges)
        is_endless = ints(ranges, HI) == INFINITY
        ending = ranges.filter(pa.array(~is_endless))
        row, rank, node = dyadic_nodes(ints(ending, LO), ints(ending, HI))
        nodes = with_column(ending.take(pa.array(row)), LO, node << rank)
        nodes = self.held.merged(with_column(nodes, HI, ((node + 1) << rank) - 1))
        if nodes.num_rows > MOST_NODES * ending.num_rows:
            return ranges
        return concat([nodes, ranges.filter(pa.array(is_endless)).select(nodes.column_names)])

    def _widths(self, ranges: pa.Table) -> Ints:
        """Return the widths of the bins of ranges of windows, as logarithms: at most their length, none that of starts."""
        assert self.rank is not None
        widths = np.clip(_length_ranks(ints(ranges, LO), ints(ranges, HI)), self.rank - 1, _WIDEST)
        return widths + (widths == self.rank)

    def _rearrange(self, state: KernelBaskets) -> None:
        """Move the rows of basic windows into bins as they are with blocks, or without."""
        rows = self.held.read(state, MINUS_INFINITY, INFINITY)
        state.drop_basket(PARTIALS)
        if rows is not None and BLOCKS in state.values:
            self._hold(state, rows)
        elif rows is not None:
            self.held.add(state, self.held.merged(rows))

    def _basic(self, state: KernelBaskets) -> Iterator[tuple[str, int]]:
        """Yield the bins by starts while there are blocks, with the first basic window of each."""
        for bin in self.held.bins(state):
            if bin != ENDLESS and class_of(bin) == self.rank:
                yield bin, bin_start(bin)

    def _blocks(self, state: KernelBaskets) -> Iterator[tuple[str, int, int]]:
        """Yield the bin of each block that has rows, its first basic window and its size."""
        for bin in self.bins(state):
            yield bin, bin_start(bin), class_of(bin)

    def _parts(self, state: KernelBaskets, size: int, first: int, end: int) -> pa.Table | None:
        """Return the results that blocks of a size merge, of the basic windows ``first`` up to ``end``; None without any."""
        if size == self.sizes[0]:
            bins = [bin for bin, start in self._basic(state) if first <= start < end]
            return self.held.read_bins(state, bins)
        below = [b for b in self._blocks(state) if b[2] == size - self.sizes.step and first <= b[1] < end]
        tables = [table for bin, _, part in below if (table := self._read(state, bin, part)) is not None]
        return concat(tables) if tables else None

    def _append(self, state: KernelBaskets, parts: pa.Table, size: int) -> None:
        """Merge results into the blocks of a size that contain them."""
        rows = self._merged(with_column(parts, HI, self._starts(parts) >> size << size).drop_columns([LO]))
        first = ints(rows, HI)
        self.bins(state).place(rows, first, np.full(len(first), size))

    def _read(self, state: KernelBaskets, bin: str, size: int) -> pa.Table | None:
        """Return the rows of a block, with the first window that contains it as a whole; None if it has none."""
        rows = self.bins(state).read(bin)
        if rows is None:
            return None
        return with_column(rows, LO, saturating(ints(rows, HI), (1 << size) - self.held.grid.n))

    def bins(self, state: KernelBaskets) -> Bins:
        """Return the bins of blocks, one each; it spans the basic window with which it begins."""
        return Bins(state, BLOCKS, self._merged)

    def _merged(self, rows: pa.Table) -> pa.Table:
        return self.held.merged(rows, (HI,))


@dataclass(frozen=True)
class _Usable:
    """The blocks that are merged and lie within the basic windows ``first`` up to ``end``."""

    merged: dict[str, int]
    first: int
    end: int

    def covers(self, basic_window: int, sizes: Iterable[int]) -> bool:
        """True if a block of one of these sizes contains a basic window."""
        return any(
            self.first <= (cell := basic_window >> size) << size
            and (cell + 1) << size <= self.end
            and cell < self.merged.get(str(size), MINUS_INFINITY)
            for size in sizes
        )


@dataclass(frozen=True)
class ReportedBasket:
    """Reported rows of windows that may still change, with the numbers of their windows, by ``keys``.

    columns: those of a row, including the keys and the window's number. Bins that exceed ``sizes`` are split by group.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    sizes: BinSizes

    def rows(self, tables: Sequence[pa.Table]) -> pa.Table:
        return concat([table.select(list(self.columns)) for table in tables])

    def add(self, state: KernelBaskets, tables: Sequence[pa.Table], least: int) -> None:
        """Keep the deltas of windows from ``least`` on."""
        rows = self.rows(tables)
        index = ints(rows, INDEX)
        rows, index = rows.filter(pa.array(index >= least)), index[index >= least]
        self.bins(state).place(rows, index, np.full(len(index), REPORTED_WIDTH))

    def read(self, state: KernelBaskets, touched: TouchedWindows) -> list[pa.Table]:
        """Return the rows of touched windows, a table a bin; other windows may be among them."""
        bins = self.bins(state)
        return [table for bin in bins if (table := _touched_rows(bins, bin, touched)) is not None]

    def windows_after(self, state: KernelBaskets, last: int) -> TouchedWindows | None:
        """Return the windows after ``last`` that have rows; None if there are none."""
        bins = self.bins(state)
        rows = [t for bin in bins if bins.span(bin)[1] > last and (t := bins.read(bin)) is not None]
        behind = [t.filter(pc.greater(t.column(INDEX), last)).select([*self.keys, INDEX]) for t in rows]
        windows = [table for table in behind if table.num_rows]
        return TouchedWindows(group(concat(windows), [*self.keys, INDEX], {}), self.keys) if windows else None

    def bins(self, state: KernelBaskets) -> Bins:
        return Bins(state, REPORTED, net_deltas, self.keys, self.sizes)


def _touched_rows(bins: Bins, bin: str, touched: TouchedWindows) -> pa.Table | None:
    """Return the rows of a bin of the groups that have touched windows among those that it spans; None if there are none."""
    first, last = bins.span(bin)
    return bins.read_groups(bin, partial(touched.hashes, first, last)) if touched.are_among(first, last) else None


def _length_ranks(low: Ints, high: Ints) -> Ints:
    """Return the logarithms of the lengths of ranges of windows, rounded down."""
    return np.floor(np.log2(high.astype(np.float64) - low.astype(np.float64) + 1)).astype(np.int64)
