"""Baskets of windows on a grid: partial results in bins by their last window, and the reported rows that may still change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.grid import Grid
from streamq.plan.partial import Partial
from streamq.runtime.basket import KernelBaskets
from streamq.runtime.bins import ENDLESS, bin_starts, in_bins
from streamq.runtime.columnar import concat, ints, net_deltas, with_column
from streamq.runtime.event import LE, RE
from streamq.runtime.open_windows import HI, LO, BinSpans
from streamq.runtime.range_partials import INDEX, merge_partial_rows, net_partial_rows
from streamq.time import INFINITY

PARTIALS, REPORTED = "partials", "reported"

REPORTED_BIN = 16
"""The number of windows that a bin of reported rows spans."""


@dataclass(frozen=True, kw_only=True)
class PartialsBasket:
    """Partial results of ranges of windows, by ``keys``.

    merges: they are merged for good; else they are values with weights, which may be retracted. reads_end: members whose ends
    may still move stay separate, with their lifetimes. points: events are points, so that a range has as many windows as the
    grid gives.
    """

    keys: tuple[str, ...]
    grid: Grid
    partials: tuple[Partial, ...]
    points: bool
    merges: bool
    reads_end: bool

    def merged(self, table: pa.Table) -> pa.Table:
        """Merge rows of one key and range; if they may be retracted, only rows of equal values, dropping those that cancel."""
        by = [*self.keys, LO, HI, *((LE, RE) if self.reads_end else ())]
        return (merge_partial_rows if self.merges else net_partial_rows)(table, by, self.partials)

    def add(self, state: KernelBaskets, new: pa.Table) -> None:
        """Put partial results into bins by their last windows, those of endless lifetimes into a bin of their own.

        The least and the greatest window of each bin are recorded in the state's values.
        """
        spans = BinSpans(state.values)
        low, high = ints(new, LO), ints(new, HI)
        endless = high == INFINITY
        if endless.any():
            state.append(PARTIALS, ENDLESS, self._packed(new.filter(pa.array(endless))))
            spans.add(ENDLESS, low[endless], high[endless])
            new, low, high = new.filter(pa.array(~endless)), low[~endless], high[~endless]
        if not len(high):
            return
        # bins about half as wide as their ranges: few to read, and dropped soon after they are needed
        widths = np.maximum(np.floor(np.log2((high - low + 1).astype(np.float64))).astype(np.int64) - 1, 0)
        for bin, is_in_it in in_bins(high, widths):
            state.append(PARTIALS, bin, self._packed(new.filter(pa.array(is_in_it))))
            spans.add(bin, low[is_in_it], high[is_in_it])

    def read(self, state: KernelBaskets) -> pa.Table | None:
        """Return all partial results; None if there are none. If ends are read, members and their retractions are summed up."""
        held = state.read_all(PARTIALS, self._compacted)
        if held is None:
            return None
        held = self._unpacked(held)
        # chunks may hold a member and its retraction: sum them up before rows are looked at one by one
        return self.merged(held) if self.reads_end else held

    def read_endless(self, state: KernelBaskets) -> pa.Table | None:
        """Return the partial results of endless lifetimes; None if there are none."""
        endless = state.read(PARTIALS, ENDLESS, self._compacted)
        return None if endless is None else self._unpacked(endless)

    def forget(self, state: KernelBaskets, least: int) -> None:
        """Drop the bins whose windows all lie before ``least``."""
        for bin in state.bins(PARTIALS):
            if bin_starts(bin)[1] <= least:
                state.drop(PARTIALS, bin)
                BinSpans(state.values).forget(bin)

    @property
    def low_is_known(self) -> bool:
        """True if the last window of a range determines the first."""
        return self.points and self.grid.divides

    def _packed(self, table: pa.Table) -> pa.Table:
        """Return the table to store: sorted, to compress well, and without the first window if the last determines it."""
        flat = [k for k in self.keys if not pa.types.is_nested(table.schema.field(k).type)]
        table = table.sort_by([(HI, "ascending"), *((k, "ascending") for k in flat)])
        return table.drop_columns([LO]) if self.low_is_known else table

    def _unpacked(self, table: pa.Table) -> pa.Table:
        """Return a stored table with the first windows of its ranges."""
        return with_column(table, LO, ints(table, HI) - (self.grid.n - 1)) if self.low_is_known else table

    def _compacted(self, table: pa.Table) -> pa.Table:
        """Return a stored table with its rows merged, again in the form to store."""
        return self._packed(self.merged(self._unpacked(table)))


@dataclass(frozen=True)
class ReportedBasket:
    """Reported rows of windows that may still change, with the numbers of their windows, by ``keys``.

    columns: those of a row, including the keys and the window's number.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]

    def rows(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return rows as one table of these columns."""
        return concat([table.select(list(self.columns)) for table in tables])

    def add(self, state: KernelBaskets, tables: Sequence[pa.Table], least: int) -> None:
        """Keep the deltas of windows from ``least`` on."""
        rows = self.rows(tables)
        index = ints(rows, INDEX)
        rows, index = rows.filter(pa.array(index >= least)), index[index >= least]
        for bin in np.unique(index // REPORTED_BIN):
            state.append(REPORTED, str(bin), rows.filter(pa.array(index // REPORTED_BIN == bin)))

    def between(self, state: KernelBaskets, first: int, last: int) -> list[pa.Table]:
        """Return the rows of the bins that hold the windows ``first..last``, a table a bin; other windows may be among them."""
        bins = [b for b in state.bins(REPORTED) if first // REPORTED_BIN <= int(b) <= last // REPORTED_BIN]
        return [t for b in bins if (t := state.read(REPORTED, b, net_deltas)) is not None]

    def behind(self, state: KernelBaskets, last: int) -> list[pa.Table]:
        """Return the keys and numbers of the windows after ``last``, a table for each bin that has some."""
        bins = [b for b in state.bins(REPORTED) if (int(b) + 1) * REPORTED_BIN > last + 1]
        rows = [t for b in bins if (t := state.read(REPORTED, b, net_deltas)) is not None]
        behind = [t.filter(pc.greater(t.column(INDEX), last)).select([*self.keys, INDEX]) for t in rows]
        return [table for table in behind if table.num_rows]

    def forget(self, state: KernelBaskets, least: int) -> None:
        """Drop the bins whose windows all lie before ``least``."""
        for bin in state.bins(REPORTED):
            if (int(bin) + 1) * REPORTED_BIN - 1 < least:
                state.drop(REPORTED, bin)


__all__ = ["PartialsBasket", "ReportedBasket"]
