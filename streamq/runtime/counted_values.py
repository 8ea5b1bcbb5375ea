"""Aggregates of windows on a grid that are reduced from the values of members, which are held with the numbers of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.choices import ClipInput
from streamq.grid import Grid
from streamq.plan.partial import COUNT, RangedMembers, Reduction
from streamq.runtime.columnar import ints
from streamq.runtime.evaluators.event_order import event_order
from streamq.runtime.evaluators.member_reductions import reduced
from streamq.runtime.event import LE, RE
from streamq.runtime.grid_ranges import grid_lifetimes
from streamq.runtime.touched_windows import TouchedWindows
from streamq.runtime.values import Ints


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


__all__ = ["reduced_windows", "value_columns"]
