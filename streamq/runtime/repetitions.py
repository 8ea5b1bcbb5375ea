"""Which rows say again what another one has said, and which contradict it: for sources that may deliver a row more than once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import codes, concat
from streamq.runtime.values import Mask, column_ranks


def repetitions(fresh: pa.Table, held: pa.Table | None, whose: Sequence[str], what: Sequence[str]) -> tuple[Mask, Mask]:
    """Of the rows of ``fresh`` those to be left out: repetitions, and those that differ from the one that stands.

    Rows of equal columns ``whose`` speak of one thing. The one that stands is that of ``held`` (which has one at most), else
    the least by the columns ``what``, in which a repetition is equal to it: NULLs and NaNs are, both zeros, and maps
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
    # only what speaks of one thing is compared as a whole, for that costs
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
