"""Variances and standard deviations of an argument, covariance and correlation of two, each of a sample and of a population."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import DataType, DoubleType

from streamq.aggregates.basic import apply_aggregate, as_doubles, check_numbers
from streamq.errors import check_keywords
from streamq.functions.numbers import SQRT
from streamq.plan.aggregate import Aggregate, AggregateFunction, Application, Drawing, Partials
from streamq.plan.expr import Call, Case, Cast, Col, Expr, Lit
from streamq.runtime.partials.deviation_partials import PartialComoments, PartialMoments


def _mean_product(parts: PartialMoments | PartialComoments, product: str, *, is_sample: bool) -> Expr:
    """Return a sum of products of deviations over their number n, of a sample over n - 1; NULL if that is 0, or n is."""
    n = Col(parts.part("n"))
    mean = Col(parts.part(product)) / Cast(n - 1 if is_sample else n, DoubleType())
    return Case((n > (1 if is_sample else 0), mean, Lit(None)))


@dataclass(frozen=True)
class Variance(AggregateFunction):
    """The variance of an argument's values as a sample or as the whole population; its partial result is (n, mean, M2)."""

    name: str
    is_sample: bool
    spark_name: str

    def result(self, of: Application) -> DataType:
        check_numbers(of)
        return DoubleType()

    def split(self, of: Application, partials: Partials) -> Expr | None:
        moments = partials.partial(PartialMoments, as_doubles(of)[0], DoubleType())
        return _mean_product(moments, "m2", is_sample=self.is_sample)


@dataclass(frozen=True)
class Deviation(AggregateFunction):
    """The standard deviation: the root of a variance."""

    name: str
    variance: Variance
    spark_name: str

    def result(self, of: Application) -> DataType:
        return self.variance.result(of)

    def restated(self, of: Application) -> Expr | None:
        return Call(SQRT, (Aggregate(self.variance, of.args),))


VAR, VAR_POP = Variance("var", True, "var_samp"), Variance("var_pop", False, "var_pop")
STDDEV, STDDEV_POP = Deviation("stddev", VAR, "stddev_samp"), Deviation("stddev_pop", VAR_POP, "stddev_pop")


@check_keywords
def var(column: Any, *, where: Any = None) -> Aggregate:
    """The sample variance (n - 1), NULL over fewer than two values; double.

    >>> import streamq as sq
    >>> w = sq.events([(i, i + 1, {"v": i}) for i in (0, 2, 4)]).tumbling_window(5)
    >>> w.select(s2=sq.var("v")).show()
     s2  start  end
    4.0      0    5
    """
    return apply_aggregate(VAR, column, where=where)


@check_keywords
def var_pop(column: Any, *, where: Any = None) -> Aggregate:
    """The population variance (n), NULL over no values; double.

    >>> import streamq as sq
    >>> w = sq.events([(i, i + 1, {"v": i}) for i in (0, 4)]).tumbling_window(5)
    >>> w.select(s2=sq.var_pop("v")).show()
     s2  start  end
    4.0      0    5
    """
    return apply_aggregate(VAR_POP, column, where=where)


@check_keywords
def stddev(column: Any, *, where: Any = None) -> Aggregate:
    """The sample standard deviation, NULL over fewer than two values; double.

    >>> import streamq as sq
    >>> w = sq.events([(i, i + 1, {"v": i}) for i in (0, 2, 4)]).tumbling_window(5)
    >>> w.select(s=sq.stddev("v")).show()
      s  start  end
    2.0      0    5
    """
    return apply_aggregate(STDDEV, column, where=where)


@check_keywords
def stddev_pop(column: Any, *, where: Any = None) -> Aggregate:
    """The population standard deviation, NULL over no values; double.

    >>> import streamq as sq
    >>> w = sq.events([(i, i + 1, {"v": i}) for i in (0, 4)]).tumbling_window(5)
    >>> w.select(s=sq.stddev_pop("v")).show()
      s  start  end
    2.0      0    5
    """
    return apply_aggregate(STDDEV_POP, column, where=where)


class PairAggregate(AggregateFunction):
    """An aggregate of two arguments, over members that have both; its partial result is (n, means, products of deviations)."""

    drawing = Drawing(arguments=2, whole_numbers=True)

    def result(self, of: Application) -> DataType:
        check_numbers(of)
        return DoubleType()

    def comoments(self, of: Application, partials: Partials) -> PartialComoments:
        """Return the partial result, which all aggregates of the same two arguments share."""
        left, right = as_doubles(of)
        return partials.partial(PartialComoments, left, DoubleType(), partials.column(right))


@dataclass(frozen=True)
class Covariance(PairAggregate):
    """The covariance, of the sample or of the population."""

    name: str
    is_sample: bool
    spark_name: str

    def split(self, of: Application, partials: Partials) -> Expr | None:
        return _mean_product(self.comoments(of, partials), "xy", is_sample=self.is_sample)


class Correlation(PairAggregate):
    """Pearson's correlation: the products of deviations over the root of the squares on both sides; NULL if either is 0."""

    name = spark_name = "corr"

    def split(self, of: Application, partials: Partials) -> Expr | None:
        """Return the correlation over partial co-moments; NULL over fewer than two pairs, and where a side has no deviation."""
        parts = self.comoments(of, partials)
        n, products = Col(parts.part("n")), Col(parts.part("xy"))
        xx, yy = Col(parts.part("xx")), Col(parts.part("yy"))
        squares = xx * yy
        # a product may be 0 where both are not, or NaN where one is 0
        is_spread = (n > 1) & (xx != 0.0) & (yy != 0.0) & (squares != 0.0)
        return Case((is_spread, products / Call(SQRT, (squares,)), Lit(None)))


COVAR, COVAR_POP = Covariance("covar", True, "covar_samp"), Covariance("covar_pop", False, "covar_pop")
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
