"""``sum``: the sum of an argument's values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType

from streamq.aggregates.application import apply_aggregate, check_numbers
from streamq.keywords import check_keywords
from streamq.plan.aggregate import (
    Aggregate,
    AggregateFunction,
    Application,
    Computation,
    Drawing,
    Partials,
    Rounding,
    SparkMembers,
)
from streamq.plan.expr import Cast, Col, Expr
from streamq.plan.spark_types import sum_type
from streamq.runtime.built_in_partials import PartialSum

if TYPE_CHECKING:
    from pyspark.sql import Column


class Sum(AggregateFunction):
    """The sum of an argument's values."""

    name = "sum"
    lends_counts = True
    drawing = Drawing(weight=3, lifetimes=("duration",), rounding=Rounding.OF_ARGUMENTS, computes=Computation.A_SUM)

    def result(self, of: Application) -> DataType:
        check_numbers(of)
        return sum_type(of.types[0])

    def split(self, of: Application, partials: Partials) -> Expr | None:
        """Return the column of a partial sum, which lends the number of its argument's values to other aggregates."""
        (arg,), (kind,) = of.args, of.types
        wide = sum_type(kind)
        total = partials.partial(PartialSum, arg if kind == wide else Cast(arg, wide), wide)
        partials.lend_count(arg, total.many)
        return Col(total.name)

    def on_spark(self, members: SparkMembers) -> Column | None:
        from pyspark.sql import functions as F

        return F.sum(members.values[0])


SUM = Sum()


@check_keywords
def sum(column: Any, *, where: Any = None) -> Aggregate:
    """The sum, NULL over no values; bigint for integers, double, or decimal.

    It is an error if the sum of a window whose row is sent does not fit its type. In a batch on Spark the values are added by
    Spark, for whom it is an error, too, if the sum of some of them does not fit, by the order in which they happen to be added.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(total=sq.sum("v"), big=sq.sum("v", where=sq.col("v") > 3)).show()
    total  big  start  end
        9    5      0    5
    """
    return apply_aggregate(SUM, column, where=where)
