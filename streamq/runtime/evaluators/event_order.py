"""The order of events in their groups: by start, then by columns, then by end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import ints
from streamq.runtime.evaluators.numbering import is_new_pair
from streamq.runtime.event import LE, RE
from streamq.runtime.values import Ints, column_ranks


def event_order(table: pa.Table, group: Ints, names: Sequence[str]) -> tuple[Ints, Ints]:
    """Return row numbers in the order of group, start, ``names`` and end, and a number that rises with each of these but the end.

    Columns are compared only where starts are equal.
    """
    le = ints(table, LE)
    is_sorted = ((group[1:] > group[:-1]) | ((group[1:] == group[:-1]) & (le[1:] >= le[:-1]))).all()
    order = np.arange(len(le)) if is_sorted else np.lexsort((le, group))
    is_new = is_new_pair(group[order], le[order])
    is_tied = ~is_new
    is_tied[:-1] |= ~is_new[1:]
    if is_tied.any():
        rows, number = order[is_tied], np.cumsum(is_new)[is_tied]
        tied = table.take(pa.array(rows))
        ranks = column_ranks(tied, names)
        place = np.lexsort((ints(tied, RE), *reversed(ranks), number))
        order[is_tied] = rows[place]
        differs = np.zeros(len(place), bool)
        for rank in ranks:
            differs[1:] |= rank[place][1:] != rank[place][:-1]
        is_new[is_tied] |= differs
    return order, np.cumsum(is_new) - 1


__all__ = ["event_order"]
