"""Aggregates that read lifetimes and windows: ``time_weighted_avg``, and ``sq.window_start()`` and ``sq.window_end()``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType

from streamq.aggregates.basic import apply_aggregate, as_doubles, check_numbers
from streamq.keywords import check_keywords
from streamq.plan.aggregate import Aggregate, AggregateFunction, Application, Drawing, SparkMembers
from streamq.plan.expr import Expr
from streamq.plan.partial import (
    CopiedMembers,
    MemberReduction,
    RangedMembers,
    RangeReduction,
    ReducedColumn,
    Reduction,
    floats,
)
from streamq.runtime.partials.exact_sums import DoubleSums


@dataclass(frozen=True)
class TimeWeightedReduction(MemberReduction):
    """The sum of values times lifetimes, over the window's length."""

    @property
    def reads_lifetimes(self) -> bool:
        return True

    @property
    def weighs_lifetimes(self) -> bool:
        return True

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

    @property
    def reads_window(self) -> bool:
        return True

    def result(self, of: Application) -> DataType:
        return of.time_type

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return BoundReduction(column, self.is_start)

    def on_spark(self, members: SparkMembers) -> Column | None:
        return members.instant(F.max(members.window()[0 if self.is_start else 1]))


WINDOW_START, WINDOW_END = WindowEdge("window_start", True), WindowEdge("window_end", False)

WINDOW_EDGES = {"start": WINDOW_START, "end": WINDOW_END}
"""The aggregates by the end of the window that they return: ``start`` and ``end``."""
