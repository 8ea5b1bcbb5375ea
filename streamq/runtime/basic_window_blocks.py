"""Blocks of basic windows: merged partial results of 8, 64, ... consecutive ones, which a sliding window reads instead of them.

A window of n hops consists of n basic windows. Those that are over are merged once for each block; from then on a slide merges a
few blocks of each size and the basic windows at both ends that fill none, some 7 log8 n rows a group, and not n.

Small bins and many blocks cost time of their own, which few rows do not repay. So a state has blocks only while it holds many
rows, and changes between the two arrangements as a whole; either is complete by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.grid import Grid
from streamq.runtime.basket import KernelBaskets
from streamq.runtime.bins import bin_starts, in_bins
from streamq.runtime.columnar import concat, ints, with_column
from streamq.runtime.grid_baskets import PARTIALS, PartialsBasket
from streamq.runtime.lifetimes import saturating
from streamq.runtime.open_windows import HI, LO
from streamq.runtime.range_partials import merge_partial_rows
from streamq.time import INFINITY, MINUS_INFINITY

BLOCKS = "blocks"
"""The basket of blocks; also the value of state that has, for each size, the number of the first block that is not merged."""

RANK = 3
"""The logarithm of the number of basic windows, or smaller blocks, that a block merges."""

FEWER = 4
"""Blocks are given up once there are so many times fewer rows than those above which there are blocks.

So a change, which moves all rows, comes only after most of them have come or gone: a row is moved a few times at most.
"""


def block_sizes(grid: Grid, rank: int = RANK) -> range:
    """Return the sizes of blocks, as logarithms of the numbers of their basic windows: up to half a window of the grid.

    There are no sizes if a window has too few basic windows, or does not consist of such.
    """
    return range(rank, grid.n.bit_length() - 1, rank) if grid.divides else range(0)


@dataclass(frozen=True, kw_only=True)
class BlocksBasket:
    """The partial results ``held``, and the blocks over them while state has more than ``above`` of their rows.

    There are none at all if ``rank`` is None. With blocks, a bin of ``held`` has ``2**rank`` basic windows, as many as a block of
    the least size. A block is a row for each group, with the columns of ``held``. Its HI is its first basic window, which is also
    the number of the last window that contains the whole block.
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
        replaced = [bin for bin in self.held.bins(state) if usable.covers(bin_starts(bin)[0], self.sizes)]
        tables = [self.held.read(state, first, last, without=replaced)]
        for bin, start, size in self._blocks(state):
            larger = [s for s in self.sizes if s > size]
            if usable.covers(start, [size]) and not usable.covers(start, larger):
                tables.append(self._read(state, bin, size))
        some = [table for table in tables if table is not None]
        return concat(some) if some else None

    def add(self, state: KernelBaskets, new: pa.Table) -> None:
        """Add partial results, also to blocks that have been merged before they came."""
        self._hold(state, new)
        merged = state.values.get(BLOCKS, {})
        for size in self.sizes:
            is_late = ints(new, HI) >> size < merged.get(str(size), MINUS_INFINITY)
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
                self.drop(state)
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

    def forget(self, state: KernelBaskets, least: int) -> None:
        """Drop the blocks that no window from ``least`` on contains as a whole."""
        for bin, start, _ in self._blocks(state):
            if start < least:
                state.drop(BLOCKS, bin)

    def drop(self, state: KernelBaskets) -> None:
        """Drop all blocks; they are merged again if state still holds many rows."""
        self.forget(state, INFINITY)
        state.values.pop(BLOCKS, None)

    def _hold(self, state: KernelBaskets, rows: pa.Table) -> None:
        """Add rows to the basic windows, in bins of blocks' size if state has blocks."""
        self.held.add(state, rows, self.rank if BLOCKS in state.values else None)

    def _rearrange(self, state: KernelBaskets) -> None:
        """Move the rows of basic windows into bins as they are with blocks, or without."""
        rows = self.held.read(state, MINUS_INFINITY, INFINITY)
        self.held.forget(state, INFINITY)
        if rows is not None:
            self._hold(state, self.held.merged(rows))

    def _blocks(self, state: KernelBaskets) -> Iterator[tuple[str, int, int]]:
        """Yield the bin of each block that has rows, its first basic window and its size."""
        for bin in state.bins(BLOCKS):
            start, end = bin_starts(bin)
            yield bin, start, (end - start).bit_length() - 1

    def _parts(self, state: KernelBaskets, size: int, first: int, end: int) -> pa.Table | None:
        """Return the results that blocks of a size merge, of the basic windows ``first`` up to ``end``; None without any."""
        if size == self.sizes[0]:
            bins = [bin for bin in self.held.bins(state) if not first <= bin_starts(bin)[0] < end]
            return self.held.read(state, MINUS_INFINITY, INFINITY, without=bins)
        below = [b for b in self._blocks(state) if b[2] == size - self.sizes.step and first <= b[1] < end]
        tables = [table for bin, _, part in below if (table := self._read(state, bin, part)) is not None]
        return concat(tables) if tables else None

    def _append(self, state: KernelBaskets, parts: pa.Table, size: int) -> None:
        """Merge results into the blocks of a size that contain them."""
        rows = self._merged(with_column(parts, HI, ints(parts, HI) >> size << size).drop_columns([LO]))
        first = ints(rows, HI)
        for bin, is_in_it in in_bins(first, np.full(len(first), size)):
            state.append(BLOCKS, bin, rows.filter(pa.array(is_in_it)))

    def _read(self, state: KernelBaskets, bin: str, size: int) -> pa.Table | None:
        """Return the rows of a block, with the first window that contains it as a whole; None if it has none."""
        rows = state.read(BLOCKS, bin, self._merged)
        return (
            None if rows is None else with_column(rows, LO, saturating(ints(rows, HI), (1 << size) - self.held.grid.n))
        )

    def _merged(self, rows: pa.Table) -> pa.Table:
        """Return rows of blocks with one row for each group and block."""
        return merge_partial_rows(rows, [*self.held.keys, HI], self.held.partials)


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


__all__ = ["BLOCKS", "BlocksBasket"]
