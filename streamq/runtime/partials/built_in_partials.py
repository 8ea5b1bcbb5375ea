"""Partial results of the built-in aggregates: from one event, merged, and as final values.

Each kind is one class, with its Arrow form for windows over streams and its Spark form for batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, DecimalType, LongType

from streamq.plan.partial import (
    COUNT,
    Algebra,
    MergeableColumns,
    RowWindow,
    SparkPartial,
    Values,
    alive_rows,
    no_row_window,
    rows_present,
)
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.columnar import ints, narrow_sums, negate, with_column, with_columns
from streamq.runtime.arrow.values import sortable, unsortable
from streamq.runtime.partials.exact_sums import DoubleSums, ExactSumPartial, SumColumns, SumsInWords
from streamq.runtime.partials.merging_sql import CountAlgebra, ExtremeAlgebra, SumAlgebra

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
