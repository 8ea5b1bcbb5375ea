"""Reductions: aggregates without partial results, computed in Arrow from all members of a window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import ClipInput
from streamq.plan.partial import Ints

Floats = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class RangedMembers:
    """Rows that lie in windows ``first .. last`` each, of the windows 0 .. n - 1, none empty.

    number: how many events each row stands for; more than one only where all reductions read values alone. place: where
    each row stands in the order of (start, payload, end), if an ordered aggregate asks for it; lifetime: the rows' starts
    and ends in ticks, which ``clip`` cuts to their windows; window: each window's interval; groups: each window's group;
    memory: the calls of modules that a host of streams remembers, for their reductions; asked: the windows whose results
    somebody reads, None: all. aside: takes the windows whose calls fail, once they are ``final``; None: there is nothing
    that takes them. final: the windows that can no longer change, None: all.
    """

    rows: pa.Table
    first: Ints
    last: Ints
    number: Ints
    n: int
    place: Ints | None
    lifetime: tuple[Ints, Ints]
    clip: ClipInput
    window: tuple[Ints, Ints]
    groups: pa.Table
    memory: Any = None
    asked: Mask | None = None
    aside: Any = None
    final: Mask | None = None

    def cut(self, row: Ints, window: Ints) -> tuple[Ints, Ints]:
        """Return the starts and ends of members, cut as the clip says; a member is a row and the number of its window."""
        start, end = self.lifetime
        return self.cut_to(start[row], end[row], window)

    def cut_to(self, start: Ints, end: Ints, window: Ints) -> tuple[Ints, Ints]:
        """Cut lifetimes to their windows as the clip says."""
        starts, ends = self.window
        start = np.maximum(start, starts[window]) if self.clip.cuts_starts else start
        return start, np.minimum(end, ends[window]) if self.clip.cuts_ends else end

    def lasts(self, row: Ints, window: Ints) -> Floats:
        """Return the durations of members in ticks, once they are cut; 0 for a member of which nothing is left."""
        start, end = self.cut(row, window)
        return np.maximum(end.astype(np.float64) - start.astype(np.float64), 0.0)


@dataclass(frozen=True)
class CopiedMembers:
    """One row for each member and window; ``number``: the window's number.

    order: the rows in the order of (start, payload, end), if an ordered aggregate asks for it; lasts: how long each member
    lives, cut as the window's clip says, in ticks; window: each window's interval.
    """

    rows: pa.Table
    number: Ints
    n: int
    order: Ints
    lasts: Floats
    window: tuple[Ints, Ints]


@dataclass(frozen=True)
class ReducedColumn:
    """A result column: its name and Arrow type, the columns ``args`` that it is computed from, and the aggregate's ``options``.

    ``where`` is a column of booleans that filters members; None: all count. ``axis`` is the type of instants.
    """

    name: str
    args: tuple[str, ...]
    type: pa.DataType
    where: str | None = None
    options: tuple[float | int | str, ...] = ()
    axis: pa.DataType = field(default_factory=pa.int64)


@dataclass(frozen=True)
class Reduction(ABC):
    """Computes one result column from windows' members; it is sent to executors."""

    column: ReducedColumn

    @property
    def depends_on_order(self) -> bool:
        """True if the result depends on the order in which rows are added up, if only in its last digits."""
        return False

    @property
    def reads_lifetimes(self) -> bool:
        """True if it reads when members live, or their order, which is by start first; executors keep these with values then."""
        return False

    @property
    def weighs_lifetimes(self) -> bool:
        """True if its result depends on how long members live."""
        return False

    @property
    def may_be_none(self) -> bool:
        """True if a window with members may have no row at all."""
        return False

    @property
    def calls_module(self) -> bool:
        """True if it calls code of a user's."""
        return False

    def passes(self, rows: pa.Table) -> Mask:
        """Return the mask of rows that pass the filter."""
        if self.column.where is None:
            return np.ones(rows.num_rows, bool)
        return np.asarray(pc.fill_null(rows.column(self.column.where), False).to_numpy(), bool)


class RangeReduction(Reduction):
    """A reduction over ranges of windows: O(n log n) in rows and windows, however many windows a row lies in."""

    @abstractmethod
    def over_ranges(self, members: RangedMembers) -> pa.Array:
        """Return a value for each window, by number."""


class MemberReduction(Reduction):
    """A reduction over members that have been copied into each of their windows."""

    @abstractmethod
    def over_members(self, members: CopiedMembers) -> pa.Array:
        """Return a value for each window, by number."""


def floats(column: Any) -> tuple[Floats, Mask]:
    """Return the values of a column as doubles, 0.0 for NULL, and the mask of those that are not NULL."""
    array = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).cast(pa.float64())
    is_there = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), bool)
    return array.fill_null(0.0).to_numpy(zero_copy_only=False), is_there
