"""Baskets of windows on a grid: partial results in bins by their last window, and the reported rows that may still change.

Large bins are split by group, so that what corrects a few groups reads these (:mod:`streamq.runtime.state.bins`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.plan.partial import Partial
from streamq.runtime.arrow.columnar import concat, group, ints, net_deltas, sort, with_column
from streamq.runtime.arrow.values import Ints
from streamq.runtime.event import LE, RE
from streamq.runtime.grid_ranges import HI, LO
from streamq.runtime.groups import HASH
from streamq.runtime.partials.range_partials import INDEX, TouchedWindows, merge_partial_rows, net_partial_rows
from streamq.runtime.state.baskets import BinSizes, KernelBaskets
from streamq.runtime.state.bins import ENDLESS, Bins, bin_starts, in_bins
from streamq.runtime.time.tick_arithmetic import saturating
from streamq.time import INFINITY, MINUS_INFINITY, Grid

PARTIALS, REPORTED = "partials", "reported"

REPORTED_WIDTH = 4
"""The number of windows that a bin of reported rows spans, as log2."""


class BinSpans:
    """The windows that each bin of partial results spans, kept in ``values`` (JSON-like, in the state store).

    Ranges that share a bin overlap, so every window within a span has members.
    """

    def __init__(self, values: dict[str, Any]):
        self.state: dict[str, dict[str, int]] = values.setdefault("spans", {})

    def add(self, bin: str, low: Ints, high: Ints) -> None:
        """Widen a bin's span to ranges of windows."""
        span = self.state.get(bin, {"first": INFINITY, "last": MINUS_INFINITY})
        self.state[bin] = {"first": min(span["first"], int(low.min())), "last": max(span["last"], int(high.max()))}

    def span(self, bin: str) -> tuple[int, int]:
        """Return the first and the last window of a bin's span."""
        span = self.state[bin]
        return span["first"], span["last"]

    def all(self) -> list[tuple[int, int]]:
        """Return the first and the last window of each bin's span."""
        return [self.span(bin) for bin in self.state]

    def forget(self, bin: str) -> None:
        """Remove a bin's span."""
        del self.state[bin]

    def due(self, window: Grid, first: int) -> int | None:
        """Return the end of the next window, from ``first`` on, that had members; all of them may have been retracted.

        None if there is no such window.
        """
        ends = (window.end(max(span["first"], first)) for span in self.state.values() if span["last"] >= first)
        return min(ends, default=None)


@dataclass(frozen=True, kw_only=True)
class PartialsBasket:
    """Partial results of ranges of windows, by ``keys``.

    merges: they are merged for good; else they are values with weights, which may be retracted. has_lifetimes: members of
    different lifetimes stay separate, with these. points: events are points, so that a range has as many windows as the
    grid gives. parted: bins that exceed ``sizes`` are split by group. values: columns of values that are not merged either.
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

    def merged(self, table: pa.Table, windows: Sequence[str] = (LO, HI)) -> pa.Table:
        """Merge rows of one key and range; if they may be retracted, only rows of equal values, dropping those that cancel.

        ``windows``: the columns that a range goes by.
        """
        by = [*self.keys, *windows, *((LE, RE) if self.has_lifetimes else ()), *self.values]
        by += [HASH] if HASH in table.column_names else []
        return (merge_partial_rows if self.merges else net_partial_rows)(table, by, self.partials)

    def add(self, state: KernelBaskets, new: pa.Table, places: tuple[Ints, Ints] | None = None) -> None:
        """Put partial results into bins by their last windows, those of endless lifetimes into a bin of their own.

        The bin of a row spans about half as many windows as its range. ``places``: other numbers of windows to go by, and the
        widths of the bins as logarithms. The least and the greatest window of each bin are recorded in the state's values.
        """
        bins, spans = self._bins(state), BinSpans(state.values)
        low, high = ints(new, LO), ints(new, HI)
        if places is None:
            # bins about half as wide as their ranges: few to read, and dropped soon after they are needed
            length = high.astype(np.float64) - low.astype(np.float64) + 1
            places = high, np.clip(np.floor(np.log2(length)).astype(np.int64) - 1, 0, 62)
        for bin, is_in_it in in_bins(*places):
            bins.append(bin, self._packed(new.filter(pa.array(is_in_it))))
            spans.add(bin, low[is_in_it], high[is_in_it])

    def bins(self, state: KernelBaskets) -> list[str]:
        """Return the names of the bins."""
        return list(self._bins(state))

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
        bins, spans = self._bins(state), BinSpans(state.values)
        tables = []
        for bin in bins:
            if bin in without:
                continue
            low, high = spans.span(bin)
            if max(first, low) <= min(last, high):
                tables.append(bins.read(bin))
            elif touched is not None and touched.are_among(low, high):
                tables.append(bins.read_groups(bin, partial(touched.hashes, low, high)))
        held = self._all_of(tables)
        # chunks may hold a member and its retraction: sum them up before rows are looked at one by one
        return self.merged(held) if self.has_lifetimes and held is not None else held

    def read_bins(self, state: KernelBaskets, names: Iterable[str]) -> pa.Table | None:
        """Return the partial results of some bins; None if there are none."""
        bins = self._bins(state)
        return self._all_of([bins.read(name) for name in names])

    def _all_of(self, tables: Iterable[pa.Table | None]) -> pa.Table | None:
        """Return stored tables as one, with the first windows of its ranges; None if there are none."""
        some = [table for table in tables if table is not None]
        return self._unpacked(concat(some)) if some else None

    def read_endless(self, state: KernelBaskets) -> pa.Table | None:
        """Return the partial results of endless lifetimes; None if there are none."""
        endless = self._bins(state).read(ENDLESS)
        return None if endless is None else self._unpacked(endless)

    def forget(self, state: KernelBaskets, least: int) -> None:
        """Drop the bins whose windows all lie before ``least``."""
        bins, spans = self._bins(state), BinSpans(state.values)
        for bin in bins:
            if spans.span(bin)[1] < least or least == INFINITY:
                bins.drop(bin)
                spans.forget(bin)

    def _bins(self, state: KernelBaskets) -> Bins:
        """The bins, which may be split by group."""
        return Bins(state, PARTIALS, self._compacted, self.keys if self.parted else (), self.sizes)

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
        """Return rows as one table of these columns."""
        return concat([table.select(list(self.columns)) for table in tables])

    def add(self, state: KernelBaskets, tables: Sequence[pa.Table], least: int) -> None:
        """Keep the deltas of windows from ``least`` on."""
        rows = self.rows(tables)
        index = ints(rows, INDEX)
        rows, index = rows.filter(pa.array(index >= least)), index[index >= least]
        self._bins(state).place(rows, index, np.full(len(index), REPORTED_WIDTH))

    def read(self, state: KernelBaskets, touched: TouchedWindows) -> list[pa.Table]:
        """Return the rows of touched windows, a table a bin; other windows may be among them."""
        bins, tables = self._bins(state), []
        for bin in bins:
            first, end = bin_starts(bin)
            if touched.are_among(first, end - 1):
                tables.append(bins.read_groups(bin, partial(touched.hashes, first, end - 1)))
        return [table for table in tables if table is not None]

    def windows_after(self, state: KernelBaskets, last: int) -> TouchedWindows | None:
        """Return the windows after ``last`` that have rows; None if there are none."""
        bins = self._bins(state)
        rows = [t for bin in bins if bin_starts(bin)[1] > last + 1 and (t := bins.read(bin)) is not None]
        behind = [t.filter(pc.greater(t.column(INDEX), last)).select([*self.keys, INDEX]) for t in rows]
        windows = [table for table in behind if table.num_rows]
        return TouchedWindows(group(concat(windows), [*self.keys, INDEX], {}), self.keys) if windows else None

    def forget(self, state: KernelBaskets, least: int) -> None:
        """Drop the bins whose windows all lie before ``least``."""
        bins = self._bins(state)
        for bin in bins:
            if bin_starts(bin)[1] <= least:
                bins.drop(bin)

    def _bins(self, state: KernelBaskets) -> Bins:
        """The bins, which may be split by group."""
        return Bins(state, REPORTED, net_deltas, self.keys, self.sizes)
