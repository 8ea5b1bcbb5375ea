"""Aggregates of windows that have no partial results: reduced, in Arrow, from the values of members, held with numbers of events.

A reduction is over ranges of windows on a grid, or over copies of members.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.choices import ClipInput
from streamq.grid import Grid
from streamq.plan.partial import COUNT, CopiedMembers, MemberReduction, RangedMembers, RangeReduction, Reduction
from streamq.runtime.columnar import expand_ranges, ints
from streamq.runtime.evaluators.numbering import event_order
from streamq.runtime.event import LE, RE
from streamq.runtime.grid_ranges import grid_lifetimes
from streamq.runtime.touched_windows import TouchedWindows
from streamq.runtime.values import Ints


def reduced(members: RangedMembers, reductions: Iterable[Reduction]) -> dict[str, pa.Array]:
    """Return the result columns, a value per window; members are copied into their windows only for reductions that need it.

    Raises TypeError for a reduction of neither kind.
    """
    columns: dict[str, pa.Array] = {}
    copies: CopiedMembers | None = None
    for reduction in reductions:
        if isinstance(reduction, RangeReduction):
            columns[reduction.column.name] = reduction.over_ranges(members)
        elif isinstance(reduction, MemberReduction):
            copies = copies or _copied(members)
            columns[reduction.column.name] = reduction.over_members(copies)
        else:
            raise TypeError(f"{type(reduction).__name__} is neither a RangeReduction nor a MemberReduction")
    return columns


def _copied(members: RangedMembers) -> CopiedMembers:
    """Return the members copied into their windows, with their order."""
    row, number = expand_ranges(members.first, members.last)
    if (members.number > 1).any():
        row, number = np.repeat(row, members.number[row]), np.repeat(number, members.number[row])
    order = np.arange(len(row)) if members.place is None else np.argsort(members.place[row], kind="stable")
    rows = members.rows.take(pa.array(row))
    return CopiedMembers(rows, number, members.n, order, members.lasts(row, number), members.window)


def value_columns(reductions: Sequence[Reduction]) -> tuple[str, ...]:
    """Return the columns that reductions read, each once."""
    names = (name for r in reductions for name in (*r.column.args, *filter(None, [r.column.where])))
    return tuple(dict.fromkeys(names))


def reduced_windows(
    windows: TouchedWindows,
    values: pa.Table,
    first: Ints,
    last: Ints,
    reductions: Sequence[Reduction],
    grid: Grid,
    clip: ClipInput,
    order: Sequence[str],
) -> dict[str, Any]:
    """Return the result columns of ``reductions``, a value for each of ``windows``.

    ``first..last`` are the places of the windows of each row of ``values``, which is empty for some; rows have numbers of events,
    and lifetimes, cut as ``clip`` says, if a reduction reads these. ``order``: the columns by which members of one start are
    ordered, if one reads that.
    """
    number = ints(values, COUNT)
    row = np.flatnonzero((first <= last) & (number > 0))
    chosen = values.take(pa.array(row))
    start = end = np.zeros(len(row), np.int64)
    if LE in chosen.column_names:
        start, end = ints(chosen, LE), ints(chosen, RE)
    place = None
    if order:
        place = np.empty(len(row), np.int64)
        place[event_order(chosen, np.zeros(len(row), np.int64), order)[0]] = np.arange(len(row))
    members = RangedMembers(
        rows=chosen.select(list(value_columns(reductions))),
        first=first[row],
        last=last[row],
        number=number[row],
        n=len(windows.index),
        place=place,
        lifetime=(start, end),
        clip=clip,
        window=grid_lifetimes(grid, windows.index),
        groups=windows.rows.select(windows.keys),
    )
    return reduced(members, reductions)
