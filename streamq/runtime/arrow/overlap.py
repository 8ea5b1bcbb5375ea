"""Operations on sets of lifetimes, in numpy: overlapping pairs, unions of pieces, and the gaps that they leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.arrow.columnar import codes, expand_ranges
from streamq.runtime.arrow.values import Ints, distinct
from streamq.time import INFINITY


def matched_codes(left: pa.Table, right: pa.Table, by: Sequence[tuple[str, str]]) -> tuple[Ints, Ints]:
    """Return group numbers of the rows of two tables by key columns: equal keys share one, a row with a NULL key has -1.

    ``by`` pairs the columns, left and right; without columns all rows have number 0.
    """
    if not by:
        return np.zeros(left.num_rows, np.int64), np.zeros(right.num_rows, np.int64)
    names = [f"k{i}" for i in range(len(by))]
    ours = pa.table([left.column(a) for a, _ in by], names=names)
    theirs = pa.table([right.column(b) for _, b in by], names=names).cast(ours.schema)
    both = pa.concat_tables([ours, theirs]).combine_chunks()
    number, _ = codes(both, names)
    missing = np.zeros(both.num_rows, bool)
    for name in names:
        missing |= np.asarray(pc.is_null(both.column(name)).to_numpy(), bool)
    number = np.where(missing, -1, number)
    return number[: left.num_rows], number[left.num_rows :]


def rank_instants(*times: Ints) -> tuple[list[Ints], Ints, int]:
    """Return instants as ranks among all of them, an array per argument; the instant of each rank; and ``m``.

    ``m`` is greater than any rank, so ``group * m + rank`` sorts by group, then by instant.
    """
    every = distinct(np.concatenate(times))
    return [np.searchsorted(every, t) for t in times], every, len(every) + 1


def overlapping_pairs(
    one: Ints, one_le: Ints, one_re: Ints, other: Ints, other_le: Ints, other_re: Ints
) -> tuple[Ints, Ints]:
    """Return the pairs (row of one side, row of the other) of equal code, not -1, whose lifetimes overlap.

    Either the other starts within this one's lifetime, or this one strictly within the other's: two searches in sorted starts,
    O((n + m) log(n + m) + pairs) whatever the lengths.
    """
    mine, theirs = np.flatnonzero(one >= 0), np.flatnonzero(other >= 0)
    if not len(mine) or not len(theirs):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    (a, b, c, d), _, m = rank_instants(one_le[mine], one_re[mine], other_le[theirs], other_re[theirs])
    at, of = one[mine] * m, other[theirs] * m
    first, second = _starts_within(at + a, at + b, of + c, "left"), _starts_within(of + c, of + d, at + a, "right")
    return (np.concatenate([mine[first[0]], mine[second[1]]]), np.concatenate([theirs[first[1]], theirs[second[0]]]))


def _starts_within(low: Ints, high: Ints, starts: Ints, side: Any) -> tuple[Ints, Ints]:
    """Return the pairs of a range ``low..high`` and a start within it, as places in these arrays.

    ``high`` is not in the range; ``low`` is, if ``side`` is left, and is not if it is right.
    """
    order = np.argsort(starts, kind="stable")
    ordered = starts[order]
    which, place = expand_ranges(np.searchsorted(ordered, low, side), np.searchsorted(ordered, high, "left") - 1)
    return which, order[place]


def union_of_pieces(of: Ints, le: Ints, re: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the union of pieces per owner ``of``, as maximal intervals (owner, start, end), in order.

    Pieces that touch become one interval.
    """
    if not len(of):
        return of, le, re
    (start, end), every, m = rank_instants(le, re)
    order = np.lexsort((start, of))
    of, le, re, start, end = of[order], le[order], re[order], start[order], end[order]
    reached = np.maximum.accumulate(of * m + end)
    new = np.ones(len(of), bool)
    new[1:] = (of[1:] != of[:-1]) | (of[1:] * m + start[1:] > reached[:-1])
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(of)) - 1
    return of[first], le[first], every[reached[last] - of[last] * m]


def remaining_pieces(le: Ints, re: Ints, of: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the parts of the owners' lifetimes outside of some intervals, as (owner, start, end).

    ``le`` and ``re`` are a lifetime per owner; ``of``, ``start`` and ``end`` are the intervals of :func:`union_of_pieces`.
    """
    n = len(le)
    # add an empty piece at each owner's end: the gaps lie before each piece
    owners = np.concatenate([of, np.arange(n)])
    starts = np.concatenate([start, re])
    ends = np.concatenate([end, re])
    order = np.lexsort((np.concatenate([np.zeros(len(of), np.int64), np.ones(n, np.int64)]), starts, owners))
    owners, starts, ends = owners[order], starts[order], ends[order]
    before = np.empty(len(owners), np.int64)
    before[1:] = ends[:-1]
    head = np.ones(len(owners), bool)
    head[1:] = owners[1:] != owners[:-1]
    before[head] = le[owners[head]]
    gap = before < starts
    return owners[gap], before[gap], starts[gap]


def next_after(group: Ints, le: Ints, other: Ints, other_le: Ints) -> Ints:
    """Return, per row, the least ``other_le`` of its group that is greater than its ``le``; INFINITY if there is none.

    ``other`` are the groups of the other instants. Group -1 has no next instant.
    """
    if not len(le) or not len(other_le):
        return np.full(len(le), INFINITY)
    (a, b), every, m = rank_instants(le, other_le)
    numbers = np.sort(other * m + b)
    place = np.searchsorted(numbers, group * m + a, "right")
    there = place < len(numbers)
    value = numbers[np.minimum(place, len(numbers) - 1)]
    same = there & (value // m == group) & (group >= 0)
    return np.where(same, every[np.where(same, value - group * m, 0)], INFINITY)
