"""Groups of events: their numbers in an evaluation, their hashes, and the instants by which they hold back a CTI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.bucket import Hashes, combine_hashes, hashes
from streamq.runtime.columnar import codes, concat, ints, with_column
from streamq.runtime.event import LE
from streamq.runtime.state.baskets import KernelBaskets, grain
from streamq.runtime.values import Ints, Mask

GROUP_NUMBER = "__group"
"""The column of group numbers, from 0 on: the same for equal groups of all inputs; rows of a result have it, too."""


HASH = "__hash"
"""The column of the upper 32 bits of the hash of each row's group. Groups that share them are evaluated together."""

BITS = 32

GroupHashes = np.ndarray[Any, np.dtype[np.uint32]]

CELLS = 16
"""The number of cells of time for the starts of the first rows, if hashes go with starts."""

SECOND = 20
"""The cell's width, as log2 of ticks, if the first rows start together: about a second of microseconds."""


def number_groups(inputs: Sequence[pa.Table], columns: Sequence[Sequence[str]]) -> list[pa.Table]:
    """Return an operator's inputs with the column GROUP_NUMBER; ``columns`` separate the groups of each input, in matching order.

    NULL equals NULL, and NaN NaN; without columns all events are in group 0.
    """
    if not columns[0]:
        return [with_column(table, GROUP_NUMBER, np.zeros(table.num_rows, np.int64)) for table in inputs]
    names = [f"k{i}" for i in range(len(columns[0]))]
    keys = [pa.table([t.column(c) for c in by], names=names) for t, by in zip(inputs, columns, strict=True)]
    number, _ = codes(concat([keys[0], *(k.cast(keys[0].schema) for k in keys[1:])]), names)
    ends = np.cumsum([table.num_rows for table in inputs])[:-1]
    return [with_column(t, GROUP_NUMBER, mine) for t, mine in zip(inputs, np.split(number, ends), strict=True)]


def matching_groups(table: pa.Table, keys: Sequence[str]) -> Ints:
    """Return the group number of each row of an input, -1 for a row with NULL in one of its ``keys``, which matches no other."""
    number = ints(table, GROUP_NUMBER)
    for key in keys:
        if table.column(key).null_count:
            number = np.where(pc.is_null(table.column(key)).to_numpy(), -1, number)
    return number


def group_hashes(table: pa.Table, columns: Sequence[str]) -> Hashes:
    """Return a number for each row, the same for rows of one group, whatever the other columns."""
    return combine_hashes([np.ones(table.num_rows, np.uint64), *(hashes(table.column(name)) for name in columns)])


def with_hashes(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the rows with the hashes of their groups, which the columns separate."""
    upper = (group_hashes(table, columns) >> np.uint64(BITS)).astype(np.uint32)
    return with_column(table, HASH, upper)


def with_timed_hashes(table: pa.Table, columns: Sequence[str], state: KernelBaskets) -> pa.Table:
    """Return the rows with the hashes of their groups, of which the upper half goes with the start, one of the columns.

    So groups that start at about the same time lie in the same bins. The first rows decide how long that is; ``state`` keeps it.
    """
    starts = ints(table, LE)
    if "cell" not in state.values and len(starts):
        least, most = int(starts.min()), int(starts.max())
        state.values["cell"] = grain(least, most, CELLS) if most > least else SECOND
    lower = group_hashes(table, columns) >> np.uint64(BITS + BITS // 2)
    upper = (starts >> state.values.get("cell", 0)).view(np.uint64) << np.uint64(BITS // 2)
    return with_column(table, HASH, (upper | lower).astype(np.uint32))


def distinct_hashes(tables: Sequence[pa.Table]) -> GroupHashes:
    """Return the hashes of the groups in some tables, each once."""
    return np.unique(np.concatenate([np.zeros(0, np.uint32), *(table.column(HASH).to_numpy() for table in tables)]))


def is_among(hashes: Any, some: GroupHashes) -> Mask:
    """Mark the hashes that occur among some others, which are in order."""
    values = np.asarray(hashes)
    if not len(some):
        return np.zeros(len(values), bool)
    place = np.minimum(np.searchsorted(some, values), len(some) - 1)
    among: Mask = some[place] == values
    return among


@dataclass(frozen=True, eq=False)
class Holds:
    """Instants by which groups hold back the CTI of an operator.

    The group of number ``group[i]`` holds it back to ``at[i]``, until the input's CTI reaches ``until[i]``; then it may hold it
    back to another instant. ``at`` may be INFINITY, which holds back nothing.
    """

    group: Ints
    at: Ints
    until: Ints


def no_holds() -> Holds:
    """Return the holds of an operator whose groups hold back nothing."""
    nothing = np.zeros(0, np.int64)
    return Holds(nothing, nothing, nothing)


@dataclass(frozen=True, eq=False)
class ToCome:
    """Groups with rows that start later than those evaluated, by number, each with an instant before which none of them starts.

    ``first`` has the lifetime of the first such row of each of these groups, if it is known; None: for no group.
    """

    group: Ints
    start: Ints
    first: pa.Table | None = None


def least_by_group(groups: int, *parts: tuple[Ints, Ints], otherwise: int) -> Ints:
    """Return the least value of each group among parts ``(group, value)``; ``otherwise`` for a group without one."""
    least = np.full(groups, otherwise, np.int64)
    for group, value in parts:
        np.minimum.at(least, group, value)
    return least


__all__ = [
    "BITS",
    "GROUP_NUMBER",
    "HASH",
    "GroupHashes",
    "Holds",
    "ToCome",
    "distinct_hashes",
    "group_hashes",
    "is_among",
    "least_by_group",
    "matching_groups",
    "no_holds",
    "number_groups",
    "with_hashes",
    "with_timed_hashes",
]
