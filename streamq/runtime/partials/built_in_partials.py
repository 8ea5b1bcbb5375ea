"""Partial results of the built-in aggregates: from one event, merged, and as final values.

Each kind is one class, with its Arrow form for windows over streams and its Spark form for batches. A first or last value is
held with what orders it among others; of some rows the first is that of the least order, so these merge as a least value does:
their orders are ranked, and Arrow takes the least rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, DecimalType, LongType, StructType

from streamq.plan.partial import (
    COUNT,
    Algebra,
    Ints,
    MergeableColumns,
    Partial,
    RowWindow,
    SparkPartial,
    Values,
    alive_rows,
    no_row_window,
    rows_present,
)
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.columnar import ints, narrow_sums, negate, with_column, with_columns
from streamq.runtime.arrow.values import ORDER, number_values, sortable, unsortable
from streamq.runtime.partials.exact_sums import DoubleSums, ExactSumPartial, SumColumns, SumsInWords
from streamq.runtime.partials.merging_sql import CountAlgebra, ExtremeAlgebra, OrderedAlgebra, SumAlgebra

if TYPE_CHECKING:
    from pyspark.sql import Column


def _one_if_there(value: Column) -> Column:
    from pyspark.sql import functions as F

    return F.when(value.isNotNull(), 1).otherwise(0).cast("bigint")


class PartialCount(SparkPartial):
    """The number of values that are not NULL."""

    title = "count"

    @property
    def exact(self) -> bool:
        return True

    @property
    def counts(self) -> Mapping[str, str]:
        return {self.arg: self.name}

    def of_events(self, table: pa.Table) -> Values:
        return {self.name: pc.multiply(rows_present(table, self.arg), table.column(COUNT))}

    of_weighted = of_events

    def from_weighted(self, table: pa.Table) -> pa.Table:
        """Return the table unchanged: counts merge as they are."""
        return table

    @property
    def grouped(self) -> dict[str, str]:
        return {self.name: "sum"}

    def on_spark(self, values: Mapping[str, Column]) -> list[Column]:
        from pyspark.sql import functions as F

        return [F.count(values[self.arg]).alias(self.name)]

    @property
    def algebras(self) -> tuple[tuple[Algebra, tuple[str, ...]], ...]:
        return ((CountAlgebra(), (self.name,)),)

    def of_event(self, values: Mapping[str, Column]) -> list[Column]:
        return [_one_if_there(values[self.arg]).alias(self.name)]


class PartialSum(ExactSumPartial):
    """The sum of the values, with their number: the sum of no values is NULL.

    Of doubles it has the sum rounded, and the exact one as bytes where they differ (``exact_sums``).
    """

    title = "sum"

    @property
    def exact(self) -> bool:
        return isinstance(self.type, LongType | DecimalType)

    @property
    def many(self) -> str:
        return f"{self.name}__n"

    @property
    def counts(self) -> Mapping[str, str]:
        return {self.arg: self.many}

    @property
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        return (self.name, self.type), (self.many, LongType())

    @property
    def held_columns(self) -> list[str]:
        return self.columns if self.exact else [*self.sums.names, self.many]

    @property
    def sums(self) -> SumColumns:
        return SumColumns(self.name)

    @property
    def null_over_none(self) -> Mapping[str, str]:
        return {self.name: self.many}

    def of_events(self, table: pa.Table) -> Values:
        """Return the value, and 1 or 0 as the number of values, which is times the weight if sums are exact."""
        if self.exact:
            return {
                self.name: table.column(self.arg).cast(arrow_type(self.type)),
                self.many: pc.multiply(rows_present(table, self.arg), table.column(COUNT)),
            }
        return {**self.sums.of_values(table.column(self.arg)), self.many: rows_present(table, self.arg)}

    def of_weighted(self, table: pa.Table) -> Values:
        """Return exact values, negated where the weight is negative, with their signed numbers; others as ``super()`` does.

        Weights are +1 or -1.
        """
        if not self.exact:
            return super().of_weighted(table)
        columns = self.of_events(table)
        opposite = negate(columns[self.name])
        values = pc.if_else(pc.less(table.column(COUNT), 0), opposite, columns[self.name].cast(opposite.type))
        return {**columns, self.name: values}

    def from_weighted(self, table: pa.Table) -> pa.Table:
        """Return the table with values times their weights, and their weights as the numbers of values.

        NULLs count as none, and so do values of weight 0 or less. If the sum is exact, the table is unchanged, because the signs
        are right.
        """
        if self.exact:
            return table
        values = alive_rows(table, self.name)
        table = with_column(table, self.many, pc.if_else(pc.is_valid(values), table.column(COUNT), 0))
        single = DoubleSums.from_values(None, pc.fill_null(values, 0.0).to_numpy(), len(values))
        return with_columns(table, self.sums.of_sums(single.times(ints(table, self.many))))

    @property
    def grouped(self) -> dict[str, str]:
        assert self.exact, "sums of doubles merge in words"
        return {self.name: "sum", self.many: "sum"}

    def merging_form(self, table: pa.Table) -> tuple[pa.Table, MergeableColumns]:
        """Return the table with sums of doubles as words; with sums of other types as they are."""
        if self.exact:
            return table, self
        return SumsInWords.from_sums(self, table, {"sum": self.sums.read(table)}, self.many)

    def columns_of(self, table: pa.Table, sums: Mapping[str, DoubleSums]) -> Values:
        return self.sums.of_sums(sums["sum"])

    def with_results(self, table: pa.Table, sums: Mapping[str, DoubleSums]) -> pa.Table:
        return self.finished(with_column(table, self.name, sums["sum"].rounded()[0]))

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        """Return the table with NULL for no values, and sums as narrow as their type; raise StreamqError if one does not fit."""
        kind = arrow_type(self.type)
        values = narrow_sums(table.column(self.name), kind)
        none = pc.equal(table.column(self.many), 0)
        return with_column(table, self.name, pc.if_else(none, pa.scalar(None, kind), values))

    def on_spark(self, values: Mapping[str, Column]) -> list[Column]:
        from pyspark.sql import functions as F

        value = values[self.arg]
        # the sum of a partial must have the type of the whole, or the sum of sums would widen again
        return [F.sum(value).cast(self.type).alias(self.name), F.count(value).alias(self.many)]

    @property
    def algebras(self) -> tuple[tuple[Algebra, tuple[str, ...]], ...]:
        return (SumAlgebra(isinstance(self.type, LongType)), (self.name,)), (CountAlgebra(), (self.many,))

    def of_event(self, values: Mapping[str, Column]) -> list[Column]:
        value = values[self.arg]
        return [value.cast(self.type).alias(self.name), _one_if_there(value).alias(self.many)]


class _Extreme(SparkPartial):
    """The least or greatest value; floats and intervals merge as sortable numbers, because Arrow's order differs from Spark's."""

    how: ClassVar[str]

    @property
    def stands_in(self) -> bool:
        """True if values merge as sortable numbers."""
        kind = arrow_type(self.type)
        return pa.types.is_floating(kind) or pa.types.is_duration(kind)

    def of_events(self, table: pa.Table) -> Values:
        values = table.column(self.arg)
        return {self.name: sortable(values) if self.stands_in else values}

    def from_weighted(self, table: pa.Table) -> pa.Table:
        """Return the table with the values of weights above 0, as numbers if these stand in; other rows get NULL."""
        values = alive_rows(table, self.name)
        return with_column(table, self.name, sortable(values) if self.stands_in else values)

    @property
    def grouped(self) -> dict[str, str]:
        return {self.name: self.how}

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        if not self.stands_in:
            return table
        return with_column(table, self.name, unsortable(table.column(self.name), arrow_type(self.type)))

    def on_spark(self, values: Mapping[str, Column]) -> list[Column]:
        return [self.whole(values[self.arg]).alias(self.name)]

    def of_event(self, values: Mapping[str, Column]) -> list[Column]:
        return [values[self.arg].alias(self.name)]

    @classmethod
    def whole(cls, value: Column) -> Column:
        from pyspark.sql import functions as F

        return getattr(F, cls.how)(value)

    @property
    def algebras(self) -> tuple[tuple[Algebra, tuple[str, ...]], ...]:
        return ((ExtremeAlgebra(self.how), (self.name,)),)


class PartialMin(_Extreme):
    """The least value."""

    title = how = "min"


class PartialMax(_Extreme):
    """The greatest value."""

    title = how = "max"


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
