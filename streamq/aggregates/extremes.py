"""``min`` and ``max``: the least and the greatest of an argument's values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from streamq.aggregates.application import apply_aggregate
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
from streamq.plan.expr import Col, Expr
from streamq.runtime.built_in_partials import PartialMax, PartialMin

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
