"""Partial results of ``first`` and ``last``: the value of the first or last event, with what orders it among others.

Of some rows the first is that of the least order, so these merge as a least value does: their orders are ranked, and Arrow takes
the least rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, StructType

from streamq.plan.partial import (
    COUNT,
    Algebra,
    Ints,
    MergeableColumns,
    Partial,
    RowWindow,
    SparkPartial,
    Values,
    no_row_window,
)
from streamq.runtime.arrow.columnar import with_column, with_columns
from streamq.runtime.arrow.values import ORDER, number_values
from streamq.runtime.partials.merging_sql import OrderedAlgebra

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class PartialFirst(Partial):
    """The value of the first event.

    at: the column of events' starts, NULL for those that do not count; payload: the columns that order events of one start;
    order: the type of start and payload together.
    """

    at: str
    payload: tuple[str, ...]
    order: StructType

    title: ClassVar[str] = "first"
    how: ClassVar[str] = "min"

    @property
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        return (self.name, self.type), (self.order_column, self.order)

    @property
    def order_column(self) -> str:
        """The column with the order of the event, NULL without one."""
        return f"{self.name}__order"

    @property
    def read_columns(self) -> tuple[str, ...]:
        return (self.arg, self.at, *self.payload)

    @property
    def value_columns(self) -> tuple[str, ...]:
        return (self.name, self.order_column)

    @property
    def grouped(self) -> dict[str, str]:
        raise AssertionError("first and last merge as ranks")

    def of_events(self, table: pa.Table) -> Values:
        """Return each event's value and order, NULL for those that do not count."""
        parts = [table.column(name).combine_chunks() for name in (self.at, *self.payload)]
        is_none = pc.is_null(parts[0])
        order = pa.StructArray.from_arrays(parts, self.order.names, mask=is_none)
        value = table.column(self.arg).combine_chunks()
        return {self.name: pc.if_else(is_none, pa.scalar(None, value.type), value), self.order_column: order}

    def of_weighted(self, table: pa.Table) -> Values:
        return self.of_events(table)

    def from_weighted(self, table: pa.Table) -> pa.Table:
        """Return the table with NULLs where the weight is not above 0."""
        rows = np.where(pc.greater(table.column(COUNT), 0).to_numpy(), np.arange(table.num_rows), -1)
        return with_columns(table, rows_at(table.select(self.value_columns), rows))

    def merging_form(self, table: pa.Table) -> tuple[pa.Table, MergeableColumns]:
        """Return the table with the rank of each order, NULL without one."""
        orders = table.column(self.order_column)
        number, _ = number_values(orders, ORDER)
        ranks = pa.array(number, mask=pc.is_null(orders).to_numpy(zero_copy_only=False))
        ranked, row = np.unique(number, return_index=True)
        form = _RankColumns(self.name, self, ranked, table.select(self.value_columns).take(pa.array(row)))
        return with_column(table.drop_columns(list(self.value_columns)), form.rank, ranks), form


class PartialLast(PartialFirst):
    """The value of the last event."""

    title = "last"
    how = "max"


class _OnSpark(PartialFirst, SparkPartial):
    """The same of events that Spark can order."""

    def on_spark(self, values: Mapping[str, Column]) -> list[Column]:
        from pyspark.sql import functions as F

        order = self._order(values)
        value = getattr(F, f"{self.how}_by")(values[self.arg], order)
        return [value.alias(self.name), getattr(F, self.how)(order).alias(self.order_column)]

    def of_event(self, values: Mapping[str, Column]) -> list[Column]:
        return [values[self.arg].alias(self.name), self._order(values).alias(self.order_column)]

    def _order(self, values: Mapping[str, Column]) -> Column:
        """Return the start and payload of an event that counts, NULL of another."""
        from pyspark.sql import functions as F

        parts = zip(self.order.names, (self.at, *self.payload), strict=True)
        order = F.struct(*(values[column].alias(name) for name, column in parts))
        return F.when(values[self.at].isNotNull(), order)

    @property
    def algebras(self) -> tuple[tuple[Algebra, tuple[str, ...]], ...]:
        return ((OrderedAlgebra(self.how), self.value_columns),)


class SparkFirst(_OnSpark, PartialFirst):
    """The value of the first event, of a payload that Spark can order."""


class SparkLast(_OnSpark, PartialLast):
    """The value of the last event, of a payload that Spark can order."""


@dataclass(frozen=True, eq=False)
class _RankColumns(MergeableColumns):
    """The first or last event of a ``partial`` result while one process merges it: ``rows`` has those of each of ``ranks``."""

    partial: PartialFirst
    ranks: Ints
    rows: pa.Table

    @property
    def rank(self) -> str:
        return f"{self.name}__rank"

    @property
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        return self.partial.fields

    @property
    def held_columns(self) -> list[str]:
        return [self.rank]

    @property
    def grouped(self) -> dict[str, str]:
        return {self.rank: self.partial.how}

    def as_held(self, table: pa.Table) -> pa.Table:
        rank = table.column(self.rank)
        row = np.searchsorted(self.ranks, pc.fill_null(rank, 0).to_numpy())
        row = np.where(rank.is_valid().to_numpy(), row, -1)
        return with_columns(table.drop_columns([self.rank]), rows_at(self.rows, row))

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        return self.as_held(table)


def rows_at(rows: pa.Table, row: Ints) -> dict[str, Any]:
    """Return the columns of some rows by their numbers, NULLs for -1."""
    at = pa.array(row, mask=row < 0)
    return {name: rows.column(name).take(at) for name in rows.column_names}
