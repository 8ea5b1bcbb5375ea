"""Rows that are not settled, by their ends: each waits until the CTI has passed its end, and may be taken back until then.

A micro-batch reads the rows that settle in it. Rows without an end lie by their starts. The least start of all rows is known
without reading them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.columnar import concat, ints, net_deltas
from streamq.runtime.event import LE, RE
from streamq.runtime.time_bins import TimeBins
from streamq.time import INFINITY


class UnsettledRows:
    """The rows of a kernel that wait until they are settled, in baskets of its state."""

    def __init__(self, state: KernelBaskets, basket: str):
        """Open the rows of a basket, which also names the basket of those without an end."""
        self.ending = TimeBins(state, basket, RE, then=LE)
        self.endless = TimeBins(state, f"{basket} without end", LE)

    def __bool__(self) -> bool:
        """True if rows wait."""
        return bool(self.ending or self.endless)

    @property
    def least_start(self) -> int:
        """The least start of a row that waits; INFINITY if none does."""
        return min(self.ending.least_value, self.endless.least)

    @property
    def due(self) -> int | None:
        """The CTI at which the next row settles: INFINITY if all that wait are endless, None if none waits."""
        if self.ending:
            return min(INFINITY, self.ending.least + 1)
        return INFINITY if self.endless else None

    def advance(self, fresh: Sequence[pa.Table], c: int) -> pa.Table | None:
        """Add deltas, and take out the net rows that are settled at ``c``, which are all at INFINITY; None if there are none."""
        over = [rows for bins in self._bins(c) if (rows := bins.take(c)) is not None]
        for table in fresh:
            re = ints(table, RE)
            is_over = (re < c) | (c == INFINITY)
            over.append(table.filter(pa.array(is_over)))
            self.ending.append(table.filter(pa.array(~is_over & (re < INFINITY))))
            self.endless.append(table.filter(pa.array(~is_over & (re == INFINITY))))
        over = [table for table in over if table.num_rows]
        return net_deltas(concat(over)) if over else None

    def _bins(self, c: int) -> list[TimeBins]:
        """Return the bins in which rows may be settled at ``c``."""
        return [self.ending, self.endless] if c == INFINITY else [self.ending]


__all__ = ["UnsettledRows"]
