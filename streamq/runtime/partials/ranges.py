"""Partial results over ranges of windows, merged into windows.

DataCell's basic windows: a partial result is computed once and merged into every window that contains it. A range of windows
is copied into its windows if they are few, else cut into dyadic nodes, of which each window merges log2. Windows with late,
retracted or early members are computed anew, by key, without the others of the same groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.plan.partial import COUNT, MergeableColumns, Partial, RowWindow, no_row_window
from streamq.runtime.arrow.columnar import codes, concat, expand_ranges, group, ints, is_matching, with_column
from streamq.runtime.arrow.values import Ints, Mask, distinct, python_rows
from streamq.runtime.groups import HASH, GroupHashes, with_hashes

INDEX = "__i"
"""A window's number."""

LOW, HIGH = "__low", "__high"
"""The first and the last number of a range of windows."""

EXPLODE_ROWS = 500_000
"""The number of copies of partials above which ranges are cut into dyadic nodes instead."""

EXPLODE_STATES = 5_000
"""The same number if Arrow cannot merge some columns, as states of a user's code."""


def merge_partial_rows(
    table: pa.Table, by: Sequence[str], partials: Sequence[MergeableColumns], *, keeps_failed: bool = False
) -> pa.Table:
    """Return partial results of equal ``by`` merged into one row, with the same columns.

    ``keeps_failed``: those for which a user's code fails stay as they are, because an event may be taken back.
    """
    table, forms = merging_forms(table, partials)
    rows = _merged_rows(table, by, forms)
    has_failed = np.any([form.has_failed(rows) for form in forms], axis=0) if keeps_failed else np.zeros(1, bool)
    if has_failed.any():
        apart = table.filter(pa.array(is_matching(table, rows.filter(pa.array(has_failed)), by)))
        rows = concat([rows.filter(pa.array(~has_failed)), apart.select(rows.column_names)])
    for form in forms:
        rows = form.as_held(rows)
    return rows


def merging_forms(table: pa.Table, partials: Iterable[MergeableColumns]) -> tuple[pa.Table, list[MergeableColumns]]:
    """Return the table with columns that merge at less cost than those that are held, and the forms that have these."""
    forms = []
    for partial in partials:
        table, form = partial.merging_form(table)
        forms.append(form)
    return table, forms


def _merged_rows(table: pa.Table, by: Sequence[str], partials: Sequence[MergeableColumns]) -> pa.Table:
    """Return partial results of equal ``by`` merged into one row, in the forms that they have."""
    sums = merge_aggregations(partials)
    others = _not_in_arrow(partials)
    if not others:
        return group(table, by, sums)
    number, first = codes(table, by)
    if len(first) == table.num_rows:
        return table.select(list(dict.fromkeys([*by, *sums, *(n for partial in others for n in partial.held_columns)])))
    groups = group(with_column(table, "__g", number), ["__g"], sums)
    at = ints(groups, "__g")
    columns: dict[str, Any] = {name: table.column(name).take(pa.array(first[at])) for name in by}
    columns |= {name: groups.column(name) for name in sums}
    for partial in others:
        columns |= partial.merged(table, number, at)
    return pa.table(columns)


def _not_in_arrow(partials: Iterable[MergeableColumns]) -> list[MergeableColumns]:
    return [partial for partial in partials if len(partial.grouped) < len(partial.held_columns)]


def row_windows(
    intervals: Callable[[pa.Table], tuple[Ints, Ints]], groups: Callable[[pa.Table], pa.Table]
) -> Callable[[pa.Table], RowWindow]:
    """Return a function that gives errors the window and group of a row, for rows of windows.

    ``intervals`` returns the starts and ends of such rows in ticks, ``groups`` their columns of the group.
    """

    def of_rows(windows: pa.Table) -> RowWindow:
        """Return the function that returns, by a row's number, the interval of its window in ticks and its group."""

        def window_of_row(row: int) -> tuple[tuple[int, int], dict[str, Any]]:
            window = windows.slice(row, 1)
            start, end = intervals(window)
            return (int(start[0]), int(end[0])), next(iter(python_rows(groups(window))), {})

        return window_of_row

    return of_rows


def merge_aggregations(partials: Iterable[MergeableColumns]) -> dict[str, tuple[str, str]]:
    """Return the aggregations, for a group by, of the number of events and of columns that Arrow can merge."""
    columns = {COUNT: "sum"}
    for partial in partials:
        columns |= partial.grouped
    return {name: (name, how) for name, how in columns.items()}


def net_partial_rows(table: pa.Table, by: Sequence[str], partials: Sequence[Partial]) -> pa.Table:
    """Return values with weights summed up over equal ``by`` and values, without those that cancel out.

    Columns of exact partials are summed up, too; only the value columns of the others are compared. A row is left out if its
    weight and all its sums are 0.
    """
    sums = merge_aggregations(partial for partial in partials if partial.exact)
    groups = group(
        table, [*by, *(name for partial in partials if not partial.exact for name in partial.value_columns)], sums
    )
    left = pc.not_equal(groups.column(COUNT), 0)
    for name in sums:
        values = groups.column(name)
        left = pc.or_(left, pc.fill_null(pc.not_equal(values, pa.scalar(0, values.type)), False))
    return groups.filter(left)


@dataclass(frozen=True)
class MergedWindows:
    """Partial results merged per window: rows of keys, ``__i``, ``__n`` and the columns of ``partials``, which are no values yet.

    A sum may be wider than its type here: it overflows only in a window of which somebody reads it.
    """

    rows: pa.Table
    partials: Sequence[MergeableColumns]

    def in_order(self, by: Sequence[str]) -> MergedWindows:
        return replace(self, rows=self.rows.sort_by([(name, "ascending") for name in by]))

    def finished(self, is_asked: Mask | None = None, place: Callable[[pa.Table], RowWindow] | None = None) -> pa.Table:
        """Return the rows with values, which cannot be merged again, instead of partial results.

        The values of windows that are not asked for are NULL. ``place`` gives errors the window and group of a row.
        """
        are_all = is_asked is None or bool(is_asked.all())
        rows = self.rows if are_all else self.rows.filter(pa.array(is_asked))
        for partial in self.partials:
            rows = partial.finished(rows, no_row_window if place is None else place(rows))
        values = rows.select([name for partial in self.partials for name in partial.columns])
        if is_asked is not None and not are_all:
            values = values.take(pa.array(np.cumsum(is_asked) - 1, mask=~is_asked))
        keys = self.rows.column_names[: self.rows.column_names.index(COUNT) + 1]
        columns = [*self.rows.select(keys).columns, *values.columns]
        return pa.table(columns, names=[*keys, *values.column_names])


def merge_by_window(
    table: pa.Table,
    low: Ints,
    high: Ints,
    by: Sequence[str],
    partials: Sequence[MergeableColumns],
    explode_rows: int = EXPLODE_ROWS,
    in_any_order: bool = False,
) -> MergedWindows:
    """Merge partial results over ranges ``low..high`` of windows (none empty) per window: ``by``, ``__i``, ``__n``, the partials.

    A window without members has no row. If there would be more than ``explode_rows`` copies, and more than four per range, ranges
    are cut into dyadic nodes. If Arrow cannot merge some columns (states of a user's code), that begins with fewer copies, and
    rows of equal ranges are merged before; so they are, beyond four copies per range, if results are the same ``in_any_order``.
    Cost: O(n log n) in partials and windows, however long the ranges are.
    """
    table, partials = merging_forms(table, partials)
    are_states = bool(_not_in_arrow(partials))
    few = min(EXPLODE_STATES, explode_rows) if are_states else explode_rows
    if are_states or (in_any_order and _copies(low, high) > 4 * len(low)):
        ranged = with_column(with_column(table, LOW, low), HIGH, high)
        ranged = _merged_rows(ranged, [*by, LOW, HIGH], partials)
        low, high = ints(ranged, LOW), ints(ranged, HIGH)
        table = ranged.drop_columns([LOW, HIGH])
        for partial in partials:
            table = partial.shared(table)
    by = [*by, INDEX]
    if _copies(low, high) <= max(few, 4 * len(low)):
        which, index = expand_ranges(low, high)
        windows = _merged_rows(with_column(table.take(pa.array(which)), INDEX, index), by, partials)
    else:
        windows = _dyadic(table, low, high, by, partials)
    others = [name for name in windows.column_names if name not in (*by, COUNT)]
    windows = windows.select([*by, COUNT, *others])
    return MergedWindows(windows.filter(pc.greater(windows.column(COUNT), 0)), partials)


def _copies(low: Ints, high: Ints) -> float:
    """Return the number of windows of all ranges together, which may exceed int64."""
    return float(np.sum((high - low + 1).astype(np.float64)))


def _dyadic(
    table: pa.Table, low: Ints, high: Ints, by: Sequence[str], partials: Sequence[MergeableColumns]
) -> pa.Table:
    """Return partial results merged per window, with its number in ``__i``, from ranges cut into nodes of 2^rank windows.

    Nodes are merged from the greatest rank down to single windows. Windows whose number of members is 0 are included.
    """
    base = int(low.min())
    row, rank, node = dyadic_nodes(low - base, high - base)
    windows: pa.Table | None = None
    for one in range(int(rank.max()), -1, -1):
        is_one = rank == one
        at = with_column(table.take(pa.array(row[is_one])), INDEX, node[is_one])
        if windows is not None:
            twice = windows.take(pa.array(np.repeat(np.arange(windows.num_rows), 2)))
            index = np.repeat(ints(windows, INDEX) * 2, 2) + np.tile([0, 1], windows.num_rows)
            at = concat([at, with_column(twice, INDEX, index).select(at.column_names)])
        windows = _merged_rows(at, by, partials)
    assert windows is not None
    return with_column(windows, INDEX, ints(windows, INDEX) + base)


def dyadic_nodes(low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """Cut ranges ``low..high`` into nodes, the fewest that do not overlap: the range's place, and a node's rank and number.

    Node i of a rank consists of the windows from ``i << rank`` up to ``(i + 1) << rank``.
    """
    parts: list[tuple[Ints, Ints, Ints]] = []
    rows, a, b, rank = np.arange(len(low)), low, high + 1, 0
    while len(rows):
        odd = (a & 1 == 1) & (a < b)
        parts.append((rows[odd], np.full(int(odd.sum()), rank), a[odd]))
        a = a + odd
        odd = (b & 1 == 1) & (a < b)
        b = b - odd
        parts.append((rows[odd], np.full(int(odd.sum()), rank), b[odd]))
        a, b, rank = a >> 1, b >> 1, rank + 1
        going = a < b
        a, b, rows = a[going], b[going], rows[going]
    nothing = np.zeros(0, np.int64)
    row, ranks, node = (
        (np.concatenate([nothing, *columns]) for columns in zip(*parts, strict=True)) if parts else [nothing] * 3
    )
    return row, ranks, node


class TouchedWindows:
    """Windows by key: at least one, each once."""

    def __init__(self, rows: pa.Table, keys: Sequence[str]):
        """``rows`` have the ``keys`` and INDEX, each row once."""
        self.rows, self.keys = rows, list(keys)
        self.index = ints(rows, INDEX)
        self._hashes: GroupHashes | None = None

    @staticmethod
    def of_ranges(rows: pa.Table, keys: Sequence[str], low: Ints, high: Ints) -> TouchedWindows | None:
        """Return the windows ``low..high`` of each row's key, which may be empty ranges; None if all are."""
        inside = low <= high
        if not inside.any():
            return None
        which, index = expand_ranges(low[inside], high[inside])
        windows = rows.select(list(keys)).filter(pa.array(inside)).take(pa.array(which)) if keys else None
        windows = pa.table({INDEX: index}) if windows is None else with_column(windows, INDEX, index)
        return TouchedWindows(group(windows, [*keys, INDEX], {}), keys)

    @staticmethod
    def of_all(some: Sequence[TouchedWindows | None]) -> TouchedWindows | None:
        """Return all of some windows, each once; None if there are none."""
        parts = [windows for windows in some if windows is not None]
        if len(parts) < 2:
            return parts[0] if parts else None
        keys = parts[0].keys
        return TouchedWindows(group(concat([one.rows for one in parts]), [*keys, INDEX], {}), keys)

    def up_to(self, last: int) -> TouchedWindows | None:
        """Return the windows up to ``last``; None if there are none."""
        rows = self.rows.filter(pc.less_equal(self.rows.column(INDEX), last))
        return TouchedWindows(rows, self.keys) if rows.num_rows else None

    def are_among(self, first: int, last: int) -> bool:
        """Return True if one of the windows is among ``first..last``."""
        return bool(((self.index >= first) & (self.index <= last)).any())

    def hashes(self, first: int, last: int) -> GroupHashes:
        """Return the hashes of the groups with windows among ``first..last``, each once and in order."""
        if self._hashes is None:
            self._hashes = with_hashes(self.rows, self.keys).column(HASH).to_numpy()
        return distinct(self._hashes[(self.index >= first) & (self.index <= last)])

    def has(self, rows: pa.Table) -> Mask:
        """Mark the rows, with keys and INDEX, that are of one of the windows."""
        return is_matching(rows, self.rows, [*self.keys, INDEX])

    def places(self, partials: pa.Table, low: Ints, high: Ints) -> tuple[TouchedWindows, Ints, Ints]:
        """Return the windows in order of groups, and the places in it of those that each range of windows of a group covers.

        These are ``first..last``; first > last: the range covers none. ``partials`` have the keys, ``low`` and ``high`` are their
        ranges.
        """
        number = np.zeros(len(self.index) + len(low), np.int64)
        if self.keys:
            mine = self.rows.select(self.keys)
            number, _ = codes(concat([mine, partials.select(self.keys).cast(mine.schema)]), self.keys)
        mine_of, of_range = np.split(number, [len(self.index)])
        steps = distinct(self.index)
        place = mine_of * (len(steps) + 1) + np.searchsorted(steps, self.index)
        order = np.argsort(place)
        place, of_range = place[order], of_range * (len(steps) + 1)
        first = np.searchsorted(place, of_range + np.searchsorted(steps, low))
        last = np.searchsorted(place, of_range + np.searchsorted(steps, high, "right")) - 1
        return TouchedWindows(self.rows.take(pa.array(order)), self.keys), first, last
