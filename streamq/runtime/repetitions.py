"""Repetitions and contradictions among rows, for sources that may deliver a row more than once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import codes, concat
from streamq.runtime.values import Ints, Mask, column_ranks


def repetitions(fresh: pa.Table, held: pa.Table | None, whose: Sequence[str], what: Sequence[str]) -> tuple[Mask, Mask]:
    """Return two masks of rows of ``fresh`` to drop: repetitions, and rows that contradict the valid row.

    Rows with equal columns ``whose`` are about one thing. The valid row is that of ``held`` (which has at most one), else the
    least by the columns ``what``. A repetition is equal to it in these: NULL equals NULL, NaN NaN, -0.0 0.0, and maps are equal
    whatever the order of their entries.
    """
    n = fresh.num_rows
    repeated, contrary = np.zeros(n, bool), np.zeros(n, bool)
    rivals = _Rivals.of(fresh, held, whose, what)
    if rivals is None:
        return repeated, contrary
    order = np.lexsort((*reversed(rivals.columns), ~rivals.old, rivals.number))
    begins = np.concatenate(([True], rivals.number[order][1:] != rivals.number[order][:-1]))
    stands = order[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
    equal = np.ones(len(order), bool)
    for column in rivals.columns:
        equal[order] &= column[order] == column[stands]
    left_out = np.ones(len(order), bool)
    left_out[order[begins]] = False
    left_out &= ~rivals.old
    repeated[rivals.place[left_out & equal]] = True
    contrary[rivals.place[left_out & ~equal]] = True
    return repeated, contrary


def repeats(fresh: pa.Table, held: pa.Table | None, whose: Sequence[str], what: Sequence[str]) -> Mask:
    """Mark the rows of ``fresh`` that are equal, in all these columns, to a row of ``held``, or to another that stays.

    The columns ``what`` are compared only where rows have equal columns ``whose``.
    """
    repeated = np.zeros(fresh.num_rows, bool)
    rivals = _Rivals.of(fresh, held, whose, what)
    if rivals is None:
        return repeated
    order = np.lexsort((~rivals.old, *reversed(rivals.columns), rivals.number))
    equal = np.ones(len(order) - 1, bool)
    for column in (rivals.number, *rivals.columns):
        equal &= column[order][1:] == column[order][:-1]
    again = order[1:][equal & ~rivals.old[order][1:]]
    repeated[rivals.place[again]] = True
    return repeated


@dataclass(frozen=True)
class _Rivals:
    """Rows, of one table or of two, that are about one thing with others; only these are compared in all columns, as that costs.

    number: the number of the thing; old: the row is of the held table; place: its place in the fresh one, negative for an old
    one; columns: the values compared, as ranks.
    """

    number: Ints
    old: Mask
    place: Ints
    columns: list[Ints]

    @staticmethod
    def of(fresh: pa.Table, held: pa.Table | None, whose: Sequence[str], what: Sequence[str]) -> _Rivals | None:
        """Return the rows that share the columns ``whose`` with others, ranked by the columns ``what``; None if none do."""
        names = [*dict.fromkeys((*whose, *what))]
        every = fresh.select(names)
        if held is not None:
            every = concat([held.select(names).cast(every.schema), every])
        number, _ = codes(every, whose)
        at = np.flatnonzero(np.bincount(number)[number] > 1)
        if not len(at):
            return None
        place = at - (every.num_rows - fresh.num_rows)
        return _Rivals(number[at], place < 0, place, column_ranks(every.take(pa.array(at)), what))
