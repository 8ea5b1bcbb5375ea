"""The kernel of ``output="latest"``: of each key the row that starts last, among those that have not been taken back.

Of rows with one start it is that of the longest lifetime; of these the greatest payload, by its columns in their order.

State: of each key the rows from c on, and those of the last start before c, in bins of keys. What has started before c stays
from its start to c at least, so rows that start earlier are never the latest again. Cost: a micro-batch reads and writes the
bins of its keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints, split_by
from streamq.runtime.arrow.values import Ints, column_ranks, combine_numbers, dense_numbers, number_values
from streamq.runtime.deltas import LE, RE, WEIGHT, net_deltas, weighted
from streamq.runtime.groups import BITS, HASH, with_hashes
from streamq.runtime.kernel import Arrival, Clock, Output, UncombinedKernel
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.time.progress_rule import Cti, ProgressRule
from streamq.time import INFINITY, MINUS_INFINITY

ROWS = "rows"
"""The basket of the rows of all keys."""

BIN_BITS = 4
"""The number of leading bits of a key's hash that name its bin."""


@dataclass(frozen=True)
class LatestRowsKernel(UncombinedKernel):
    """A kernel of rows with the columns ``payload``; ``key``: those by which one row is sent."""

    payload: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def progress_rule(self) -> ProgressRule:
        return ProgressRule(Cti.INPUT)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send, for each key with new rows, the latest row and the retraction of the one before, unless they are the same."""
        columns = [*self.payload, LE, RE, WEIGHT]
        fresh = [arrival.table.select(columns) for arrival in arrivals if arrival.table.num_rows]
        sent: list[pa.Table] = []
        if fresh:
            rows, basket = with_hashes(concat(fresh), self.key), state.basket(ROWS)
            for number, mine in split_by(rows, rows.column(HASH).to_numpy().astype(np.int64) >> (BITS - BIN_BITS)):
                before = basket.read(str(number))
                after = net_deltas(mine if before is None else concat([before, mine]))
                if before is not None:
                    sent.append(weighted(self._latest(before), -1))
                sent.append(weighted(self._latest(after), 1))
                basket.replace(str(number), self._lasting(after, clock.c))
        if clock.c == INFINITY:
            state.drop_basket(ROWS)
        deltas = net_deltas(concat(sent)).select(columns) if sent else None
        return Output(deltas, clock.c)

    def _latest(self, rows: pa.Table) -> pa.Table:
        """Return the row of each key that is its latest."""
        rows = rows.filter(pa.array(ints(rows, WEIGHT) > 0))
        for name in (LE, RE):
            key = self._keys(rows)
            rows = rows.filter(pa.array(ints(rows, name) == _greatest(key, ints(rows, name))[key]))
        key = self._keys(rows)
        others = [name for name in self.payload if name not in self.key]
        ranks = column_ranks(rows, others) if len(np.unique(key)) < len(key) else []
        order = np.lexsort((*reversed(ranks), key))
        is_last = np.append(key[order][1:] != key[order][:-1], True) if len(order) else np.zeros(0, bool)
        return rows.take(pa.array(order[is_last]))

    def _lasting(self, rows: pa.Table, c: int) -> pa.Table:
        """Return the rows that may be a latest row now or later."""
        key, le = self._keys(rows), ints(rows, LE)
        is_settled = (le < c) & (ints(rows, WEIGHT) > 0)
        settled = _greatest(key, np.where(is_settled, le, MINUS_INFINITY))
        return rows.filter(pa.array(le >= settled[key]))

    def _keys(self, rows: pa.Table) -> Ints:
        """Return the number of each row's key, from 0 on."""
        return dense_numbers(combine_numbers([number_values(rows.column(name)) for name in self.key])[0])[0]


def _greatest(key: Ints, values: Ints) -> Any:
    """Return the greatest value of each key."""
    greatest = np.full(int(key.max(initial=-1)) + 1, MINUS_INFINITY)
    np.maximum.at(greatest, key, values)
    return greatest
