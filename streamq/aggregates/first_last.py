"""``first`` and ``last``: the value of the first and of the last member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType, LongType

from streamq.aggregates.application import apply_aggregate
from streamq.keywords import check_keywords
from streamq.plan.aggregate import (
    Aggregate,
    AggregateFunction,
    Application,
    Computation,
    Drawing,
    Rounding,
    SparkMembers,
)
from streamq.plan.partial import COUNT as MEMBERS
from streamq.plan.reduction import RangedMembers, RangeReduction, ReducedColumn, Reduction
from streamq.runtime.built_in_partials import PartialMax, PartialMin
from streamq.runtime.range_partials import INDEX, merge_by_window

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class FirstOrLastReduction(RangeReduction):
    """The value of the first or last row that passes the filter, merged over the ranges."""

    is_first: bool

    def over_ranges(self, members: RangedMembers) -> pa.Array:
        """Return the value of each window's first or last member among those that pass the filter; NULL if none does."""
        assert members.place is not None
        kind = PartialMin if self.is_first else PartialMax
        at = pa.array(members.place, mask=~self.passes(members.rows))
        table = pa.table({MEMBERS: np.ones(len(members.place), np.int64), "at": at})
        windows = merge_by_window(table, members.first, members.last, (), [kind("at", "at", LongType())])
        best = windows.in_order([INDEX]).finished().column("at").combine_chunks()
        row = np.zeros(int(members.place.max(initial=0)) + 1, np.int64)
        row[members.place] = np.arange(len(members.place))
        values = members.rows.column(self.column.args[0]).combine_chunks()
        chosen = row[best.fill_null(0).to_numpy()]
        return values.take(pa.array(chosen, mask=best.is_null().to_numpy(zero_copy_only=False)))


@dataclass(frozen=True)
class FirstOrLast(AggregateFunction):
    """The value of the first or the last member, NULL if that is NULL; a filter applies to members, not to values."""

    name: str
    is_first: bool

    ordered = True
    filters_arguments = False
    drawing = Drawing(
        any_type=True,
        lifetimes=("end", "end", "duration", "start"),
        rounding=Rounding.OF_ARGUMENTS,
        computes=Computation.NOTHING,
    )

    def result(self, of: Application) -> DataType:
        return of.types[0]

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return FirstOrLastReduction(column, self.is_first)

    def on_spark(self, members: SparkMembers) -> Column | None:
        from pyspark.sql import functions as F

        at = members.order() if members.passes is None else F.when(members.passes, members.order())
        return (F.min_by if self.is_first else F.max_by)(members.values[0], at)


FIRST = FirstOrLast("first", True)
LAST = FirstOrLast("last", False)


@check_keywords
def first(column: Any, *, where: Any = None) -> Aggregate:
    """The value of the first member by (start, payload): NULL if that is NULL.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(v=sq.first("v")).show()
    v  start  end
    3      0    5
    """
    return apply_aggregate(FIRST, column, where=where)


@check_keywords
def last(column: Any, *, where: Any = None) -> Aggregate:
    """The value of the last member by (start, payload): NULL if that is NULL.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(v=sq.last("v")).show()
    v  start  end
    5      0    5
    """
    return apply_aggregate(LAST, column, where=where)
