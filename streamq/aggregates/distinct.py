"""``count_distinct``: the number of different values, or combinations of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
from streamq.plan.partial import RangedMembers, RangeReduction, ReducedColumn, Reduction
from streamq.plan.schema import check_key
from streamq.plan.tree import show
from streamq.runtime.columnar import codes
from streamq.runtime.overlap import union_of_pieces

if TYPE_CHECKING:
    from pyspark.sql import Column


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

    name = "count_distinct"
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

    def on_spark(self, members: SparkMembers) -> Column | None:
        from pyspark.sql import functions as F

        return F.count_distinct(*members.values)


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
