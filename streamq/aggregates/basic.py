"""Aggregates of values: ``count``, ``sum`` and ``avg``, and ``min``, ``max``, ``first`` and ``last``."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.errors import PlanError, StreamqError, TypeMismatch, check_keywords, sentence
from streamq.plan.aggregate import (
    Aggregate,
    AggregateFunction,
    Application,
    Computation,
    Drawing,
    Options,
    Partials,
    Rounding,
    SparkMembers,
)
from streamq.plan.expr import Case, Cast, Col, Expr, Lifetime, Lit, as_expr
from streamq.plan.partial import COUNT as MEMBERS
from streamq.plan.partial import RangedMembers, RangeReduction, ReducedColumn, Reduction
from streamq.plan.passes import reads_end
from streamq.plan.resolve import column_or_expr
from streamq.plan.spark_types import avg_type, is_numeric, is_orderable, sum_type
from streamq.runtime.arrow.arrow_casts import quotient
from streamq.runtime.arrow.arrow_types import RowError
from streamq.runtime.partials.built_in_partials import (
    PartialCount,
    PartialFirst,
    PartialLast,
    PartialMax,
    PartialMin,
    PartialSum,
    SparkFirst,
    SparkLast,
)
from streamq.runtime.partials.ranges import INDEX, merge_by_window


def apply_aggregate(function: AggregateFunction, *columns: Any, where: Any = None, options: Options = ()) -> Aggregate:
    """Return the aggregate of ``columns``, names or expressions, over members for which ``where`` is true.

    ``options`` are the function's plain values. Raises PlanError for a Python function in place of a column, and for a text or
    a Python function as ``where``.
    """
    for column in columns:
        if callable(column) and not isinstance(column, Expr):
            hint = f'Write the column\'s name, or an expression: sq.{function.name}(sq.col("fare") * 2).'
            raise PlanError(function.name, "a Python function instead of a column", f"found {_name(column)}", hint)
    if isinstance(where, str) or (callable(where) and not isinstance(where, Expr)):
        hint = 'Write it over columns: where=sq.col("fare") > 5.'
        raise PlanError(function.name, "where is a condition over columns", f"found {_name(where)}", hint)
    args = tuple(as_expr(column_or_expr(column)) for column in columns)
    return Aggregate(function, args, None if where is None else as_expr(where), options)


def _name(value: Any) -> str:
    """Return a function or a text as messages show it."""
    return repr(value) if isinstance(value, str) else f"function {getattr(value, '__name__', repr(value))}"


def check_numbers(of: Application) -> None:
    """Raise TypeMismatch for an argument that is no number."""
    for i, kind in enumerate(of.types):
        if not is_numeric(kind):
            detail = of.shown if i else f"{kind.simpleString()} in {of.shown}"
            raise TypeMismatch(of.aggregate.name, "needs numbers", f"found {detail}", "Cast it.")


def as_doubles(of: Application) -> tuple[Expr, ...]:
    """Return the arguments as doubles."""
    return tuple(
        arg if isinstance(kind, t.DoubleType) else Cast(arg, t.DoubleType())
        for arg, kind in zip(of.args, of.types, strict=True)
    )


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

    def result(self, of: Application) -> t.DataType:
        return t.LongType()

    def split(self, of: Application, partials: Partials) -> Expr | None:
        """Return the number of members, or of values: a count that a partial result of the argument lends, or one of its own."""
        if not of.args:
            return Col(MEMBERS)
        (arg,) = of.args
        return Col(partials.lent_count(arg) or partials.partial(PartialCount, arg, t.LongType()).name)

    def on_spark(self, members: SparkMembers) -> Column | None:
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
        raise PlanError("count", "'*' is no column", "", "All members are counted by sq.count().")
    return apply_aggregate(COUNT, *(() if column is None else (column,)), where=where)


class Sum(AggregateFunction):
    """The sum of an argument's values."""

    name = spark_name = "sum"
    lends_counts = True
    drawing = Drawing(weight=3, lifetimes=("duration",), rounding=Rounding.OF_ARGUMENTS, computes=Computation.A_SUM)

    def result(self, of: Application) -> t.DataType:
        check_numbers(of)
        return sum_type(of.types[0])

    def split(self, of: Application, partials: Partials) -> Expr | None:
        """Return the column of a partial sum, which lends the number of its argument's values to other aggregates."""
        (arg,), (kind,) = of.args, of.types
        wide = sum_type(kind)
        total = partials.partial(PartialSum, arg if kind == wide else Cast(arg, wide), wide)
        partials.lend_count(arg, total.many)
        return Col(total.name)


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
        total = PartialSum("p", "v", t.DecimalType(38, values.type.scale))
        table = pa.table({MEMBERS: np.ones(len(values), np.int64), "v": values})
        partials = pa.table({MEMBERS: table.column(MEMBERS), **total.of_events(table)})
        windows = merge_by_window(partials, members.first[row], members.last[row], (), [total])
        merged = windows.in_order([INDEX]).finished(members.asked)
        to = t.DecimalType(self.column.type.precision, self.column.type.scale)
        sums = zip(merged.column("p").to_pylist(), merged.column("p__n").to_pylist(), strict=True)
        try:
            means = [None if whole is None else quotient(whole, Decimal(n), to) for whole, n in sums]
        except RowError as error:
            wrong = sentence("avg", f"overflow of {to.simpleString()}", "", "Cast to fewer digits.")
            raise StreamqError(wrong) from error
        return pa.array(means, self.column.type)


class Avg(AggregateFunction):
    """The mean of an argument's values: their sum divided by their number, if that quotient has all digits of the mean."""

    name = spark_name = "avg"
    of_values = True
    drawing = Drawing(weight=3, lifetimes=("duration",))

    def result(self, of: Application) -> t.DataType:
        check_numbers(of)
        return avg_type(of.types[0])

    def restated(self, of: Application) -> Expr | None:
        """Return a sum divided by a count, NULL over no value; None for decimals of more than MOST_DIGITS."""
        (arg,), (kind,) = of.args, of.types
        if not isinstance(kind, t.DecimalType):
            values = as_doubles(of)
            total, n = Aggregate(SUM, values), Aggregate(COUNT, values)
            mean: Expr = total / Cast(n, t.DoubleType())
        elif kind.precision <= MOST_DIGITS:
            total, n = Aggregate(SUM, (arg,)), Aggregate(COUNT, (arg,))
            mean = Cast(total / Cast(n, t.DecimalType(20, 0)), avg_type(kind))
        else:
            return None
        return Case((n > 0, mean, Lit(None)))

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return MeanReduction(column)


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


@dataclass(frozen=True)
class Extreme(AggregateFunction):
    """The least or the greatest of an argument's values: ``partial`` is its partial result."""

    name: str
    partial: type[PartialMin | PartialMax]

    drawing = Drawing(
        weight=3,
        any_type=True,
        lifetimes=("end", "end", "duration", "start"),
        rounding=Rounding.OF_ARGUMENTS,
        computes=Computation.NOTHING,
    )

    def result(self, of: Application) -> t.DataType:
        """Return the argument's type; raise TypeMismatch for a type without an order."""
        (kind,) = of.types
        if isinstance(kind, t.ArrayType | t.MapType | t.StructType | t.VariantType):
            raise TypeMismatch(self.name, f"no order on {kind.simpleString()}", f"found {of.shown}")
        return kind

    def split(self, of: Application, partials: Partials) -> Expr | None:
        return Col(partials.partial(self.partial, of.args[0], of.types[0]).name)

    def on_spark(self, members: SparkMembers) -> Column | None:
        return self.partial.whole(members.values[0])


MIN, MAX = Extreme("min", PartialMin), Extreme("max", PartialMax)


@check_keywords
def min(column: Any, *, where: Any = None) -> Aggregate:
    """The least value, NULL over none; NaN is greater than any number.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(least=sq.min("v")).show()
    least  start  end
        1      0    5
    """
    return apply_aggregate(MIN, column, where=where)


@check_keywords
def max(column: Any, *, where: Any = None) -> Aggregate:
    """The greatest value, NULL over none; NaN is greater than any number.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(most=sq.max("v")).show()
    most  start  end
       5      0    5
    """
    return apply_aggregate(MAX, column, where=where)


@dataclass(frozen=True)
class FirstOrLast(AggregateFunction):
    """The value of the first or the last member, NULL if that is NULL; a filter applies to members, not to values.

    ``partial`` is its partial result, ``on_orderable`` that over payloads which Spark can order.
    """

    name: str
    partial: type[PartialFirst]
    on_orderable: type[SparkFirst | SparkLast]

    ordered = True
    filters_arguments = False
    drawing = Drawing(
        any_type=True,
        lifetimes=("end", "end", "duration", "start"),
        rounding=Rounding.OF_ARGUMENTS,
        computes=Computation.NOTHING,
    )

    def result(self, of: Application) -> t.DataType:
        return of.types[0]

    def split(self, of: Application, partials: Partials) -> Expr | None:
        """Return the value of the first or last event by start and payload; by end, too, only if the value reads that.

        Of two events that are equal but for their ends, any value that does not read ends is the same.
        """
        value, condition = of.args[0], of.aggregate.where
        start: Expr = Lifetime("start")
        if condition is None:
            counted, at = value, start
        else:
            counted, at = (Case((condition, expr, Lit(None))) for expr in (value, start))
        by: list[tuple[Expr, t.DataType]] = [(Col(name), kind) for name, kind in of.payload]
        if any(reads_end(expr) for expr in (value, condition) if expr is not None):
            end: Expr = Lifetime("end")
            # that of an endless event is NULL, and greatest
            by += [(end.is_null(), t.BooleanType()), (end, of.time_type)]
        order = t.StructType(
            [t.StructField(f"_{i}", kind) for i, kind in enumerate([of.time_type, *(k for _, k in by)])]
        )
        kind = self.on_orderable if is_orderable(order) else self.partial
        columns = tuple(partials.column(expr) for expr, _ in by)
        return Col(partials.partial(kind, counted, of.types[0], partials.column(at), columns, order).name)

    def on_spark(self, members: SparkMembers) -> Column | None:
        at = members.order() if members.passes is None else F.when(members.passes, members.order())
        return getattr(F, f"{self.partial.how}_by")(members.values[0], at)


FIRST = FirstOrLast("first", PartialFirst, SparkFirst)
LAST = FirstOrLast("last", PartialLast, SparkLast)


@check_keywords
def first(column: Any, *, where: Any = None) -> Aggregate:
    """The value of the first member by (start, payload): NULL if that is NULL.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(v=sq.first("v")).show()
    v  start  end
    3      0    5
    """
    return apply_aggregate(FIRST, column, where=where)


@check_keywords
def last(column: Any, *, where: Any = None) -> Aggregate:
    """The value of the last member by (start, payload): NULL if that is NULL.

    >>> import streamq as sq
    >>> w = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 1}), (4, 5, {"v": 5})]).tumbling_window(5)
    >>> w.select(v=sq.last("v")).show()
    v  start  end
    5      0    5
    """
    return apply_aggregate(LAST, column, where=where)
