"""The aggregates of a window's ``select``; values are Spark SQL's in every backend."""

from __future__ import annotations

from typing import Any

from streamq.compiler.resolve import column_or_expr
from streamq.expr import Aggregate, Expr, as_expr


def _of(name: str, column: Any) -> Aggregate:
    found = column_or_expr(column)
    return Aggregate(name, (found if isinstance(found, Expr) else as_expr(found),))


def count(column: Any = None) -> Aggregate:
    """The number of members, or of those whose ``column`` is not NULL; a bigint."""
    return Aggregate("count", ()) if column is None else _of("count", column)


def sum(column: Any) -> Aggregate:
    """The sum, NULL over no values; bigint for integers (overflow is an error), double, or decimal."""
    return _of("sum", column)


def avg(column: Any) -> Aggregate:
    """The mean, NULL over no values; double, or decimal with four more digits."""
    return _of("avg", column)


def min(column: Any) -> Aggregate:
    """The least value, NULL over none; NaN is greater than any number."""
    return _of("min", column)


def max(column: Any) -> Aggregate:
    """The greatest value, NULL over none; NaN is greater than any number."""
    return _of("max", column)


def var(column: Any) -> Aggregate:
    """The sample variance (n - 1), NULL over fewer than two values; double."""
    return _of("var", column)


def var_pop(column: Any) -> Aggregate:
    """The population variance (n), NULL over no values; double."""
    return _of("var_pop", column)


def stddev(column: Any) -> Aggregate:
    """The sample standard deviation, NULL over fewer than two values; double."""
    return _of("stddev", column)


def stddev_pop(column: Any) -> Aggregate:
    """The population standard deviation, NULL over no values; double."""
    return _of("stddev_pop", column)
