"""Deltas: rows that change a history, each with a lifetime and a weight: +1 inserts it, -1 retracts it.

Two columns may be missing: without ``__re`` every row lives for a tick, and without ``__w`` every row is an insert.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.arrow.columnar import ints, net_deltas, with_column
from streamq.runtime.event import LE, RE, WEIGHT


def with_ends(deltas: pa.Table) -> pa.Table:
    """Return the deltas with their ends; without ``__re`` they are points."""
    return deltas if RE in deltas.column_names else with_column(deltas, RE, ints(deltas, LE) + 1)


def with_weights(deltas: pa.Table) -> pa.Table:
    """Return the deltas with their weights; without ``__w`` they are inserts."""
    return deltas if WEIGHT in deltas.column_names else weighted(deltas, 1)


def live_rows(rows: pa.Table) -> int:
    """Return the number of rows, by weight if they have weights."""
    return int(ints(rows, WEIGHT).sum()) if WEIGHT in rows.column_names else rows.num_rows


def as_points(rows: pa.Table) -> pa.Table:
    """Return the rows as points at their starts; their ends are replaced."""
    return with_ends(rows.select([name for name in rows.column_names if name != RE]))


def weighted(rows: pa.Table, weight: int) -> pa.Table:
    """Return the rows as deltas of one weight; weights that they have are replaced."""
    return with_column(rows, WEIGHT, np.full(rows.num_rows, weight, np.int64))


def cancelling_deltas(deltas: pa.Table) -> pa.Table:
    """Return the deltas that cancel these."""
    return with_column(deltas, WEIGHT, pc.negate(deltas.column(WEIGHT)))


def net_retractions(deltas: pa.Table) -> pa.Table:
    """Return deltas summed up if one of them is a retraction; else as they are, because nothing cancels out."""
    return net_deltas(deltas) if (ints(deltas, WEIGHT) < 0).any() else deltas


def unit_weights(deltas: pa.Table) -> pa.Table:
    """Return the same deltas, each of weight +1 or -1: a delta of weight n becomes n rows; inserts without ``__w`` stay so."""
    weight = ints(with_weights(deltas), WEIGHT)
    if (np.abs(weight) == 1).all():
        return deltas
    copies = np.repeat(np.arange(len(weight)), np.abs(weight))
    return with_column(deltas.take(pa.array(copies)), WEIGHT, np.sign(weight)[copies])


def history_of(deltas: pa.Table) -> pa.Table:
    """Return deltas added up to a history, without weights: each event occurs in it as often as its weights add up to.

    A negative sum counts as 0.
    """
    weight = ints(deltas, WEIGHT)
    if (weight == 1).all():
        return deltas.drop_columns([WEIGHT])
    summed = net_deltas(deltas)
    weight = ints(summed, WEIGHT)
    rows = summed.drop_columns([WEIGHT])
    if (weight == 1).all():
        return rows
    return rows.take(pa.array(np.repeat(np.arange(len(weight)), np.maximum(weight, 0))))
