"""``count``: the number of members, or of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType, LongType

from streamq.aggregates.application import apply_aggregate
from streamq.errors import PlanError, sentence
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
from streamq.plan.expr import Col, Expr
from streamq.plan.partial import COUNT as MEMBERS
from streamq.runtime.built_in_partials import PartialCount

if TYPE_CHECKING:
    from pyspark.sql import Column


class CountAggregate(AggregateFunction):
    """The number of members, or of an argument's values."""

    name = "count"
    of_nothing = "*"
    drawing = Drawing(
        weight=4,
        optional=True,
        any_type=True,
        lifetimes=("end", "end", "duration", "start"),
        rounding=Rounding.NONE,
        computes=Computation.NOTHING,
    )

    def result(self, of: Application) -> DataType:
        return LongType()

    def split(self, of: Application, partials: Partials) -> Expr | None:
        """Return the number of members, or of values: a count that a partial result of the argument lends, or one of its own."""
        if not of.args:
            return Col(MEMBERS)
        (arg,) = of.args
        return Col(partials.lent_count(arg) or partials.partial(PartialCount, arg, LongType()).name)

    def on_spark(self, members: SparkMembers) -> Column | None:
        from pyspark.sql import functions as F

        return F.count(members.values[0] if members.values else F.lit(1))


COUNT = CountAggregate()


@check_keywords
def count(column: Any = None, *, where: Any = None) -> Aggregate:
    """The number of members, or of those whose ``column`` is not NULL; a bigint.

    ``where``: a condition over columns; only members for which it is true count. SQL's ``count(*)`` is ``sq.count()``.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": None}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(n=sq.count(), known=sq.count("v"), big=sq.count(where=sq.col("v") > 3)).show()
    n  known  big  start  end
    3      2    1      0    5
    """
    if isinstance(column, str) and column == "*":
        raise PlanError(sentence("count", "'*' is no column", "", "All members are counted by sq.count()."))
    return apply_aggregate(COUNT, *(() if column is None else (column,)), where=where)
