"""``avg``: the mean of an argument's values."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType, DecimalType, DoubleType

from streamq.aggregates.application import apply_aggregate, as_doubles, check_numbers
from streamq.aggregates.counts import COUNT
from streamq.aggregates.sums import SUM
from streamq.errors import StreamqError, sentence
from streamq.keywords import check_keywords
from streamq.plan.aggregate import Aggregate, AggregateFunction, Application, Drawing, SparkMembers
from streamq.plan.expr import Case, Cast, Expr, Lit
from streamq.plan.partial import COUNT as MEMBERS
from streamq.plan.partial import RangedMembers, RangeReduction, ReducedColumn, Reduction
from streamq.plan.spark_types import avg_type
from streamq.runtime.arrow_casts import quotient
from streamq.runtime.arrow_types import RowError
from streamq.runtime.built_in_partials import PartialSum
from streamq.runtime.range_partials import INDEX, merge_by_window

if TYPE_CHECKING:
    from pyspark.sql import Column

MOST_DIGITS = 11
"""The most digits of a decimal whose mean equals sum / count: beyond them, Spark's quotient of sum and count has fewer digits
than the mean, or so few more that it could be rounded twice."""


@dataclass(frozen=True)
class MeanReduction(RangeReduction):
    """The exact mean of decimals, rounded half up to the digits of the result."""

    def over_ranges(self, members: RangedMembers) -> pa.Array:
        """Return the mean of each window that is asked for, NULL over no value.

        Raise StreamqError if a sum or a mean does not fit its type.
        """
        row = np.repeat(np.arange(len(members.number)), members.number)
        values = members.rows.column(self.column.args[0]).take(pa.array(row))
        total = PartialSum("p", "v", DecimalType(38, values.type.scale))
        table = pa.table({MEMBERS: np.ones(len(values), np.int64), "v": values})
        partials = pa.table({MEMBERS: table.column(MEMBERS), **total.of_events(table)})
        windows = merge_by_window(partials, members.first[row], members.last[row], (), [total])
        merged = windows.in_order([INDEX]).finished(members.asked)
        to = DecimalType(self.column.type.precision, self.column.type.scale)
        sums = zip(merged.column("p").to_pylist(), merged.column("p__n").to_pylist(), strict=True)
        try:
            means = [None if whole is None else quotient(whole, Decimal(n), to) for whole, n in sums]
        except RowError as error:
            wrong = sentence("avg", f"overflow of {to.simpleString()}", "", "Cast to fewer digits.")
            raise StreamqError(wrong) from error
        return pa.array(means, self.column.type)


class Avg(AggregateFunction):
    """The mean of an argument's values: their sum divided by their number, if that quotient has all digits of the mean."""

    name = "avg"
    of_values = True
    drawing = Drawing(weight=3, lifetimes=("duration",))

    def result(self, of: Application) -> DataType:
        check_numbers(of)
        return avg_type(of.types[0])

    def restated(self, of: Application) -> Expr | None:
        """Return a sum divided by a count, NULL over no value; None for decimals of more than MOST_DIGITS."""
        (arg,), (kind,) = of.args, of.types
        if not isinstance(kind, DecimalType):
            values = as_doubles(of)
            total, n = Aggregate(SUM, values), Aggregate(COUNT, values)
            mean: Expr = total / Cast(n, DoubleType())
        elif kind.precision <= MOST_DIGITS:
            total, n = Aggregate(SUM, (arg,)), Aggregate(COUNT, (arg,))
            mean = Cast(total / Cast(n, DecimalType(20, 0)), avg_type(kind))
        else:
            return None
        return Case((n > 0, mean, Lit(None)))

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return MeanReduction(column)

    def on_spark(self, members: SparkMembers) -> Column | None:
        from pyspark.sql import functions as F

        return F.avg(members.values[0])


AVG = Avg()


@check_keywords
def avg(column: Any, *, where: Any = None) -> Aggregate:
    """The mean, NULL over no values; double, or decimal with four more digits.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(mean=sq.avg("v")).show()
    mean  start  end
     3.0      0    5
    """
    return apply_aggregate(AVG, column, where=where)
