"""Bins of rows by an instant: a micro-batch appends rows without reading others, and takes out those whose instant has come.

A bin holds the rows from its start to the start of the next bin; one that has grown is divided. The first bin is kept small,
because it is read whenever the next rows are taken out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints, split_by
from streamq.runtime.arrow.values import Ints, Mask, distinct
from streamq.runtime.deltas import LE, RE, WEIGHT, net_deltas
from streamq.runtime.state.baskets import KernelBaskets, TimeBinSizes
from streamq.time import INFINITY, MINUS_INFINITY

PARTS = 4
"""The number of parts into which many rows are cut: rows that go everywhere are then appended to a few bins, not to many."""


@dataclass(eq=False, repr=False)
class _Bin:
    """A bin: where it starts, the least instant of its rows, and the least value, each with the weight of the rows that have it.

    ``most`` is the number of live rows above which it is divided, unless it has less than its part of all rows.
    """

    name: str
    start: tuple[int, int]
    least: tuple[int, int]
    value: tuple[int, int]
    most: int


class TimeBins:
    """A basket of deltas in bins by the column ``by``, LE or RE, and among rows of one instant by the column ``then``, if any.

    Equal deltas have equal values in both, so they share a bin. The least value of the column ``valued`` is known without
    reading the rows.
    """

    def __init__(self, state: KernelBaskets, basket: str, by: str = LE, then: str | None = None, valued: str = LE):
        self.basket = state.basket(basket)
        self.by, self.then, self.valued = by, then, valued
        self.sizes = state.baskets.time_bins
        noted = [(name, *self.basket.known(name).notes) for name in self.basket]
        bins = [_Bin(name, tuple(start), tuple(least), tuple(value), most) for name, start, least, value, most in noted]
        self.bins = sorted(bins, key=lambda bin: bin.start)
        self.opened: list[_Bin] = []

    def __bool__(self) -> bool:
        return bool(self.bins)

    @property
    def least(self) -> int:
        """The least instant of a row; INFINITY if there are none."""
        return self.bins[0].least[0] if self.bins else INFINITY

    @property
    def due(self) -> int | None:
        """The progress past the least instant: INFINITY if only the end of the input is past it; None if there are no rows."""
        return min(INFINITY, self.least + 1) if self.bins else None

    @property
    def greatest(self) -> int:
        """The greatest instant of a row that is not taken back; MINUS_INFINITY if there is none. It reads the last bins."""
        for bin in reversed(self.bins):
            rows = self._read(bin)
            if (is_live := ints(rows, WEIGHT) > 0).any():
                return int(ints(rows, self.by)[is_live].max())
        return MINUS_INFINITY

    @property
    def least_value(self) -> int:
        """The least value of a row; INFINITY if there are none."""
        return min((bin.value[0] for bin in self.bins), default=INFINITY)

    @property
    def live(self) -> int:
        return sum(self.basket.known(bin.name).rows for bin in self.bins)

    def nth(self, n: int) -> int | None:
        """Return the instant of the n-th row, from 0 on, in the order of instants; None if there are not so many rows.

        It reads the bin with that row.
        """
        for bin in self.bins:
            live = self.basket.known(bin.name).rows
            if n < live:
                rows = self._read(bin)
                return int(np.sort(np.repeat(ints(rows, self.by), ints(rows, WEIGHT)))[n])
            n -= live
        return None

    def rows(self) -> pa.Table | None:
        """Return all deltas, added up; None if there are none."""
        return concat([self._read(bin) for bin in self.bins]) if self.bins else None

    def peek(self, fresh: Sequence[pa.Table], before: int) -> pa.Table | None:
        """Return what :meth:`advance` would take out, and leave everything as it is."""
        tables = [*fresh, *(self._read(bin) for bin in self.bins if bin.least[0] < before)]
        over = [rows for table in tables if (rows := table.filter(pa.array(ints(table, self.by) < before))).num_rows]
        return concat(over) if over else None

    def append(self, rows: pa.Table) -> None:
        """Add deltas to their bins; a bin is read only if retractions have taken all its least rows, or if it has grown."""
        if not rows.num_rows:
            return
        numbers = self._numbers_of(rows)
        if self._bin(0) is not None:
            # rows before all bins go into the first one, together with its own
            numbers = np.maximum(numbers, 1)
        for bin, mine in [(self._bin(n), mine) for n, mine in split_by(rows, numbers)]:
            if bin is None:
                self._divide(0, None, mine, self.sizes.most)
            else:
                self._add(bin, mine)

    def advance(self, fresh: Sequence[pa.Table], before: int) -> pa.Table | None:
        """Add deltas, and take out all those before an instant, at INFINITY all; None if there are none.

        Those that have come are not added up with those that were there.
        """
        stored = self.take(before)
        over = [] if stored is None else [stored]
        for table in fresh:
            is_over = (ints(table, self.by) < before) | (before == INFINITY)
            over.append(table.filter(pa.array(is_over)))
            self.append(table.filter(pa.array(~is_over)))
        over = [table for table in over if table.num_rows]
        return concat(over) if over else None

    def take(self, before: int) -> pa.Table | None:
        """Take out the deltas before an instant, added up; at INFINITY all. None if there are none."""
        parts = []
        while self.bins and (self.least < before or before == INFINITY):
            bin = self.bins[0]
            rows = self._read(bin)
            is_over = ints(rows, self.by) < before if before != INFINITY else np.ones(rows.num_rows, bool)
            parts.append(rows.filter(pa.array(is_over)))
            if not is_over.all():
                self._divide(0, bin, rows.filter(pa.array(~is_over)), self.sizes.few)
                break
            self._remove(bin)
        return concat(parts) if parts else None

    def open(self, places: Sequence[pa.Table], before: int) -> pa.Table | None:
        """Return the deltas in the bins in which rows of ``places`` lie, and in those with a value before an instant.

        None if there are none. The bins are then empty, until :meth:`put_back`.
        """
        touched = {self._bin(n) for rows in places for n in distinct(self._numbers_of(rows))}
        self.opened = [bin for bin in self.bins if bin in touched or bin.value[0] < before]
        return concat([self._read(bin) for bin in self.opened]) if self.opened else None

    def put_back(self, rows: pa.Table) -> None:
        """Write the deltas of the opened bins, and others of the places for which these were opened."""
        number = self._numbers_of(rows)
        own = [self.bins.index(bin) + 1 for bin in self.opened]
        parts = [rows.filter(pa.array(number == n)) for n in own]
        for bin, mine in zip(self.opened, parts, strict=True):
            self._divide(self.bins.index(bin), bin, mine, bin.most)
        self.append(rows.filter(pa.array(~np.isin(number, own))))

    # inside

    def _seconds(self, rows: pa.Table) -> Ints:
        return np.zeros(rows.num_rows, np.int64) if self.then is None else ints(rows, self.then)

    def _numbers_of(self, rows: pa.Table) -> Ints:
        """Return the number of the bin of each row, from 1 on; 0 for rows before all bins."""
        return _numbers([bin.start for bin in self.bins], ints(rows, self.by), self._seconds(rows))

    def _bin(self, number: int) -> _Bin | None:
        """Return the bin of this number; None if the rows of 0 need one of their own, as the first one has many rows."""
        if number == 0 and (not self.bins or self.basket.known(self.bins[0].name).rows > self.sizes.few):
            return None
        return self.bins[max(0, number - 1)]

    def _add(self, bin: _Bin, rows: pa.Table) -> None:
        """Append rows to a bin, or rewrite it with them, and divide it if it has grown."""
        weight = ints(rows, WEIGHT)
        live = int(weight.sum())
        least = _least(bin.least, ints(rows, self.by), weight)
        value = _least(bin.value, ints(rows, self.valued), weight)
        has_lost_least = least[1] <= 0 or value[1] <= 0
        grows = self.basket.known(bin.name).rows + live > max(bin.most, self.live // PARTS)
        if has_lost_least or grows:
            whole = net_deltas(concat([self._read(bin), rows]))
            # a small first bin costs less when it loses its least rows again
            self._divide(self.bins.index(bin), bin, whole, self.sizes.few if has_lost_least else bin.most)
            return
        self.basket.add(bin.name, rows, net_deltas, live)
        bin.least, bin.value = least, value
        bin.start = min(bin.start, _first_place(ints(rows, self.by), self._seconds(rows)))
        self._note(bin)

    def _read(self, bin: _Bin) -> pa.Table:
        rows = self.basket.read(bin.name)
        assert rows is not None
        return net_deltas(rows)

    def _remove(self, bin: _Bin) -> None:
        self.basket.drop(bin.name)
        self.bins.remove(bin)

    def _divide(self, number: int, bin: _Bin | None, rows: pa.Table, most: int) -> None:
        """Write rows in place of a bin: as one if they are at most ``most``, else cut into several, of which the first is small.

        Rows of one place are not cut.
        """
        if bin is not None:
            self._remove(bin)
        at, then, weight, values = ints(rows, self.by), self._seconds(rows), ints(rows, WEIGHT), ints(rows, self.valued)
        starts = _cuts(at, then, self.sizes) if len(at) > most else []
        part_of = _numbers(starts, at, then)
        name = 1 + max((int(bin.name) for bin in self.bins), default=-1)
        for n, part in split_by(rows, part_of):
            is_mine = part_of == n
            new = _Bin(
                str(name + n),
                start=_first_place(at[is_mine], then[is_mine]),
                least=_least((INFINITY, 0), at[is_mine], weight[is_mine]),
                value=_least((INFINITY, 0), values[is_mine], weight[is_mine]),
                most=max(self.sizes.most, 2 * part.num_rows),
            )
            self.basket.append(new.name, part, int(weight[is_mine].sum()))
            self._note(new)
            self.bins.insert(number, new)
            number += 1

    def _note(self, bin: _Bin) -> None:
        """Note what a bin holds, for the next micro-batch."""
        self.basket.known(bin.name).notes = [bin.start, bin.least, bin.value, bin.most]


def unsettled_rows(state: KernelBaskets, basket: str) -> TimeBins:
    """Return the rows of a basket that wait until the CTI has passed their ends; the least value is their least start."""
    return TimeBins(state, basket, RE, then=LE)


def _first_place(at: Ints, then: Ints) -> tuple[int, int]:
    """Return the least of some places, each an instant and a second part."""
    low = int(at.min())
    return low, int(then[at == low].min())


def _least(least: tuple[int, int], values: Ints, weight: Ints) -> tuple[int, int]:
    """Return the least value, and its weight, once there are more rows; ``least``: of those so far."""
    low = int(values.min(initial=INFINITY))
    if low < least[0]:
        return low, int(weight[values == low].sum())
    return least[0], least[1] + int(weight[values == least[0]].sum())


def _numbers(starts: Sequence[tuple[int, int]], at: Ints, then: Ints) -> Ints:
    """Return, for each place, the number of the starts that are not after it; a place is an instant and a second part."""
    if not starts:
        return np.zeros(len(at), np.int64)
    start_at, start_then = np.array(starts, np.int64).T
    is_row = np.concatenate([np.zeros(len(starts), bool), np.ones(len(at), bool)])
    order = np.lexsort((is_row, np.concatenate([start_then, then]), np.concatenate([start_at, at])))
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(~is_row[order])
    return numbers[len(starts) :]


def _cuts(at: Ints, then: Ints, sizes: TimeBinSizes) -> list[tuple[int, int]]:
    """Return the places, after the first one, at which rows are cut: after a quarter, or few or half a bin's, then each half.

    Many rows are cut into PARTS.
    """
    order = np.lexsort((then, at))
    at, then = at[order], then[order]
    is_cut: Mask = np.zeros(len(at), bool)
    half = max(sizes.most // 2, len(at) // PARTS)
    is_cut[max(sizes.few, min(len(at) // 4, half)) :: half] = True
    places = dict.fromkeys(zip(at[is_cut].tolist(), then[is_cut].tolist(), strict=True))
    return [place for place in places if place > (int(at[0]), int(then[0]))]
