"""Reductions of the members of windows without partial results, in Arrow: over ranges of windows, or over copies of members."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from streamq.plan.partial import CopiedMembers, MemberReduction, RangedMembers, RangeReduction, Reduction
from streamq.runtime.columnar import expand_ranges


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
