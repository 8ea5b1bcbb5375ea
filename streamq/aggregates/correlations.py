"""``covar``, ``covar_pop``, ``corr``: the covariance and the correlation of two arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType, DoubleType

from streamq.aggregates.application import apply_aggregate, as_doubles, check_numbers
from streamq.keywords import check_keywords
from streamq.plan.aggregate import Aggregate, AggregateFunction, Application, Drawing, SparkMembers
from streamq.plan.expr import Expr
from streamq.plan.partial import COUNT as MEMBERS
from streamq.plan.reduction import Floats, RangedMembers, RangeReduction, ReducedColumn, Reduction, floats
from streamq.runtime.deviation_partials import PartialComoments
from streamq.runtime.range_partials import INDEX, merge_by_window

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Comoments:
    """For each window the number of pairs, the sums of squared deviations on both sides, and the sum of their products."""

    n: Floats
    xx: Floats
    yy: Floats
    xy: Floats


class PairReduction(RangeReduction):
    """A reduction computed from the merged sums of squares and products of two columns' deviations."""

    def comoments(self, members: RangedMembers) -> Comoments:
        """Return the co-moments of each window, merged over the ranges; a member without one of both values does not count."""
        (x, x_there), (y, y_there) = (floats(members.rows.column(name)) for name in self.column.args)
        is_there = x_there & y_there
        values = {"x": pa.array(np.where(is_there, x, 0.0)), "y": pa.array(np.where(is_there, y, 0.0))}
        comoments = PartialComoments("p")
        parts = comoments.of_values(values, is_there.astype(np.int64))
        table = pa.table({MEMBERS: np.ones(len(x), np.int64), **parts})
        windows = merge_by_window(table, members.first, members.last, (), [comoments])
        merged = windows.in_order([INDEX]).finished()
        return Comoments(
            *(merged.column(f"p__{name}").to_numpy().astype(np.float64) for name in ("n", "xx", "yy", "xy"))
        )


@dataclass(frozen=True)
class CovarianceReduction(PairReduction):
    """The mean product of deviations, of the sample or of the population."""

    is_sample: bool

    def over_ranges(self, members: RangedMembers) -> pa.Array:
        """Return the covariance of each window; NULL over no pair, and of a sample over one."""
        of = self.comoments(members)
        with np.errstate(all="ignore"):
            return pa.array(of.xy / (of.n - 1 if self.is_sample else of.n), mask=of.n < (2 if self.is_sample else 1))


@dataclass(frozen=True)
class CorrelationReduction(PairReduction):
    """Pearson's correlation: co-moment over the root of the product of both sums of squares; NULL if either is 0."""

    def over_ranges(self, members: RangedMembers) -> pa.Array:
        """Return the correlation of each window; NULL over fewer than two pairs, and where a side has no deviation."""
        of = self.comoments(members)
        with np.errstate(all="ignore"):
            value = of.xy / np.sqrt(of.xx * of.yy)
        return pa.array(value, mask=(of.xx == 0) | (of.yy == 0) | (of.n < 2))


class PairAggregate(AggregateFunction):
    """An aggregate of two arguments, over members that have both."""

    drawing = Drawing(arguments=2, whole_numbers=True)

    def result(self, of: Application) -> DataType:
        check_numbers(of)
        return DoubleType()

    def operands(self, of: Application) -> tuple[Expr, ...]:
        return as_doubles(of)


@dataclass(frozen=True)
class Covariance(PairAggregate):
    """The covariance, of the sample or of the population."""

    name: str
    is_sample: bool

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return CovarianceReduction(column, self.is_sample)

    def on_spark(self, members: SparkMembers) -> Column | None:
        from pyspark.sql import functions as F

        return (F.covar_samp if self.is_sample else F.covar_pop)(*members.values)


class Correlation(PairAggregate):
    """Pearson's correlation."""

    name = "corr"

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return CorrelationReduction(column)

    def on_spark(self, members: SparkMembers) -> Column | None:
        from pyspark.sql import functions as F

        return F.corr(*members.values)


COVAR = Covariance("covar", True)
COVAR_POP = Covariance("covar_pop", False)
CORR = Correlation()


@check_keywords
def covar(left: Any, right: Any, *, where: Any = None) -> Aggregate:
    """The sample covariance of two columns over members that have both, NULL over fewer than two; double.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"x": 1, "y": 2}), (2, 3, {"x": 3, "y": 8})]).tumbling_window(5)
    >>> w.select(c=sq.covar("x", "y")).show()
      c  start  end
    6.0      0    5
    """
    return apply_aggregate(COVAR, left, right, where=where)


@check_keywords
def covar_pop(left: Any, right: Any, *, where: Any = None) -> Aggregate:
    """The population covariance of two columns over members that have both, NULL over none; double.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"x": 1, "y": 2}), (2, 3, {"x": 3, "y": 8})]).tumbling_window(5)
    >>> w.select(c=sq.covar_pop("x", "y")).show()
      c  start  end
    3.0      0    5
    """
    return apply_aggregate(COVAR_POP, left, right, where=where)


@check_keywords
def corr(left: Any, right: Any, *, where: Any = None) -> Aggregate:
    """Pearson's correlation of two columns over members that have both; double.

    NULL over fewer than two members, and where a column has the same value in all of them.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"x": 1, "y": 2}), (2, 3, {"x": 3, "y": 8})]).tumbling_window(5)
    >>> w.select(r=sq.corr("x", "y")).show()
      r  start  end
    1.0      0    5
    """
    return apply_aggregate(CORR, left, right, where=where)
