"""The aggregates of a window's ``select``; values are Spark SQL's in every backend. All take ``where``: a filter on members."""

from __future__ import annotations

from typing import Any

from streamq.errors import PlanError, sentence
from streamq.plan.expr import Aggregate, Expr, as_expr
from streamq.plan.resolve import column_or_expr


def _of(name: str, *columns: Any, where: Any = None, options: tuple[float | int | str, ...] = ()) -> Aggregate:
    for given in (*columns, where):
        if callable(given) and not isinstance(given, Expr):
            raise PlanError(
                sentence(name, "a function where a column is wanted", "", 'Write it over columns: sq.col("fare") > 5.')
            )
    args = tuple(found if isinstance(found := column_or_expr(c), Expr) else as_expr(found) for c in columns)
    return Aggregate(name, args, None if where is None else as_expr(where), options)


def count(column: Any = None, *, where: Any = None) -> Aggregate:
    """The number of members, or of those whose ``column`` is not NULL; a bigint.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": None}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(n=sq.count(), known=sq.count("v"), big=sq.count(where=sq.col("v") > 3)).show()
    n  known  big  start  end
    3      2    1      0    5
    """
    return _of("count", where=where) if column is None else _of("count", column, where=where)


def count_distinct(column: Any, *, where: Any = None) -> Aggregate:
    """The number of different values that are not NULL (NaN equals NaN, -0.0 equals 0.0); a bigint.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 3}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(n=sq.count_distinct("v")).show()
    n  start  end
    2      0    5
    """
    return _of("count_distinct", column, where=where)


def sum(column: Any, *, where: Any = None) -> Aggregate:
    """The sum, NULL over no values; bigint for integers (overflow is an error), double, or decimal.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(total=sq.sum("v"), big=sq.sum("v", where=sq.col("v") > 3)).show()
    total  big  start  end
        9    5      0    5
    """
    return _of("sum", column, where=where)


def avg(column: Any, *, where: Any = None) -> Aggregate:
    """The mean, NULL over no values; double, or decimal with four more digits.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(mean=sq.avg("v")).show()
    mean  start  end
     3.0      0    5
    """
    return _of("avg", column, where=where)


def min(column: Any, *, where: Any = None) -> Aggregate:
    """The least value, NULL over none; NaN is greater than any number.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(least=sq.min("v")).show()
    least  start  end
        1      0    5
    """
    return _of("min", column, where=where)


def max(column: Any, *, where: Any = None) -> Aggregate:
    """The greatest value, NULL over none; NaN is greater than any number.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(most=sq.max("v")).show()
    most  start  end
       5      0    5
    """
    return _of("max", column, where=where)


def var(column: Any, *, where: Any = None) -> Aggregate:
    """The sample variance (n - 1), NULL over fewer than two values; double.

    >>> import streamq as sq
    >>> w = sq.events([(i, i + 1, {"v": i}) for i in (0, 2, 4)]).tumbling_window(5)
    >>> w.select(s2=sq.var("v")).show()
     s2  start  end
    4.0      0    5
    """
    return _of("var", column, where=where)


def var_pop(column: Any, *, where: Any = None) -> Aggregate:
    """The population variance (n), NULL over no values; double.

    >>> import streamq as sq
    >>> w = sq.events([(i, i + 1, {"v": i}) for i in (0, 4)]).tumbling_window(5)
    >>> w.select(s2=sq.var_pop("v")).show()
     s2  start  end
    4.0      0    5
    """
    return _of("var_pop", column, where=where)


def stddev(column: Any, *, where: Any = None) -> Aggregate:
    """The sample standard deviation, NULL over fewer than two values; double.

    >>> import streamq as sq
    >>> w = sq.events([(i, i + 1, {"v": i}) for i in (0, 2, 4)]).tumbling_window(5)
    >>> w.select(s=sq.stddev("v")).show()
      s  start  end
    2.0      0    5
    """
    return _of("stddev", column, where=where)


def stddev_pop(column: Any, *, where: Any = None) -> Aggregate:
    """The population standard deviation, NULL over no values; double.

    >>> import streamq as sq
    >>> w = sq.events([(i, i + 1, {"v": i}) for i in (0, 4)]).tumbling_window(5)
    >>> w.select(s=sq.stddev_pop("v")).show()
      s  start  end
    2.0      0    5
    """
    return _of("stddev_pop", column, where=where)


def covar(left: Any, right: Any, *, where: Any = None) -> Aggregate:
    """The sample covariance of two columns over members that have both, NULL over fewer than two; double.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"x": 1, "y": 2}), (2, 3, {"x": 3, "y": 8})]).tumbling_window(5)
    >>> w.select(c=sq.covar("x", "y")).show()
      c  start  end
    6.0      0    5
    """
    return _of("covar", left, right, where=where)


def covar_pop(left: Any, right: Any, *, where: Any = None) -> Aggregate:
    """The population covariance of two columns over members that have both, NULL over none; double.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"x": 1, "y": 2}), (2, 3, {"x": 3, "y": 8})]).tumbling_window(5)
    >>> w.select(c=sq.covar_pop("x", "y")).show()
      c  start  end
    3.0      0    5
    """
    return _of("covar_pop", left, right, where=where)


def corr(left: Any, right: Any, *, where: Any = None) -> Aggregate:
    """Pearson's correlation of two columns over members that have both, NULL over fewer than two; double.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"x": 1, "y": 2}), (2, 3, {"x": 3, "y": 8})]).tumbling_window(5)
    >>> w.select(r=sq.corr("x", "y")).show()
      r  start  end
    1.0      0    5
    """
    return _of("corr", left, right, where=where)


def first(column: Any, *, where: Any = None) -> Aggregate:
    """The value of the first member by (start, payload): NULL if that is NULL.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(v=sq.first("v")).show()
    v  start  end
    3      0    5
    """
    return _of("first", column, where=where)


def last(column: Any, *, where: Any = None) -> Aggregate:
    """The value of the last member by (start, payload): NULL if that is NULL.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(v=sq.last("v")).show()
    v  start  end
    5      0    5
    """
    return _of("last", column, where=where)


def median(column: Any, *, where: Any = None) -> Aggregate:
    """The median, between two values their mean; NULL over no values; double.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(m=sq.median("v")).show()
      m  start  end
    3.0      0    5
    """
    return percentile(column, 0.5, where=where)


def percentile(column: Any, fraction: float, *, where: Any = None) -> Aggregate:
    """The exact percentile, linearly interpolated; ``fraction`` from 0 to 1; NULL over no values; double.

    >>> import streamq as sq
    >>> w = sq.events([(i, i + 1, {"v": i}) for i in range(5)]).tumbling_window(5)
    >>> w.select(p=sq.percentile("v", 0.9)).show()
      p  start  end
    3.6      0    5
    """
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        raise PlanError(sentence("percentile", "the fraction lies between 0 and 1", f"found {fraction!r}"))
    return _of("percentile", column, where=where, options=(float(fraction),))


def collect(column: Any, *, where: Any = None) -> Aggregate:
    """The values that are not NULL, as an array in the order of (start, payload).

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(all=sq.collect("v")).show()
          all  start  end
    [3, 1, 5]      0    5
    """
    return _of("collect", column, where=where)


def time_weighted_avg(column: Any, *, where: Any = None) -> Aggregate:
    """The sum of value times clipped lifetime over the length of the window: the load of ``cpu`` over the hour; double.

    It reads its members' lifetimes, cut as the window's ``clip_input`` says. A member whose value is NULL counts as 0;
    NULL if all are. (SEMANTICS section 3.)

    >>> import streamq as sq
    >>> w = sq.events([(1, 3, {"v": 4}), (3, 9, {"v": 1})]).tumbling_window(5)
    >>> w.select(load=sq.time_weighted_avg("v")).show()
    load  start  end
     2.0      0    5
     0.8      5   10
    """
    return _of("time_weighted_avg", column, where=where)
