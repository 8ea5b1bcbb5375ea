"""Aggregates that have no partial results to merge, over groups of rows, in Arrow and numpy, with Spark's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from streamq.errors import StreamqError, sentence
from streamq.runtime.arrow_casts import quotient
from streamq.runtime.arrow_types import Refused
from streamq.runtime.columnar import codes, runs
from streamq.runtime.overlap import covered
from streamq.runtime.partial import COUNT, PartialComoments, PartialMax, PartialMin, PartialSum
from streamq.runtime.partials import INDEX, over_windows
from streamq.runtime.values import Ints, Mask, ranks

Floats = np.ndarray[Any, np.dtype[np.float64]]

ADDING = frozenset(("covar", "covar_pop", "corr", "time_weighted_avg"))
"""Kinds that add up floats."""


@dataclass(frozen=True)
class Reduction:
    """A result column over columns ``args`` of all rows of a group.

    kind: avg (of decimals), count_distinct, covar, covar_pop, corr, first, last, percentile, collect, time_weighted_avg,
    window_start, window_end.
    ``where`` is a column of booleans that filters rows; ``type`` the result's.
    """

    name: str
    kind: str
    args: tuple[str, ...] = ()
    type: pa.DataType | None = None
    where: str | None = None
    options: tuple[float | int | str, ...] = ()


@dataclass(frozen=True)
class Spanned:
    """Rows that lie in groups ``first .. last`` each, of the groups 0 .. n - 1, none empty.

    place: where each row stands in the order of which first, last and collected values are taken, if one is asked for; lasts:
    how long members (row, group) count for a time-weighted mean, in ticks; window: each group's interval.
    """

    rows: pa.Table
    first: Ints
    last: Ints
    n: int
    place: Ints | None
    lasts: Callable[[Ints, Ints], Floats]
    window: tuple[Ints, Ints]


@dataclass(frozen=True)
class Grouped:
    """Members, copied: rows with their group's number, in order; lasts: how long each counts."""

    rows: pa.Table
    number: Ints
    n: int
    order: Ints
    lasts: Floats
    window: tuple[Ints, Ints]


def reduced(found: Spanned, reductions: Sequence[Reduction]) -> dict[str, pa.Array]:
    """The result columns, a value a group. Members are copied into their groups only for what can't do without."""
    made: dict[str, pa.Array] = {}
    grouped: Grouped | None = None
    for one in reductions:
        if one.kind in _OVER_RANGES:
            made[one.name] = _OVER_RANGES[one.kind](found, one)
        else:
            grouped = grouped or _copied(found)
            made[one.name] = _OVER_MEMBERS[one.kind](grouped, one)
    return made


def _copied(found: Spanned) -> Grouped:
    row, number = runs(found.first, found.last)
    order = np.arange(len(row)) if found.place is None else np.argsort(found.place[row], kind="stable")
    rows = found.rows.take(pa.array(row))
    return Grouped(rows, number, found.n, order, found.lasts(row, number), found.window)


def _passed(found: Spanned | Grouped, one: Reduction) -> Mask:
    if one.where is None:
        return np.ones(found.rows.num_rows, bool)
    return np.asarray(pc.fill_null(found.rows.column(one.where), False).to_numpy(), bool)


def _floats(column: Any) -> tuple[Floats, np.ndarray[Any, np.dtype[np.bool_]]]:
    array = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).cast(pa.float64())
    there = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), bool)
    return array.fill_null(0.0).to_numpy(zero_copy_only=False), there


# over ranges of groups: O(n log n) in rows and groups, however many rows a group has


def _edge(found: Spanned, one: Reduction) -> pa.Array:
    """The first or last place among the rows that count, merged over the ranges."""
    assert found.place is not None
    kind = PartialMin if one.kind == "first" else PartialMax
    at = pa.array(found.place, mask=~_passed(found, one))
    table = pa.table({COUNT: np.ones(len(found.place), np.int64), "at": at})
    best = over_windows(table, found.first, found.last, (), [kind("at", "at", t.LongType())])
    best = best.sort_by(INDEX).column("at").combine_chunks()
    row = np.zeros(int(found.place.max(initial=0)) + 1, np.int64)
    row[found.place] = np.arange(len(found.place))
    values = found.rows.column(one.args[0]).combine_chunks()
    return values.take(pa.array(row[best.fill_null(0).to_numpy()], mask=best.is_null().to_numpy(zero_copy_only=False)))


def _count_distinct(found: Spanned, one: Reduction) -> pa.Array:
    """Per value the stretches of groups that have it; how many of those hold a group."""
    column = found.rows.column(one.args[0])
    there = np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), bool)
    value = np.asarray(codes(pa.table({"v": column}), ["v"])[0], np.int64)[there]
    _, start, end = covered(value, found.first[there], found.last[there] + 1)
    change = np.bincount(start, minlength=found.n + 1) - np.bincount(end, minlength=found.n + 1)
    return pa.array(np.cumsum(change)[: found.n])


def _mean(found: Spanned, one: Reduction) -> pa.Array:
    """The exact mean of decimals, rounded half up to the digits of the result."""
    values = found.rows.column(one.args[0])
    total = PartialSum("p", "v", t.DecimalType(38, values.type.scale))
    table = pa.table({COUNT: np.ones(len(values), np.int64), "v": values})
    partials = pa.table({COUNT: table.column(COUNT), **total.of_events(table)})
    merged = over_windows(partials, found.first, found.last, (), [total]).sort_by(INDEX)
    assert one.type is not None
    to = t.DecimalType(one.type.precision, one.type.scale)
    sums = zip(merged.column("p").to_pylist(), merged.column("p__n").to_pylist(), strict=True)
    try:
        means = [None if whole is None else quotient(whole, Decimal(n), to) for whole, n in sums]
    except Refused as error:
        raise StreamqError(sentence("avg", f"overflow of {to.simpleString()}", "", "Cast to fewer digits.")) from error
    return pa.array(means, one.type)


def _percentile(found: Spanned, one: Reduction) -> pa.Array:
    """Spark's interpolation between the two values around the place that is asked for."""
    values, there = _floats(found.rows.column(one.args[0]))
    first, last = found.first[there], found.last[there]
    change = np.bincount(first, minlength=found.n + 1) - np.bincount(last + 1, minlength=found.n + 1)
    n = np.cumsum(change)[: found.n]
    if not len(first):
        return pa.nulls(found.n, pa.float64())
    # numpy sorts NaN behind everything, as Spark does; equal zeros are one value
    every, rank = np.unique(values[there], return_inverse=True)
    at = np.maximum(n - 1, 0) * float(one.options[0])
    low, high = np.floor(at).astype(np.int64), np.ceil(at).astype(np.int64)
    below, above = (every[_ranked(rank.reshape(-1), first, last, place, len(every))] for place in (low, high))
    with np.errstate(all="ignore"):
        between = below + (above - below) * (at - low)
    exact = (low == high) | (below == above)
    return pa.array(np.where(exact, below, between), mask=n == 0)


def _ranked(rank: Ints, first: Ints, last: Ints, place: Ints, top: int) -> Ints:
    """Per group the rank of its member at ``place`` in ascending order, bit by bit: how many have a 0 there decides."""
    group, found = np.arange(len(place)), np.zeros(len(place), np.int64)
    wide = len(place) + 1
    for bit in range(max(top - 1, 0).bit_length() - 1, -1, -1):
        kept = rank >> bit
        begun, ended = np.sort(kept * wide + first), np.sort(kept * wide + last + 1)
        zero = (found >> bit) * wide
        here = (
            np.searchsorted(begun, zero + group, "right")
            - np.searchsorted(begun, zero, "left")
            - np.searchsorted(ended, zero + group, "right")
            + np.searchsorted(ended, zero, "left")
        )
        one = place >= here
        place = np.where(one, place - here, place)
        found = found | (one.astype(np.int64) << bit)
    return np.minimum(found, top - 1)


def _paired(found: Spanned, one: Reduction) -> pa.Array:
    """From the merged squares and products of deviations of two columns."""
    x, x_there = _floats(found.rows.column(one.args[0]))
    y, y_there = _floats(found.rows.column(one.args[1]))
    there = x_there & y_there
    x, y = np.where(there, x, 0.0), np.where(there, y, 0.0)
    none = np.zeros(len(x))
    parts = {"n": there.astype(np.int64), "x": x, "y": y, "xx": none, "yy": none, "xy": none}
    table = pa.table({COUNT: np.ones(len(x), np.int64), **{f"p__{name}": values for name, values in parts.items()}})
    comoments = PartialComoments("p")
    merged = over_windows(table, found.first, found.last, (), [comoments]).sort_by(INDEX)
    n, xx, yy, both = (merged.column(f"p__{name}").to_numpy().astype(np.float64) for name in ("n", "xx", "yy", "xy"))
    least = 1 if one.kind == "covar_pop" else 2
    with np.errstate(all="ignore"):
        if one.kind == "corr":
            # without spread on either side there is no correlation
            value, n = both / np.sqrt(xx * yy), np.where((xx == 0) | (yy == 0), 0, n)
        else:
            value = both / (n - 1 if one.kind == "covar" else n)
    return pa.array(value, mask=n < least)


def _bound(found: Spanned, one: Reduction) -> pa.Array:
    return pa.array(found.window[0 if one.kind == "window_start" else 1]).cast(one.type)


# over copied members


def _collect(found: Grouped, one: Reduction) -> pa.Array:
    values = found.rows.column(one.args[0]).combine_chunks()
    there = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), bool)
    order = found.order[(_passed(found, one) & there)[found.order]]
    ends = np.cumsum(np.bincount(found.number[order], minlength=found.n))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    by_group = order[np.argsort(found.number[order], kind="stable")]
    made = pa.ListArray.from_arrays(offsets, values.take(pa.array(by_group)))
    return made if one.type is None else made.cast(one.type)


def _time_weighted(found: Grouped, one: Reduction) -> pa.Array:
    values, there = _floats(found.rows.column(one.args[0]))
    some = np.bincount(found.number[there], minlength=found.n) > 0
    start, end = (w.astype(np.float64) for w in found.window)
    with np.errstate(all="ignore"):
        weighted = np.bincount(found.number[there], (values * found.lasts)[there], found.n)
        return pa.array(weighted / (end - start), mask=~some)


_OVER_RANGES: dict[str, Callable[[Spanned, Reduction], pa.Array]] = {
    "first": _edge,
    "last": _edge,
    "avg": _mean,
    "count_distinct": _count_distinct,
    "percentile": _percentile,
    "covar": _paired,
    "covar_pop": _paired,
    "corr": _paired,
    "window_start": _bound,
    "window_end": _bound,
}
_OVER_MEMBERS: dict[str, Callable[[Grouped, Reduction], pa.Array]] = {
    "collect": _collect,
    "time_weighted_avg": _time_weighted,
}


def payload_order(table: pa.Table, names: Sequence[str], le: Ints, re: Ints) -> Ints:
    """Rows in the order of (LE, payload, RE): what first, last and collected values go by."""
    return np.lexsort((re, *reversed(ranks(table, names)), le))
