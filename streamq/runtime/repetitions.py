"""Repetitions and contradictions among rows, for sources that may deliver a row more than once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import codes, concat
from streamq.runtime.values import Mask, column_ranks


def repetitions(fresh: pa.Table, held: pa.Table | None, whose: Sequence[str], what: Sequence[str]) -> tuple[Mask, Mask]:
    """Return two masks of rows of ``fresh`` to drop: repetitions, and rows that contradict the valid row.

    Rows with equal columns ``whose`` are about one thing. The valid row is that of ``held`` (which has at most one), else the
    least by the columns ``what``. A repetition is equal to it in these: NULL equals NULL, NaN NaN, -0.0 0.0, and maps are equal
    whatever the order of their entries.
    """
    n = fresh.num_rows
    names = [*whose, *what]
    every = (
        fresh.select(names) if held is None else concat([held.select(names).cast(fresh.select(names).schema), fresh])
    )
    number, _ = codes(every, whose)
    many = np.bincount(number)[number] > 1
    repeated, contrary = np.zeros(n, bool), np.zeros(n, bool)
    at = np.flatnonzero(many)
    if not len(at):
        return repeated, contrary
    number, old = number[at], at < every.num_rows - n
    # only rows about one thing are compared in all columns, because that is costly
    columns = column_ranks(every.take(pa.array(at)), what)
    order = np.lexsort((*reversed(columns), ~old, number))
    begins = np.concatenate(([True], number[order][1:] != number[order][:-1]))
    stands = order[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
    equal = np.ones(len(at), bool)
    for column in columns:
        equal[order] &= column[order] == column[stands]
    left_out = np.ones(len(at), bool)
    left_out[order[begins]] = False
    left_out &= ~old
    mine = at - (every.num_rows - n)
    repeated[mine[left_out & equal]] = True
    contrary[mine[left_out & ~equal]] = True
    return repeated, contrary
