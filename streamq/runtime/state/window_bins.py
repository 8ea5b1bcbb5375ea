"""Baskets of windows on a grid: partial results in bins by their last window, and the reported rows that may still change.

Large bins are split by group, so that what corrects a few groups reads these (:mod:`streamq.runtime.state.bins`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
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
from streamq.runtime.partials.range_partials import INDEX, TouchedWindows, merge_partial_rows, net_partial_rows
from streamq.runtime.state.baskets import BinSizes, KernelBaskets, Span
from streamq.runtime.state.bins import Bins
from streamq.runtime.time.progress_rule import saturating
from streamq.time import Grid

PARTIALS, REPORTED = "partials", "reported"

UNADDED = 32
"""Events are added to the states of a bin once there are more than twice so many for each state."""

REPORTED_WIDTH = 4
"""The number of windows that a bin of reported rows spans, as log2."""


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
            length = high.astype(np.float64) - low.astype(np.float64) + 1
            places = high, np.clip(np.floor(np.log2(length)).astype(np.int64) - 1, 0, 62)
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
