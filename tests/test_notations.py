"""The notations of expressions and aggregates, after docs/expressions.md, build the trees that they mean.

The oracle takes the expressions of a plan as they were built, so a notation that builds another tree would make both sides wrong.
Trees are written here as nodes, without the operators and methods of expressions and the functions of aggregates.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import types as t

from streamq.aggregates.basic import AVG, COUNT, FIRST, LAST, MAX, MIN, SUM, avg, count, first, last
from streamq.aggregates.basic import max as greatest
from streamq.aggregates.basic import min as least
from streamq.aggregates.basic import sum as total
from streamq.aggregates.holistic import (
    COLLECT,
    COUNT_DISTINCT,
    PERCENTILE,
    TIME_WEIGHTED_AVG,
    collect,
    count_distinct,
    median,
    percentile,
    time_weighted_avg,
)
from streamq.aggregates.variances import (
    CORR,
    COVAR,
    COVAR_POP,
    STDDEV,
    STDDEV_POP,
    VAR,
    VAR_POP,
    corr,
    covar,
    covar_pop,
    stddev,
    stddev_pop,
    var,
    var_pop,
)
from streamq.expressions import duration, end, lit, start, when, window_end, window_start
from streamq.plan.aggregate import Aggregate, AggregateFunction
from streamq.plan.expr import Call, Case, Cast, Col, Expr, Lifetime, Lit, WindowBound, show
from streamq.plan.function import BUILT_IN

A, B, C, NULL = Col("a"), Col("b"), Col("c"), Lit(None)


def _of(function: str, *operands: Expr) -> Call:
    return Call(BUILT_IN[function], operands)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
    "pow": operator.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "and": operator.and_,
    "or": operator.or_,
}
"""Python's operators between two expressions, by the functions that they call."""

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The comparison that Python makes of another with a plain value on the left."""

SYMMETRIC = ("==", "!=")
"""The comparisons of which Python exchanges the operands if a plain value stands on the left."""

UNARY: dict[str, Callable[[Any], Any]] = {
    "negative": operator.neg,
    "positive": operator.pos,
    "abs": abs,
    "not": operator.invert,
}
"""Python's operators before one expression, by the functions that they call."""

METHODS: tuple[tuple[Callable[[], Any], Expr], ...] = (
    (lambda: A.between(B, C), _of("and", _of(">=", A, B), _of("<=", A, C))),
    (lambda: A.between(1, 2), _of("and", _of(">=", A, Lit(1)), _of("<=", A, Lit(2)))),
    (lambda: A.isin(1, 2, B), _of("isin", A, Lit(1), Lit(2), B)),
    (lambda: A.isin([1, 2]), _of("isin", A, Lit(1), Lit(2))),
    (lambda: A.isin({2, 1}), _of("isin", A, Lit(1), Lit(2))),
    (lambda: A.eq_null_safe(B), _of("<=>", A, B)),
    (lambda: A.is_null(), _of("isnull", A)),
    (lambda: A.is_not_null(), _of("not", _of("isnull", A))),
    (lambda: A.startswith("x"), _of("startswith", A, Lit("x"))),
    (lambda: A.endswith("x"), _of("endswith", A, Lit("x"))),
    (lambda: A.contains("x"), _of("contains", A, Lit("x"))),
    (lambda: A.like("x%"), _of("like", A, Lit("x%"))),
    (lambda: A.rlike("^x"), _of("rlike", A, Lit("^x"))),
    (lambda: A["x"], _of("getitem", A, Lit("x"))),
    (lambda: when(A, B), Case((A, B, NULL))),
    (lambda: when(A, 1).otherwise(2), Case((A, Lit(1), Lit(2)))),
    (lambda: when(A, B).when(C, 1), Case((A, B, C, Lit(1), NULL))),
    (lambda: when(A, B).when(C, 1).otherwise(2), Case((A, B, C, Lit(1), Lit(2)))),
    (lambda: lit(1), Lit(1)),
    (start, Lifetime("start")),
    (end, Lifetime("end")),
    (duration, Lifetime("duration")),
    (window_start, WindowBound("start")),
    (window_end, WindowBound("end")),
)
"""Methods of expressions and the functions that begin one, and the trees that they mean."""

TYPES: dict[str, t.DataType] = {
    "boolean": t.BooleanType(),
    "tinyint": t.ByteType(),
    "smallint": t.ShortType(),
    "int": t.IntegerType(),
    "integer": t.IntegerType(),
    "bigint": t.LongType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "string": t.StringType(),
    "binary": t.BinaryType(),
    "date": t.DateType(),
    "timestamp": t.TimestampType(),
    "timestamp_ntz": t.TimestampNTZType(),
    "decimal": t.DecimalType(10, 0),
    "decimal(9)": t.DecimalType(9, 0),
    "decimal(8, 2)": t.DecimalType(8, 2),
    "array<double>": t.ArrayType(t.DoubleType()),
    "map<string, bigint>": t.MapType(t.StringType(), t.LongType()),
    "struct<a: int, b: string>": t.StructType(
        [t.StructField("a", t.IntegerType()), t.StructField("b", t.StringType())]
    ),
}
"""The types of ``cast``, by their names in SQL."""


AGGREGATES: tuple[tuple[AggregateFunction, Callable[..., Any], tuple[Expr, ...]], ...] = (
    (COUNT, count, ()),
    (COUNT, count, (A,)),
    (COUNT_DISTINCT, count_distinct, (A,)),
    (COUNT_DISTINCT, count_distinct, (A, B)),
    (SUM, total, (A,)),
    (AVG, avg, (A,)),
    (MIN, least, (A,)),
    (MAX, greatest, (A,)),
    (FIRST, first, (A,)),
    (LAST, last, (A,)),
    (COLLECT, collect, (A,)),
    (TIME_WEIGHTED_AVG, time_weighted_avg, (A,)),
    (VAR, var, (A,)),
    (VAR_POP, var_pop, (A,)),
    (STDDEV, stddev, (A,)),
    (STDDEV_POP, stddev_pop, (A,)),
    (COVAR, covar, (A, B)),
    (COVAR_POP, covar_pop, (A, B)),
    (CORR, corr, (A, B)),
)
"""The functions that build aggregates, with columns as arguments; each also takes a filter."""


def notations() -> Iterator[tuple[Expr, Expr]]:
    """Yield what each notation builds, and the tree that it means."""
    for function, of_two in BINARY.items():
        yield of_two(A, B), _of(function, A, B)
        yield of_two(A, 1), _of(function, A, Lit(1))
        exchanged = function in MIRRORED or function in SYMMETRIC
        yield of_two(1, A), _of(MIRRORED.get(function, function), *((A, Lit(1)) if exchanged else (Lit(1), A)))
    for function, of_one in UNARY.items():
        yield of_one(A), _of(function, A)
    for method, meant in METHODS:
        yield method(), meant
    for name, kind in TYPES.items():
        yield A.cast(name), Cast(A, kind)
    for aggregate, of_columns, columns in AGGREGATES:
        yield of_columns(*columns), Aggregate(aggregate, columns)
        yield of_columns(*columns, where=C), Aggregate(aggregate, columns, C)
    for where in (None, C):
        yield percentile(A, 0.25, where=where), Aggregate(PERCENTILE, (A,), where, (0.25,))
        yield median(A, where=where), Aggregate(PERCENTILE, (A,), where, (0.5,))


def test_every_notation_builds_what_it_means() -> None:
    wrong = [(show(meant), show(built)) for built, meant in notations() if built.digest != meant.digest]
    assert wrong == []
