"""``var``, ``var_pop``, ``stddev``, ``stddev_pop``: variance and standard deviation, of a sample and of a population."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType, DoubleType

from streamq.aggregates.application import apply_aggregate, as_doubles, check_numbers
from streamq.functions.numbers import SQRT
from streamq.keywords import check_keywords
from streamq.plan.aggregate import Aggregate, AggregateFunction, Application, Partials, SparkMembers
from streamq.plan.expr import Call, Case, Cast, Col, Expr, Lit
from streamq.runtime.deviation_partials import PartialMoments

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Variance(AggregateFunction):
    """The variance of an argument's values as a sample or as the whole population; its partial result is (n, mean, M2)."""

    name: str
    is_sample: bool

    def result(self, of: Application) -> DataType:
        check_numbers(of)
        return DoubleType()

    def split(self, of: Application, partials: Partials) -> Expr | None:
        """Return the variance over partial moments; NULL over no value, and of a sample over one."""
        moments = partials.partial(PartialMoments, as_doubles(of)[0], DoubleType())
        n, deviations = Col(moments.part("n")), Col(moments.part("m2"))
        variance = deviations / Cast(n - 1 if self.is_sample else n, DoubleType())
        return Case((n > (1 if self.is_sample else 0), variance, Lit(None)))

    def on_spark(self, members: SparkMembers) -> Column | None:
        from pyspark.sql import functions as F

        return (F.var_samp if self.is_sample else F.var_pop)(members.values[0])


@dataclass(frozen=True)
class Deviation(AggregateFunction):
    """The standard deviation: the root of a variance."""

    name: str
    variance: Variance

    def result(self, of: Application) -> DataType:
        return self.variance.result(of)

    def restated(self, of: Application) -> Expr | None:
        return Call(SQRT, (Aggregate(self.variance, of.args),))

    def on_spark(self, members: SparkMembers) -> Column | None:
        from pyspark.sql import functions as F

        return (F.stddev_samp if self.variance.is_sample else F.stddev_pop)(members.values[0])


VAR = Variance("var", True)
VAR_POP = Variance("var_pop", False)
STDDEV = Deviation("stddev", VAR)
STDDEV_POP = Deviation("stddev_pop", VAR_POP)


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
