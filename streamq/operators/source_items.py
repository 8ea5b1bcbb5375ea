"""Source items: a source defines by expressions, once for DataFrames and Arrow tables, how rows become items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from streamq.errors import NeedsSpark, sentence
from streamq.operators.tick_expressions import instant_as_ticks
from streamq.plan.expr import Col, Expr, Lit
from streamq.plan.schema import Field, Schema, quote
from streamq.plan.spark_form import to_spark
from streamq.runtime.arrow_expr import evaluate
from streamq.runtime.event import KIND, LE, NEW_END, NO_START, OPENS, RE, TOO_EARLY, TOO_LATE
from streamq.time import INFINITY, MINUS_INFINITY, show_ticks

if TYPE_CHECKING:
    from pyspark.sql import Column

C = TypeVar("C")
I = TypeVar("I", bound="SourceItems[Any]")

_COLUMNS = tuple(
    Field(name, kind)
    for name, kind in (
        (LE, t.LongType()),
        (RE, t.LongType()),
        (NEW_END, t.LongType()),
        (KIND, t.StringType()),
        (OPENS, t.BooleanType()),
    )
)


class SourceItems(ABC, Generic[C]):
    """The items of a table: ``columns`` beside the payload, and a ``reason``, NULL for events.

    ``schema`` has the columns that expressions read.
    """

    def __init__(self, schema: Schema):
        self.schema = schema
        self.columns: dict[str, C] = {}

    @abstractmethod
    def evaluated(self, expr: Expr) -> C:
        """Return the values of an expression, one a row; it reads the table's columns and the item columns added so far."""

    @abstractmethod
    def ticks(self, name: str, missing: int | None) -> C:
        """Return a time column in ticks, with ``missing`` for NULL."""

    @abstractmethod
    def refuse(self, is_wrong: Expr, why: Expr) -> None:
        """Set the reason ``why`` on the rows where ``is_wrong`` is true, unless they already have one."""


class ItemRule(ABC):
    """A rule by which rows become items. A source has its rules once, so that their expressions are checked once."""

    @abstractmethod
    def apply(self, items: SourceItems[Any]) -> None:
        """Add a column to the items, or refuse some."""


@dataclass(frozen=True)
class ItemColumn(ItemRule):
    """Adds a column to the items."""

    name: str
    expr: Expr

    def apply(self, items: SourceItems[Any]) -> None:
        items.columns[self.name] = items.evaluated(self.expr)


@dataclass(frozen=True)
class TickColumn(ItemRule):
    """Adds a time column of the table to the items, in ticks, with ``missing`` for NULL."""

    name: str
    column: str
    missing: int | None = None

    def apply(self, items: SourceItems[Any]) -> None:
        items.columns[self.name] = items.ticks(self.column, self.missing)


@dataclass(frozen=True)
class RowRefusal(ItemRule):
    """Refuses the rows where ``is_wrong`` is true, for the reason ``why``, unless they already have one."""

    is_wrong: Expr
    why: Expr

    def apply(self, items: SourceItems[Any]) -> None:
        items.refuse(self.is_wrong, self.why)


def refused_starts(last: int = INFINITY - 1, among: Expr | None = None) -> tuple[RowRefusal, ...]:
    """Return rules that refuse rows whose start is NULL, minus infinity, or after ``last``; all rows, or those of ``among``."""
    reasons = (Col(LE).is_null(), NO_START), (Col(LE) == MINUS_INFINITY, TOO_EARLY), (Col(LE) > last, TOO_LATE)
    return tuple(RowRefusal(is_wrong if among is None else among & is_wrong, Lit(why)) for is_wrong, why in reasons)


class SparkItems(SourceItems["Column"]):
    """The items of a DataFrame."""

    reason: Column | None = None

    def column(self, name: str) -> Column:
        """Return a column of the items or, if they have none of that name, of the table."""
        from pyspark.sql import functions as F

        return self.columns[name] if name in self.columns else F.col(quote(name))

    def lifetime(self, part: str) -> Column:
        """Raise AssertionError: a row has no lifetime before it is an item."""
        raise AssertionError(part)

    def evaluated(self, expr: Expr) -> Column:
        return to_spark(expr, self)

    def ticks(self, name: str, missing: int | None) -> Column:
        """Return a time column of the table in ticks, with ``missing`` (None: NULL) for NULL."""
        from pyspark.sql import functions as F

        ticks = self.evaluated(instant_as_ticks(Col(name), self.schema.type_of(name)))
        return ticks if missing is None else F.coalesce(ticks, F.lit(missing))

    def refuse(self, is_wrong: Expr, why: Expr) -> None:
        """Extend the reason: it is ``why`` where ``is_wrong`` is true and no earlier rule has refused the row."""
        from pyspark.sql import functions as F

        earlier = F if self.reason is None else self.reason
        self.reason = earlier.when(self.evaluated(is_wrong), self.evaluated(why))


class TableArrays(dict[str, pa.Array]):
    """The columns of an Arrow table in one piece, by name; each is read from the table when it is first asked for."""

    def __init__(self, table: pa.Table):
        super().__init__()
        self.table = table

    def __missing__(self, name: str) -> pa.Array:
        array = self[name] = self.table.column(name).combine_chunks()
        return array


class ArrowItems(SourceItems[pa.Array]):
    """The items of an Arrow table."""

    def __init__(self, schema: Schema, table: pa.Table):
        super().__init__(schema)
        self.table = table
        self.arrays = ChainMap(self.columns, TableArrays(table))
        self.reason: Any = pa.nulls(table.num_rows, pa.string())

    def evaluated(self, expr: Expr) -> pa.Array:
        """Return the values of an expression; an item column is read before a column of the table of that name."""
        return evaluate(expr, self.schema, self.arrays, self._lifetime, self.table.num_rows)

    def ticks(self, name: str, missing: int | None) -> pa.Array:
        """Return a time column in ticks, ``missing`` for NULL; raise NeedsSpark for a type that Arrow has no instants of."""
        column = self.table.column(name).combine_chunks()
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us"))
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", tz="UTC"))
        elif not pa.types.is_integer(column.type):
            wrong = f"column {name!r} of type {column.type} in-process"
            raise NeedsSpark(sentence("source", wrong, "", "Use integers or timestamps."))
        ticks = column.cast(pa.int64())
        return ticks if missing is None else pc.fill_null(ticks, missing)

    def refuse(self, is_wrong: Expr, why: Expr) -> None:
        """Set the reason to ``why`` where ``is_wrong`` is true, not NULL, and no earlier rule has refused the row."""
        if not self.table.num_rows:
            return
        is_refused = self.evaluated(is_wrong)
        if pc.any(is_refused).as_py():
            is_first = pc.and_(pc.is_null(self.reason), pc.fill_null(is_refused, False))
            self.reason = pc.if_else(is_first, self.evaluated(why), self.reason)

    def reason_with_lifetime(self, axis: str) -> Any:
        """Return the reasons, NULL for events; the first, which is the one raised, shows its item's start and end."""
        at = pc.index(pc.is_valid(self.reason), True).as_py()
        if at < 0:
            return self.reason
        ticks = {n: self.columns[c][at].as_py() for n, c in (("start", LE), ("end", RE)) if c in self.columns}
        shown = ", ".join(
            f"{n} {'NULL' if v is None or (n, v) == ('end', INFINITY) else show_ticks(v, axis)}"
            for n, v in ticks.items()
        )
        is_first = pa.array(np.arange(len(self.reason)) == at)
        return pc.if_else(is_first, f"{self.reason[at].as_py()} ({shown})", self.reason)

    def _lifetime(self, part: str) -> pa.Array:
        raise AssertionError(part)


class ItemRules:
    """The rules of a source over a table with the columns ``fields``, in order."""

    def __init__(self, fields: tuple[Field, ...], rules: Iterable[ItemRule]):
        self.schema = Schema((*fields, *_COLUMNS), "integer")
        self.rules = tuple(rules)

    def on_spark(self) -> SparkItems:
        """Return the items of a DataFrame that has the table's columns."""
        return self._applied(SparkItems(self.schema))

    def in_arrow(self, table: pa.Table) -> ArrowItems:
        """Return the items of an Arrow table."""
        return self._applied(ArrowItems(self.schema, table))

    def _applied(self, items: I) -> I:
        """Apply all rules to the items, in order, and return them."""
        for rule in self.rules:
            rule.apply(items)
        return items


__all__ = [
    "ArrowItems",
    "ItemColumn",
    "ItemRule",
    "ItemRules",
    "RowRefusal",
    "SourceItems",
    "SparkItems",
    "TickColumn",
    "refused_starts",
]
