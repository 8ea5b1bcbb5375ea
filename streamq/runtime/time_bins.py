"""Bins of rows by an instant: a micro-batch appends rows without reading others, and takes out those whose instant has come.

A bin holds the rows from its start to the start of the next bin; one that has grown is divided. The first bin is kept small,
because it is read whenever the next rows are taken out.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import COMPACT_AT, KernelBaskets
from streamq.runtime.columnar import concat, ints, net_deltas, split_by
from streamq.runtime.event import LE, WEIGHT
from streamq.runtime.values import Ints
from streamq.time import INFINITY

MOST = 2_048
"""The number of live rows above which a bin is divided."""

FEW = 256
"""The number of rows up to which a bin is not divided when rows are taken out of it."""


@dataclass(eq=False, repr=False)
class _Bin:
    """A bin: the instant at which it starts, the least instant of its rows, and their least value.

    ``most`` is the number of live rows above which it is divided.
    """

    number: int
    start: int
    least: int
    value: int
    most: int = MOST

    @property
    def name(self) -> str:
        """The bin's name in its basket."""
        return f"t{self.number}"


class TimeBins:
    """A basket of deltas in bins by the column ``by``, LE or RE. Equal deltas have equal instants, so they share a bin.

    The least value of the column ``valued`` is known without reading the rows.
    """

    def __init__(self, state: KernelBaskets, basket: str, by: str = LE, valued: str = LE):
        """Read what the bins hold from the values of ``state``."""
        self.state, self.basket, self.by, self.valued = state, basket, by, valued
        self.values = state.values.get(f"{basket} bins", {"next": 0, "bins": []})
        self.bins = [_Bin(*fields) for fields in self.values["bins"]]
        self.opened: list[_Bin] = []

    def __bool__(self) -> bool:
        """True if there are rows."""
        return bool(self.bins)

    @property
    def least(self) -> int:
        """The least instant of a row; INFINITY if there are none."""
        return self.bins[0].least if self.bins else INFINITY

    @property
    def least_value(self) -> int:
        """The least value of a row; INFINITY if there are none."""
        return min((bin.value for bin in self.bins), default=INFINITY)

    def append(self, rows: pa.Table) -> None:
        """Add deltas to their bins; a bin is read only if a retraction may have taken its least row, or if it has grown."""
        if not rows.num_rows:
            return
        if not self.bins:
            self._divide(0, None, rows, MOST)
        else:
            for bin, mine in [(self.bins[n], mine) for n, mine in split_by(rows, self._number_of(ints(rows, self.by)))]:
                self._add(bin, mine)
        self._store()

    def take(self, before: int) -> pa.Table | None:
        """Take out the deltas before an instant, added up; at INFINITY all. None if there are none."""
        taken = []
        while self.bins and (self.bins[0].least < before or before == INFINITY):
            bin = self.bins[0]
            rows = self._read(bin)
            is_over = ints(rows, self.by) < before if before != INFINITY else np.ones(rows.num_rows, bool)
            taken.append(rows.filter(pa.array(is_over)))
            if not is_over.all():
                self._divide(0, bin, rows.filter(pa.array(~is_over)), FEW)
                break
            self._remove(bin)
        if not taken:
            return None
        self._store()
        return concat(taken)

    def open(self, instants: Ints, before: int) -> pa.Table | None:
        """Return the deltas in the bins of some instants, and in those with a value before an instant; None if there are none.

        The bins are then empty, until :meth:`put_back`.
        """
        touched = {self.bins[n] for n in np.unique(self._number_of(instants))} if self.bins else set()
        self.opened = [bin for bin in self.bins if bin in touched or bin.value < before]
        return concat([self._read(bin) for bin in self.opened]) if self.opened else None

    def put_back(self, rows: pa.Table) -> None:
        """Write the deltas of the opened bins, and others of the instants for which these were opened."""
        if not self.opened:
            self.append(rows)
            return
        numbers = self._number_of(ints(rows, self.by))
        parts = [rows.filter(pa.array(numbers == self.bins.index(bin))) for bin in self.opened]
        for bin, mine in zip(self.opened, parts, strict=True):
            self._divide(self.bins.index(bin), bin, mine, bin.most)
        self._store()

    # inside

    def _number_of(self, instants: Ints) -> Ints:
        """Return the number of the bin of each instant."""
        return np.searchsorted(np.array([bin.start for bin in self.bins[1:]], np.int64), instants, "right")

    def _add(self, bin: _Bin, rows: pa.Table) -> None:
        """Append rows to a bin, or rewrite it with them, and divide it if it has grown."""
        values, at, weight = ints(rows, self.valued), ints(rows, self.by), ints(rows, WEIGHT)
        live = int(weight.sum())
        may_lose_least = ((weight < 0) & ((at <= bin.least) | (values <= bin.value))).any()
        grows = self.state.filled(self.basket, bin.name).rows + live > bin.most
        is_crowded = self.state.needs_rewrite(self.basket, bin.name, len(at), live, most=COMPACT_AT, small=0)
        if may_lose_least or grows or is_crowded:
            self._divide(self.bins.index(bin), bin, net_deltas(concat([self._read(bin), rows])), bin.most)
            return
        self.state.append(self.basket, bin.name, rows, live)
        bin.least, bin.value = min(bin.least, int(at.min())), min(bin.value, int(values.min()))

    def _read(self, bin: _Bin) -> pa.Table:
        """Return the deltas of a bin, added up."""
        rows = self.state.read(self.basket, bin.name)
        assert rows is not None
        return net_deltas(rows)

    def _remove(self, bin: _Bin) -> None:
        """Forget a bin and its rows."""
        self.state.drop(self.basket, bin.name)
        self.bins.remove(bin)

    def _divide(self, place: int, bin: _Bin | None, rows: pa.Table, most: int) -> None:
        """Write rows in place of a bin: as one if they are at most ``most``, else cut into several, of which the first is small.

        Rows of one instant are not cut.
        """
        if bin is not None:
            self._remove(bin)
        at = ints(rows, self.by)
        cuts = np.zeros(0, np.int64)
        if len(at) > most:
            in_order = np.sort(at)
            cuts = np.unique(in_order[max(FEW, min(len(at) // 4, MOST // 2)) :: MOST // 2])
            cuts = cuts[cuts > in_order[0]]
        for number, part in split_by(rows, np.searchsorted(cuts, at, "right")):
            instants, name = ints(part, self.by), self.values["next"]
            self.values["next"] += 1
            start = int(cuts[number - 1]) if number else bin.start if bin is not None else int(instants.min())
            new = _Bin(
                name, start, int(instants.min()), int(ints(part, self.valued).min()), max(MOST, 2 * part.num_rows)
            )
            self.state.append(self.basket, new.name, part, int(ints(part, WEIGHT).sum()))
            self.bins.insert(place, new)
            place += 1

    def _store(self) -> None:
        """Store what the bins hold in the values of the state."""
        self.state.values[f"{self.basket} bins"] = {**self.values, "bins": [list(astuple(bin)) for bin in self.bins]}


__all__ = ["FEW", "MOST", "TimeBins"]
