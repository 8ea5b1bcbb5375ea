"""Aggregates over groups of rows, in Arrow and numpy, with Spark's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.columnar import sortable
from streamq.runtime.evaluators.spans import ranks
from streamq.runtime.overlap import Ints

GROUP = "__group"
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Reduction:
    """A result column over columns ``args`` of all rows of a group.

    kind: count_distinct, covar, covar_pop, corr, first, last, percentile, collect, time_weighted_avg, window_start, window_end.
    ``where`` is a column of booleans that filters rows; ``type`` the result's.
    """

    name: str
    kind: str
    args: tuple[str, ...] = ()
    type: pa.DataType | None = None
    where: str | None = None
    options: tuple[float | int | str, ...] = ()


@dataclass(frozen=True)
class Grouped:
    """Rows with a group number each (0 .. n - 1, every one occurs), in the order of which first and last values are taken.

    lasts: how long each row counts for a time-weighted mean, in ticks, if one is asked for; window: each group's interval.
    """

    rows: pa.Table
    number: Ints
    n: int
    order: Ints
    lasts: Floats | None
    window: tuple[Ints, Ints]


def reduced(found: Grouped, reductions: Sequence[Reduction]) -> dict[str, pa.Array]:
    """The result columns, a value a group."""
    made: dict[str, pa.Array] = {}
    for one in reductions:
        made |= _KINDS[one.kind](found, one)
    return made


def _floats(column: Any) -> tuple[Floats, np.ndarray[Any, np.dtype[np.bool_]]]:
    array = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).cast(pa.float64())
    there = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), bool)
    return array.fill_null(0.0).to_numpy(zero_copy_only=False), there


def _totals(found: Grouped, number: Ints, values: Floats) -> Floats:
    return np.bincount(number, values, found.n).astype(np.float64)


def _centred(found: Grouped, number: Ints, values: Floats, n: Floats) -> tuple[Floats, Floats]:
    with np.errstate(all="ignore"):
        mean = _totals(found, number, values) / n
        return mean, values - mean[number]


def _paired(found: Grouped, one: Reduction) -> dict[str, pa.Array]:
    x, x_there = _floats(found.rows.column(one.args[0]))
    y, y_there = _floats(found.rows.column(one.args[1]))
    there = x_there & y_there
    number, x, y = found.number[there], x[there], y[there]
    n = np.bincount(number, minlength=found.n).astype(np.float64)
    with np.errstate(all="ignore"):
        _, dx = _centred(found, number, x, n)
        _, dy = _centred(found, number, y, n)
        both = _totals(found, number, dx * dy)
        if one.kind == "corr":
            spread = np.sqrt(_totals(found, number, dx * dx) * _totals(found, number, dy * dy))
            # without spread there is no correlation
            value, least, n = both / spread, 2, np.where(spread == 0, 0, n)
        elif one.kind == "covar":
            value, least = both / (n - 1), 2
        else:
            value, least = both / n, 1
    return {one.name: pa.array(value, mask=n < least)}


def _count_distinct(found: Grouped, one: Reduction) -> dict[str, pa.Array]:
    values = found.rows.column(one.args[0]).combine_chunks()
    if pa.types.is_floating(values.type):
        values = sortable(pc.add(values, pa.scalar(0.0, values.type)))
    table = pa.table({GROUP: found.number, "v": values}).group_by([GROUP, "v"], use_threads=False).aggregate([])
    kept = table.filter(pc.is_valid(table.column("v")))
    return {one.name: pa.array(np.bincount(kept.column(GROUP).to_numpy(), minlength=found.n))}


def _chosen(found: Grouped, one: Reduction) -> Ints:
    """The rows that count, in order."""
    if one.where is None:
        return found.order
    passed = pc.fill_null(found.rows.column(one.where), False).to_numpy()
    return found.order[np.asarray(passed, bool)[found.order]]


def _edge(found: Grouped, one: Reduction) -> dict[str, pa.Array]:
    order = _chosen(found, one)
    if one.kind == "last":
        order = order[::-1]
    which, first = np.unique(found.number[order], return_index=True)
    place = np.full(found.n, -1)
    place[which] = order[first]
    values = found.rows.column(one.args[0]).combine_chunks()
    return {one.name: values.take(pa.array(np.maximum(place, 0), mask=place < 0))}


def _collect(found: Grouped, one: Reduction) -> dict[str, pa.Array]:
    order = _chosen(found, one)
    values = found.rows.column(one.args[0]).combine_chunks()
    order = order[np.asarray(values.is_valid().to_numpy(zero_copy_only=False), bool)[order]]
    ends = np.cumsum(np.bincount(found.number[order], minlength=found.n))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    by_group = order[np.argsort(found.number[order], kind="stable")]
    made = pa.ListArray.from_arrays(offsets, values.take(pa.array(by_group)))
    return {one.name: made if one.type is None else made.cast(one.type)}


def _percentile(found: Grouped, one: Reduction) -> dict[str, pa.Array]:
    values, there = _floats(found.rows.column(one.args[0]))
    number, values = found.number[there], values[there]
    # numpy sorts NaN behind everything, as Spark does
    order = np.lexsort((values, number))
    values = values[order]
    n = np.bincount(number, minlength=found.n)
    first = np.cumsum(n) - n
    at = np.maximum(n - 1, 0) * float(one.options[0])
    low = np.floor(at).astype(np.int64)
    high = np.ceil(at).astype(np.int64)
    if not len(values):
        return {one.name: pa.nulls(found.n, pa.float64())}
    place = np.minimum(first + low, len(values) - 1), np.minimum(first + high, len(values) - 1)
    below, above = values[place[0]], values[place[1]]
    with np.errstate(all="ignore"):
        between = below + (above - below) * (at - low)
    exact = (low == high) | (below == above)
    return {one.name: pa.array(np.where(exact, below, between), mask=n == 0)}


def _time_weighted(found: Grouped, one: Reduction) -> dict[str, pa.Array]:
    assert found.lasts is not None
    values, there = _floats(found.rows.column(one.args[0]))
    some = np.bincount(found.number[there], minlength=found.n) > 0
    start, end = (w.astype(np.float64) for w in found.window)
    with np.errstate(all="ignore"):
        weighted = _totals(found, found.number[there], (values * found.lasts)[there])
        return {one.name: pa.array(weighted / (end - start), mask=~some)}


def _bound(found: Grouped, one: Reduction) -> dict[str, pa.Array]:
    at = found.window[0 if one.kind == "window_start" else 1]
    return {one.name: pa.array(at).cast(one.type)}


_KINDS = {
    "covar": _paired,
    "covar_pop": _paired,
    "corr": _paired,
    "count_distinct": _count_distinct,
    "first": _edge,
    "last": _edge,
    "collect": _collect,
    "percentile": _percentile,
    "time_weighted_avg": _time_weighted,
    "window_start": _bound,
    "window_end": _bound,
}


def payload_order(table: pa.Table, names: Sequence[str], le: Ints, re: Ints) -> Ints:
    """Rows in the order of (LE, payload, RE): what first, last and collected values go by."""
    return np.lexsort((re, *reversed(ranks(table, names)), le))
