"""Partial results of aggregates: what one event gives, how partials merge, and what ranges of windows make of each window.

DataCell's basic windows: a partial result is computed once and merged into every window that holds it. A range of windows is
copied into its windows while those are few, or else cut into dyadic nodes, of which each window merges log2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.columnar import codes, concat, group, ints, narrowed, negated, runs, with_column
from streamq.runtime.values import Ints, sortable, unsortable

INDEX, COUNT = "__i", "__n"
"""A window's number, and how many members it has."""

EXPLODE_ROWS = 500_000
"""Copies of partials beyond which ranges are cut into dyadic nodes instead of being copied into every window."""

_MOMENTS = {
    "moments": (("mean",), {"m2": ("mean", "mean")}),
    "comoments": (("x", "y"), {"xx": ("x", "x"), "yy": ("y", "y"), "xy": ("x", "y")}),
}
"""Kinds of moments: their means, and sums of products of the deviations from two of those."""


@dataclass(frozen=True)
class SlotSpec:
    """A partial result: see ``Slot`` in the compiler; ``type`` is the Arrow type of its value.

    arg: the column of raw events it is made from; several slots may share one. Beside the compiler's kinds there is
    comoments: counts, means, squares and products of deviations of two columns, given as such.
    """

    name: str
    kind: str
    exact: bool
    type: pa.DataType
    arg: str

    @property
    def sortable(self) -> bool:
        """Whether min and max are of numbers that stand for the values: Arrow sorts floats otherwise, intervals not at all."""
        return self.kind in ("min", "max") and (pa.types.is_floating(self.type) or pa.types.is_duration(self.type))

    @property
    def columns(self) -> list[str]:
        """The columns it has in results."""
        if self.kind == "sum":
            return [self.name, f"{self.name}__n"]
        if self.kind in _MOMENTS:
            means, products = _MOMENTS[self.kind]
            return [f"{self.name}__{part}" for part in ("n", *means, *products)]
        return [self.name]

    def of_events(self, table: pa.Table, merges: bool = True) -> dict[str, Any]:
        """The partial results of single events with their weights ``__n``.

        merges: they are there to be merged; else those that can't be taken back out again stay values.
        """
        values, weight = table.column(self.arg), table.column(COUNT)
        present = pc.cast(values.is_valid(), pa.int64())
        if self.kind == "count":
            return {self.name: pc.multiply(present, weight)}
        if self.kind == "sum" and self.exact:
            values = values.cast(self.type)
            if not merges:
                opposite = negated(values)
                values = pc.if_else(pc.less(weight, 0), opposite, values.cast(opposite.type))
            return {self.name: values, f"{self.name}__n": pc.multiply(present, weight)}
        if not merges:
            return {self.name: values}
        if self.kind in ("min", "max"):
            return {self.name: sortable(values) if self.sortable else values}
        if self.kind == "sum":
            return {self.name: values, f"{self.name}__n": present}
        zeros = pa.array(np.zeros(len(values)))
        return {f"{self.name}__n": present, f"{self.name}__mean": pc.fill_null(values, 0.0), f"{self.name}__m2": zeros}

    def weighted(self, table: pa.Table) -> pa.Table:
        """Values with weights (see :meth:`of_events`) as partial results that merge."""
        if self.exact:
            return table
        weight = table.column(COUNT)
        nothing = pa.scalar(None, table.schema.field(self.name).type)
        values = pc.if_else(pc.greater(weight, 0), table.column(self.name), nothing)
        present = pc.if_else(pc.is_valid(values), weight, 0)
        if self.kind == "sum":
            table = with_column(table, self.name, pc.multiply(values, weight.cast(pa.float64())))
            return with_column(table, f"{self.name}__n", present)
        if self.kind == "moments":
            table = table.drop_columns([self.name])
            table = with_column(table, f"{self.name}__n", present)
            table = with_column(table, f"{self.name}__mean", pc.fill_null(values.cast(pa.float64()), 0.0))
            return with_column(table, f"{self.name}__m2", pa.array(np.zeros(table.num_rows)))
        return with_column(table, self.name, sortable(values) if self.sortable else values)


def exact_sums(slots: Sequence[SlotSpec]) -> dict[str, tuple[str, str]]:
    """What is simply added up: the number of members, counts and exact sums."""
    made = {COUNT: (COUNT, "sum")}
    for slot in slots:
        if slot.exact:
            made |= {name: (name, "sum") for name in slot.columns}
    return made


def merged(table: pa.Table, by: Sequence[str], slots: Sequence[SlotSpec]) -> pa.Table:
    """Partial results of equal ``by`` as one, the same columns."""
    made = exact_sums(slots)
    moments = []
    for slot in slots:
        if slot.exact:
            continue
        if slot.kind in _MOMENTS:
            moments.append(slot)
        else:
            made[slot.name] = (slot.name, slot.kind)
            if slot.kind == "sum":
                made[f"{slot.name}__n"] = (f"{slot.name}__n", "sum")
    if not moments:
        return group(table, by, made)
    number, first = codes(table, by)
    found = group(with_column(table, "__g", number), ["__g"], made)
    at = ints(found, "__g")
    columns: dict[str, Any] = {name: table.column(name).take(pa.array(first[at])) for name in by}
    columns |= {name: found.column(name) for name in made}
    for slot in moments:
        columns |= _merged_moments(slot, table, number, at)
    return pa.table(columns)


def _merged_moments(slot: SlotSpec, table: pa.Table, number: Ints, at: Ints) -> dict[str, Any]:
    # pairwise (Chan): deviations from the common means are added, nothing is subtracted from a sum of squares
    means, products = _MOMENTS[slot.kind]
    n = ints(table, f"{slot.name}__n").astype(np.float64)
    made = {}
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        total = _totals(number, n)
        away = {}
        for name in means:
            mean = table.column(f"{slot.name}__{name}").to_numpy()
            # by their distance from one of them, so that equal means have no spread, not even by rounding
            near = np.zeros(len(total))
            near[number[n > 0]] = np.where(np.isfinite(mean), mean, 0.0)[n > 0]
            common = near + np.where(total > 0, _totals(number, n * (mean - near[number])) / np.maximum(total, 1), 0.0)
            made[name], away[name] = common[at], mean - common[number]
        for name, (a, b) in products.items():
            apart = np.where(n > 0, n * away[a] * away[b], 0.0)
            made[name] = _totals(number, table.column(f"{slot.name}__{name}").to_numpy() + apart)[at]
    made["n"] = total[at].astype(np.int64)
    return {f"{slot.name}__{part}": values for part, values in made.items()}


def _totals(number: Ints, values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    # of nothing at all, bincount makes integers
    return np.bincount(number, values).astype(np.float64)


def netted(table: pa.Table, by: Sequence[str], slots: Sequence[SlotSpec]) -> pa.Table:
    """Values with weights of equal ``by`` and equal values as one row, and none where nothing is left."""
    sums = exact_sums(slots)
    found = group(table, [*by, *(s.name for s in slots if not s.exact)], sums)
    left = pc.not_equal(found.column(COUNT), 0)
    for name in sums:
        values = found.column(name)
        left = pc.or_(left, pc.fill_null(pc.not_equal(values, pa.scalar(0, values.type)), False))
    return found.filter(left)


def over_windows(
    partials: pa.Table,
    low: Ints,
    high: Ints,
    by: Sequence[str],
    slots: Sequence[SlotSpec],
    explode_rows: int = EXPLODE_ROWS,
) -> pa.Table:
    """Partial results over ranges ``low..high`` of windows (none empty), merged a window: ``by``, ``__i``, ``__n``, the slots.

    A window without members has no row. Where there would be more than ``explode_rows`` copies, and more than four a range,
    ranges are cut into dyadic nodes. Cost: O(n log n) in partials and windows, however long the ranges are.
    """
    by = [*by, INDEX]
    if float(np.sum((high - low + 1).astype(np.float64))) <= max(explode_rows, 4 * len(low)):
        which, index = runs(low, high)
        found = merged(with_column(partials.take(pa.array(which)), INDEX, index), by, slots)
    else:
        found = _dyadic(partials, low, high, by, slots)
    found = found.filter(pc.greater(found.column(COUNT), 0))
    for slot in slots:
        if slot.kind == "sum":
            none = pc.equal(found.column(f"{slot.name}__n"), 0)
            values = narrowed(found.column(slot.name), slot.type)
            found = with_column(found, slot.name, pc.if_else(none, pa.scalar(None, slot.type), values))
        elif slot.sortable:
            found = with_column(found, slot.name, unsortable(found.column(slot.name), slot.type))
    return found.select([*by, COUNT, *(n for s in slots for n in s.columns)])


def _dyadic(rest: pa.Table, low: Ints, high: Ints, by: Sequence[str], slots: Sequence[SlotSpec]) -> pa.Table:
    """Ranges cut into nodes of 2^level windows, merged node by node from the top down to single windows."""
    base = int(low.min())
    a, b = low - base, high - base + 1
    levels: list[list[pa.Table]] = []
    rows = np.arange(len(a))
    while len(rows):
        at: list[pa.Table] = []
        odd = (a & 1 == 1) & (a < b)
        at.append(with_column(rest.take(pa.array(rows[odd])), INDEX, a[odd]))
        a = a + odd
        odd = (b & 1 == 1) & (a < b)
        b = b - odd
        at.append(with_column(rest.take(pa.array(rows[odd])), INDEX, b[odd]))
        levels.append(at)
        a, b = a >> 1, b >> 1
        going = a < b
        a, b, rows = a[going], b[going], rows[going]
    found: pa.Table | None = None
    for at in reversed(levels):
        if found is not None:
            twice = found.take(pa.array(np.repeat(np.arange(found.num_rows), 2)))
            index = np.repeat(ints(found, INDEX) * 2, 2) + np.tile([0, 1], found.num_rows)
            at = [*at, with_column(twice, INDEX, index).select(at[0].column_names)]
        found = merged(concat(at), by, slots)
    assert found is not None
    return with_column(found, INDEX, ints(found, INDEX) + base)
