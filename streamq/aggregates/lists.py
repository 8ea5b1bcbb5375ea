"""``collect``: all of an argument's values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType

from streamq.aggregates.application import apply_aggregate
from streamq.keywords import check_keywords
from streamq.plan.aggregate import Aggregate, AggregateFunction, Application, Computation, Drawing, SparkMembers
from streamq.plan.partial import CopiedMembers, MemberReduction, ReducedColumn, Reduction

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class ListReduction(MemberReduction):
    """The values that are not NULL, in order."""

    @property
    def reads_lifetimes(self) -> bool:
        return True

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
        from pyspark.sql import functions as F

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
