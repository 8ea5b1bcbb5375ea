"""Blocks of basic windows: merged partial results of 8, 64, ... consecutive ones, which a sliding window reads instead of them.

A window of n hops consists of n basic windows. Those that are over are merged once for each block; from then on a slide merges a
few blocks of each size and the basic windows at both ends that fill none, some 7 log8 n rows a group, and not n.

Blocks are over the basic windows in which events start. An event that lasts longer is also in windows that begin after it. A
slide reads it where it is held; of an event that lasts for more than a few hops these later windows are held apart, as nodes of
2^k windows where that takes no more room: a slide merges those that contain its window, log2 of the longest lifetime.

Small bins and many blocks cost time of their own, which few rows do not repay. So a state has blocks only while it holds many
rows, and changes between the two arrangements as a whole; either is complete by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints, with_column
from streamq.runtime.arrow.values import Ints
from streamq.runtime.grid_ranges import HI, LO
from streamq.runtime.partials.range_partials import dyadic_nodes
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.state.bins import ENDLESS, Bins, bin_start, class_of
from streamq.runtime.state.window_bins import PARTIALS, PartialsBasket
from streamq.runtime.time.progress_rule import saturating
from streamq.time import INFINITY, MINUS_INFINITY, Grid

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
        length = ints(ranges, HI).astype(np.float64) - ints(ranges, LO).astype(np.float64) + 1
        widths = np.clip(np.floor(np.log2(length)).astype(np.int64), self.rank - 1, _WIDEST)
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
        return (
            None if rows is None else with_column(rows, LO, saturating(ints(rows, HI), (1 << size) - self.held.grid.n))
        )

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
