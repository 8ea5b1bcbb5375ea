"""``min``, ``max``, ``first`` and ``last``: the least and the greatest value, and that of the first and the last member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, StructField, StructType, VariantType

from streamq.aggregates.sums import apply_aggregate
from streamq.errors import TypeMismatch, sentence
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
from streamq.plan.expr import Case, Col, Expr, Lifetime, Lit
from streamq.plan.passes import reads_end
from streamq.plan.spark_types import is_orderable
from streamq.runtime.partials.built_in_partials import PartialMax, PartialMin
from streamq.runtime.partials.ordered_partials import PartialFirst, PartialLast, SparkFirst, SparkLast

if TYPE_CHECKING:
    from pyspark.sql import Column


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

    def result(self, of: Application) -> DataType:
        """Return the argument's type; raise TypeMismatch for a type without an order."""
        (kind,) = of.types
        if isinstance(kind, ArrayType | MapType | StructType | VariantType):
            raise TypeMismatch(sentence(self.name, f"no order on {kind.simpleString()}", f"found {of.shown}"))
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

    def result(self, of: Application) -> DataType:
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
        by: list[tuple[Expr, DataType]] = [(Col(name), kind) for name, kind in of.payload]
        if any(reads_end(expr) for expr in (value, condition) if expr is not None):
            end: Expr = Lifetime("end")
            # that of an endless event is NULL, and greatest
            by += [(end.is_null(), BooleanType()), (end, of.time_type)]
        order = StructType([StructField(f"_{i}", kind) for i, kind in enumerate([of.time_type, *(k for _, k in by)])])
        kind = self.on_orderable if is_orderable(order) else self.partial
        columns = tuple(partials.column(expr) for expr, _ in by)
        return Col(partials.partial(kind, counted, of.types[0], partials.column(at), columns, order).name)

    def on_spark(self, members: SparkMembers) -> Column | None:
        from pyspark.sql import functions as F

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
