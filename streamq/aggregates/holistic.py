"""Aggregates that need all events of a window: ``percentile`` and ``median``, ``count_distinct``, ``collect``; and lifetimes.

``time_weighted_avg``, and ``sq.window_start()`` and ``sq.window_end()``, read lifetimes and windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType

from streamq.aggregates.basic import COUNT, apply_aggregate, as_doubles, check_numbers
from streamq.errors import PlanError, check_keywords
from streamq.plan.aggregate import (
    Aggregate,
    AggregateFunction,
    Application,
    Computation,
    Drawing,
    Options,
    Rounding,
    SparkMembers,
)
from streamq.plan.expr import Expr, show
from streamq.plan.partial import (
    CopiedMembers,
    Ints,
    MemberReduction,
    RangedMembers,
    RangeReduction,
    ReducedColumn,
    Reduction,
    floats,
)
from streamq.plan.schema import check_key
from streamq.runtime.arrow.columnar import codes
from streamq.runtime.arrow.overlap import union_of_pieces
from streamq.runtime.partials.exact_sums import DoubleSums

HALF = (0.5,)


@dataclass(frozen=True)
class PercentileReduction(RangeReduction):
    """Spark's linear interpolation between the two values around the requested rank."""

    def over_ranges(self, members: RangedMembers) -> pa.Array:
        """Return the percentile of each window, NULL over no value."""
        values, is_there = floats(members.rows.column(self.column.args[0]))
        first, last, number = members.first[is_there], members.last[is_there], members.number[is_there]
        begun, ended = (np.bincount(at, number, members.n + 1) for at in (first, last + 1))
        n = np.cumsum(begun - ended)[: members.n].astype(np.int64)
        if not len(first):
            return pa.nulls(members.n, pa.float64())
        # numpy sorts NaN behind everything, as Spark does; equal zeros are one value
        every, rank = np.unique(values[is_there], return_inverse=True)
        at = np.maximum(n - 1, 0) * float(self.column.options[0])
        low, high = np.floor(at).astype(np.int64), np.ceil(at).astype(np.int64)
        rank = rank.reshape(-1)
        below, above = (every[_ranked(rank, first, last, number, place, len(every))] for place in (low, high))
        with np.errstate(all="ignore"):
            between = below + (above - below) * (at - low)
        is_exact = (low == high) | (below == above)
        return pa.array(np.where(is_exact, below, between), mask=n == 0)


def _ranked(rank: Ints, first: Ints, last: Ints, number: Ints, place: Ints, top: int) -> Ints:
    """Return for each window the rank of its member at ``place`` in ascending order, found bit by bit: zeros are counted.

    ``rank``, ``first`` and ``last`` are the rank and the range of windows of ``number`` members; ranks are below ``top``.
    """
    several = None if (number == 1).all() else number
    window, prefix = np.arange(len(place)), np.zeros(len(place), np.int64)
    wide = len(place) + 1
    for bit in range(max(top - 1, 0).bit_length() - 1, -1, -1):
        high_bits = rank >> bit
        begun, ended = (_RangeTotals(high_bits * wide + at, several) for at in (first, last + 1))
        zero = (prefix >> bit) * wide
        here = begun.totals(zero, zero + window) - ended.totals(zero, zero + window)
        is_one = place >= here
        place = np.where(is_one, place - here, place)
        prefix = prefix | (is_one.astype(np.int64) << bit)
    return np.minimum(prefix, top - 1)


class _RangeTotals:
    """The totals of ``numbers`` at places in a range; None: each number is 1, and it is enough to sort the places ``at``."""

    def __init__(self, at: Ints, numbers: Ints | None):
        order = None if numbers is None else np.argsort(at)
        self.at = np.sort(at) if order is None else at[order]
        self.before = None if numbers is None else np.concatenate([[0], np.cumsum(numbers[order])])

    def totals(self, first: Ints, last: Ints) -> Ints:
        """Return the totals from ``first`` to ``last``, both included."""
        upto, since = np.searchsorted(self.at, last, "right"), np.searchsorted(self.at, first, "left")
        totals: Ints = upto - since if self.before is None else self.before[upto] - self.before[since]
        return totals


class Percentile(AggregateFunction):
    """The exact percentile, linearly interpolated; its option is the fraction."""

    name = "percentile"
    of_values = True
    drawing = Drawing(options=((0.0,), (0.25,), HALF, (0.9,), (1.0,)))

    def result(self, of: Application) -> DataType:
        check_numbers(of)
        return DoubleType()

    def operands(self, of: Application) -> tuple[Expr, ...]:
        return as_doubles(of)

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return PercentileReduction(column)

    def on_spark(self, members: SparkMembers) -> Column | None:
        return F.percentile(members.values[0].cast("double"), F.lit(float(members.options[0])))

    def builder(self, options: Options) -> tuple[str, Options]:
        return ("median", ()) if options == HALF else (self.name, options)


PERCENTILE = Percentile()


@check_keywords
def median(column: Any, *, where: Any = None) -> Aggregate:
    """The median, between two values their mean; NULL over no values; double.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(m=sq.median("v")).show()
      m  start  end
    3.0      0    5
    """
    return percentile(column, *HALF, where=where)


@check_keywords
def percentile(column: Any, fraction: float, *, where: Any = None) -> Aggregate:
    """The exact percentile, linearly interpolated; ``fraction`` from 0 to 1; NULL over no values; double.

    Raises PlanError for another fraction.

    >>> import streamq as sq
    >>> w = sq.events([(i, i + 1, {"v": i}) for i in range(5)]).tumbling_window(5)
    >>> w.select(p=sq.percentile("v", 0.9)).show()
      p  start  end
    3.6      0    5
    """
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        raise PlanError("percentile", "the fraction lies between 0 and 1", f"found {fraction!r}")
    return apply_aggregate(PERCENTILE, column, where=where, options=(float(fraction),))


@dataclass(frozen=True)
class DistinctReduction(RangeReduction):
    """Counts, for each window, the values whose ranges of windows contain it; the ranges of one value are merged before."""

    def over_ranges(self, members: RangedMembers) -> pa.Array:
        """Return the number of different values of each window, 0 if it has only NULLs; a combination with a NULL is none."""
        columns = pa.table({f"v{i}": members.rows.column(name) for i, name in enumerate(self.column.args)})
        is_there = np.ones(columns.num_rows, bool)
        for column in columns.columns:
            is_there &= np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), bool)
        value = np.asarray(codes(columns, columns.column_names)[0], np.int64)[is_there]
        _, start, end = union_of_pieces(value, members.first[is_there], members.last[is_there] + 1)
        change = np.bincount(start, minlength=members.n + 1) - np.bincount(end, minlength=members.n + 1)
        return pa.array(np.cumsum(change)[: members.n])


class CountDistinct(AggregateFunction):
    """The number of an argument's different values, or of the different combinations of several arguments' values."""

    name = spark_name = "count_distinct"
    of_values = True
    drawing = Drawing(
        any_type=True,
        more_arguments=1,
        exact_arguments=True,
        lifetimes=("end", "duration"),
        rounding=Rounding.OF_ARGUMENTS,
        computes=Computation.NOTHING,
    )

    def result(self, of: Application) -> DataType:
        for arg, kind in zip(of.args, of.types, strict=True):
            check_key(kind, show(arg), self.name, "group")
        return LongType()

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return DistinctReduction(column)

    def of_firsts(self, is_first: Expr) -> Aggregate | None:
        return Aggregate(COUNT, (), is_first)


COUNT_DISTINCT = CountDistinct()


@check_keywords
def count_distinct(column: Any, *others: Any, where: Any = None) -> Aggregate:
    """The number of different values that are not NULL (NaN equals NaN, -0.0 equals 0.0); a bigint.

    With several columns the number of different combinations; a member with a NULL in one of them does not count.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3, "k": "a"}), (2, 3, {"v": 3, "k": "b"}), (4, 5, {"v": 5, "k": None})]).tumbling_window(5)
    >>> w.select(n=sq.count_distinct("v"), pairs=sq.count_distinct("v", "k")).show()
    n  pairs  start  end
    2      2      0    5
    """
    return apply_aggregate(COUNT_DISTINCT, column, *others, where=where)


@dataclass(frozen=True)
class ListReduction(MemberReduction):
    """The values that are not NULL, in order."""

    reads_lifetimes = True

    def over_members(self, members: CopiedMembers) -> pa.Array:
        """Return the list of each window's values that pass the filter, in the order of the members; an empty list for none."""
        values = members.rows.column(self.column.args[0]).combine_chunks()
        is_there = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), bool)
        order = members.order[(self.passes(members.rows) & is_there)[members.order]]
        ends = np.cumsum(np.bincount(members.number[order], minlength=members.n))
        offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
        by_window = order[np.argsort(members.number[order], kind="stable")]
        return pa.ListArray.from_arrays(offsets, values.take(pa.array(by_window))).cast(self.column.type)


class Collect(AggregateFunction):
    """The values of an argument that are not NULL, as an array."""

    name = "collect"
    ordered = True
    copies_members = True
    drawing = Drawing(any_type=True, lifetimes=("end", "end", "duration", "start"), computes=Computation.NOTHING)

    def result(self, of: Application) -> DataType:
        return ArrayType(of.types[0], False)

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return ListReduction(column)

    def on_spark(self, members: SparkMembers) -> Column | None:
        """Return the values that are not NULL, sorted in Spark by the order of the members; the filter is in the argument."""
        (value,) = members.values
        entry = F.struct(members.order().alias("at"), value.alias("value"))

        def compare(a: Column, b: Column) -> Column:
            # the values themselves may have no order in Spark
            return F.when(a["at"] < b["at"], -1).when(b["at"] < a["at"], 1).otherwise(0)

        return F.transform(
            F.array_sort(F.collect_list(F.when(value.isNotNull(), entry)), compare), lambda row: row["value"]
        )


COLLECT = Collect()


@check_keywords
def collect(column: Any, *, where: Any = None) -> Aggregate:
    """The values that are not NULL, as an array in the order of (start, payload).

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(all=sq.collect("v")).show()
          all  start  end
    [3, 1, 5]      0    5
    """
    return apply_aggregate(COLLECT, column, where=where)


@dataclass(frozen=True)
class TimeWeightedReduction(MemberReduction):
    """The sum of values times lifetimes, over the window's length."""

    reads_lifetimes = True

    weighs_lifetimes = True

    def over_members(self, members: CopiedMembers) -> pa.Array:
        """Return for each window the sum of value times lifetime, over its length; NULL if no member has a value."""
        values, is_there = floats(members.rows.column(self.column.args[0]))
        has_value = np.bincount(members.number[is_there], minlength=members.n) > 0
        start, end = (w.astype(np.float64) for w in members.window)
        with np.errstate(all="ignore"):
            weighted = DoubleSums.from_values(members.number[is_there], (values * members.lasts)[is_there], members.n)
            return pa.array(weighted.columns()[0] / (end - start), mask=~has_value)


class TimeWeightedAvg(AggregateFunction):
    """The mean of an argument's values, weighted by the time that their members live in the window."""

    name = "time_weighted_avg"
    timed = True
    copies_members = True
    drawing = Drawing(weight=3)

    def result(self, of: Application) -> DataType:
        """Return double; raise TypeMismatch if the argument is not a number."""
        check_numbers(of)
        return DoubleType()

    def operands(self, of: Application) -> tuple[Expr, ...]:
        """Return the argument as a double; lifetimes are no operands, because every member has one."""
        return as_doubles(of)

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        """Return the reduction of ``column`` that weights each value by its member's lifetime."""
        return TimeWeightedReduction(column)

    def on_spark(self, members: SparkMembers) -> Column | None:
        """Return the same quotient in Spark's functions, for the members of a window in a batch."""
        (le, re), (start, end) = members.lifetime(), members.window()
        lasts = F.greatest(re.cast("double") - le.cast("double"), F.lit(0.0))
        length = F.max(end).cast("double") - F.max(start).cast("double")
        return F.sum(members.values[0].cast("double") * lasts) / length


TIME_WEIGHTED_AVG = TimeWeightedAvg()


@check_keywords
def time_weighted_avg(column: Any, *, where: Any = None) -> Aggregate:
    """The sum of value times clipped lifetime over the length of the window: the load of ``cpu`` over the hour; double.

    It reads its members' lifetimes, cut as the window's ``clip_input`` says. A member whose value is NULL counts as 0;
    NULL if all are.

    >>> import streamq as sq
    >>> w = sq.events([(1, 3, {"v": 4}), (3, 9, {"v": 1})]).tumbling_window(5)
    >>> w.select(load=sq.time_weighted_avg("v")).show()
    load  start  end
     2.0      0    5
     0.8      5   10
    """
    return apply_aggregate(TIME_WEIGHTED_AVG, column, where=where)


@dataclass(frozen=True)
class BoundReduction(RangeReduction):
    """One of the two ends of the window."""

    is_start: bool

    def over_ranges(self, members: RangedMembers) -> pa.Array:
        return pa.array(members.window[0 if self.is_start else 1]).cast(self.column.type)


@dataclass(frozen=True)
class WindowEdge(AggregateFunction):
    """One of the two ends of the window that the members lie in."""

    name: str
    is_start: bool

    of_values = True
    drawing = Drawing(weight=0, arguments=0)

    reads_window = True

    def result(self, of: Application) -> DataType:
        return of.time_type

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return BoundReduction(column, self.is_start)

    def on_spark(self, members: SparkMembers) -> Column | None:
        return members.instant(F.max(members.window()[0 if self.is_start else 1]))


WINDOW_START, WINDOW_END = WindowEdge("window_start", True), WindowEdge("window_end", False)

WINDOW_EDGES = {"start": WINDOW_START, "end": WINDOW_END}
"""The aggregates by the end of the window that they return: ``start`` and ``end``."""
