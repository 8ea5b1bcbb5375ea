"""Partial results of the built-in aggregates: from one event, merged, and as final values.

Each kind is one class, with its Arrow form for windows over streams and its Spark form for batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, DecimalType, DoubleType, LongType

from streamq.plan.partial import (
    COUNT,
    Algebra,
    Ints,
    MergeableColumns,
    RowWindow,
    SparkPartial,
    SummablePartial,
    Values,
    alive_rows,
    no_row_window,
    rows_present,
)
from streamq.plan.reduction import Floats
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.columnar import ints, narrow_sums, negate, with_column
from streamq.runtime.values import sortable, unsortable

if TYPE_CHECKING:
    from pyspark.sql import Column


def _one_if_there(value: Column) -> Column:
    """Return 1 for a value and 0 for NULL."""
    from pyspark.sql import functions as F

    return F.when(value.isNotNull(), 1).otherwise(0).cast("bigint")


class PartialCount(SummablePartial):
    """The number of values that are not NULL."""

    title = "count"

    @property
    def exact(self) -> bool:
        return True

    def of_events(self, table: pa.Table) -> Values:
        """Return 1 or 0, times the weight."""
        return {self.name: pc.multiply(rows_present(table, self.arg), table.column(COUNT))}

    of_weighted = of_events

    def from_weighted(self, table: pa.Table) -> pa.Table:
        """Return the table unchanged: counts merge as they are."""
        return table

    @property
    def grouped(self) -> dict[str, str]:
        return {self.name: "sum"}

    def on_spark(self, value: Column) -> list[Column]:
        """Return ``count(value)``."""
        from pyspark.sql import functions as F

        return [F.count(value).alias(self.name)]

    @property
    def algebras(self) -> tuple[tuple[Algebra, tuple[str, ...]], ...]:
        from streamq.runtime.merging_sql import CountAlgebra

        return ((CountAlgebra(), (self.name,)),)

    def swept(self, value: Column) -> list[Column]:
        """Return 1 or 0."""
        return [_one_if_there(value).alias(self.name)]


class PartialSum(SummablePartial):
    """The sum of the values, with their number: the sum of no values is NULL."""

    title = "sum"

    @property
    def exact(self) -> bool:
        return isinstance(self.type, LongType | DecimalType)

    @property
    def depends_on_order(self) -> bool:
        return not self.exact

    @property
    def many(self) -> str:
        """The column of the number of values."""
        return f"{self.name}__n"

    @property
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        return (self.name, self.type), (self.many, LongType())

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
        return {self.name: table.column(self.arg), self.many: rows_present(table, self.arg)}

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

        NULLs count as none, and so do values of weight 0 or less, which become NULL. If the sum is exact, the table is unchanged,
        because the signs are right.
        """
        if self.exact:
            return table
        values = alive_rows(table, self.name)
        weight = table.column(COUNT)
        table = with_column(table, self.name, pc.multiply(values, weight.cast(pa.float64())))
        return with_column(table, self.many, pc.if_else(pc.is_valid(values), weight, 0))

    @property
    def grouped(self) -> dict[str, str]:
        return {self.name: "sum", self.many: "sum"}

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        """Return the table with NULL for no values, and sums as narrow as their type; raise StreamqError if one does not fit."""
        kind = arrow_type(self.type)
        values = narrow_sums(table.column(self.name), kind)
        none = pc.equal(table.column(self.many), 0)
        return with_column(table, self.name, pc.if_else(none, pa.scalar(None, kind), values))

    def on_spark(self, value: Column) -> list[Column]:
        """Return ``sum(value)``, ``count(value)``."""
        from pyspark.sql import functions as F

        # the sum of a partial must have the type of the whole, or the sum of sums would widen again
        return [F.sum(value).cast(self.type).alias(self.name), F.count(value).alias(self.many)]

    @property
    def algebras(self) -> tuple[tuple[Algebra, tuple[str, ...]], ...]:
        from streamq.runtime.merging_sql import CountAlgebra, SumAlgebra

        return (SumAlgebra(isinstance(self.type, LongType)), (self.name,)), (CountAlgebra(), (self.many,))

    def swept(self, value: Column) -> list[Column]:
        """Return the value or 0, and 1 or 0."""
        from pyspark.sql import functions as F

        return [F.coalesce(value, F.lit(0).cast(self.type)).alias(self.name), _one_if_there(value).alias(self.many)]


class _Extreme(SparkPartial):
    """The least or greatest value; floats and intervals merge as sortable numbers, because Arrow's order differs from Spark's."""

    how: ClassVar[str]

    @property
    def stands_in(self) -> bool:
        """True if values merge as sortable numbers."""
        kind = arrow_type(self.type)
        return pa.types.is_floating(kind) or pa.types.is_duration(kind)

    def of_events(self, table: pa.Table) -> Values:
        """Return the value, or its number."""
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
        """Return the table with numbers turned back into values."""
        if not self.stands_in:
            return table
        return with_column(table, self.name, unsortable(table.column(self.name), arrow_type(self.type)))

    def on_spark(self, value: Column) -> list[Column]:
        """Return Spark's aggregate of the same name."""
        return [self.whole(value).alias(self.name)]

    @classmethod
    def whole(cls, value: Column) -> Column:
        """Return Spark's aggregate over all values."""
        from pyspark.sql import functions as F

        return getattr(F, cls.how)(value)

    @property
    def algebras(self) -> tuple[tuple[Algebra, tuple[str, ...]], ...]:
        from streamq.runtime.merging_sql import ExtremeAlgebra

        return ((ExtremeAlgebra(self.how), (self.name,)),)


class PartialMin(_Extreme):
    """The least value."""

    title = how = "min"


class PartialMax(_Extreme):
    """The greatest value."""

    title = how = "max"


class _Deviations(MergeableColumns):
    """The number of values, their means, and sums of products of the deviations from these.

    Merged pairwise (Chan, Golub, LeVeque, *Updating Formulae and a Pairwise Algorithm for Computing Sample Variances*):
    products of deviations from the common mean are added, nothing is ever subtracted from a sum of squares.
    """

    means: ClassVar[tuple[str, ...]]
    products: ClassVar[Mapping[str, tuple[str, str]]]

    def part(self, of: str) -> str:
        """Return the column of the number of values (n), of a mean or of a product."""
        return f"{self.name}__{of}"

    @property
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        double = DoubleType()
        return (self.part("n"), LongType()), *((self.part(of), double) for of in (*self.means, *self.products))

    @property
    def grouped(self) -> dict[str, str]:
        return {}

    def merged(self, table: pa.Table, number: Ints, at: Ints) -> Values:
        """Return the parts, by column name, merged over rows of equal ``number``, for the numbers ``at``.

        They are computed from distances to one of the means; rows without values count for nothing.
        """
        n = ints(table, self.part("n")).astype(np.float64)
        parts: dict[str, Any] = {}
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            total = _totals(number, n)
            away = {}
            for name in self.means:
                mean = table.column(self.part(name)).to_numpy()
                # sum distances to one of the means, so that equal means have no deviation, not even by rounding
                near = np.zeros(len(total))
                near[number[n > 0]] = np.where(np.isfinite(mean), mean, 0.0)[n > 0]
                apart = _totals(number, n * (mean - near[number])) / np.maximum(total, 1)
                common = near + np.where(total > 0, apart, 0.0)
                parts[name], away[name] = common[at], mean - common[number]
            for name, (a, b) in self.products.items():
                further = np.where(n > 0, n * away[a] * away[b], 0.0)
                parts[name] = _totals(number, table.column(self.part(name)).to_numpy() + further)[at]
        parts["n"] = total[at].astype(np.int64)
        return {self.part(of): values for of, values in parts.items()}


def _totals(number: Ints, values: Floats) -> Floats:
    """Return the sum of the values of each number, as floats."""
    # bincount gives integers if there are no values
    return np.bincount(number, values).astype(np.float64)


class PartialMoments(_Deviations, SparkPartial):
    """The number, mean and sum of squared deviations (``n``, ``mean``, ``m2``) of doubles."""

    title = "moments"
    means = ("mean",)
    products: ClassVar[Mapping[str, tuple[str, str]]] = {"m2": ("mean", "mean")}

    @property
    def depends_on_order(self) -> bool:
        return True

    def of_events(self, table: pa.Table) -> Values:
        """Return the value itself as mean, without deviation."""
        return self._single(table.column(self.arg), rows_present(table, self.arg))

    def from_weighted(self, table: pa.Table) -> pa.Table:
        """Return the table with the parts of each value instead of it, counted as often as its weight says.

        A value of weight below 1, and NULL, are not counted.
        """
        values = alive_rows(table, self.name)
        many = pc.if_else(pc.is_valid(values), table.column(COUNT), 0)
        table = table.drop_columns([self.name])
        for name, column in self._single(values.cast(pa.float64()), many).items():
            table = with_column(table, name, column)
        return table

    def _single(self, values: Any, many: Any) -> Values:
        """Return the parts for single values and their counts."""
        zeros = pa.array(np.zeros(len(values)))
        return {self.part("n"): many, self.part("mean"): pc.fill_null(values, 0.0), self.part("m2"): zeros}

    def on_spark(self, value: Column) -> list[Column]:
        """Return the parts from Spark's count, mean and variance; over no values the count is 0 and the others are NULL."""
        from pyspark.sql import functions as F

        n = F.count(value)
        parts = {"n": n, "mean": F.avg(value), "m2": F.var_pop(value) * n}
        return [column.alias(self.part(of)) for of, column in parts.items()]

    @property
    def algebras(self) -> tuple[tuple[Algebra, tuple[str, ...]], ...]:
        from streamq.runtime.merging_sql import MomentsAlgebra

        return ((MomentsAlgebra(), tuple(self.columns)),)


class PartialComoments(_Deviations):
    """The number, means and products of deviations of two columns of doubles; its rows already have these parts."""

    title = "comoments"
    means = ("x", "y")
    products: ClassVar[Mapping[str, tuple[str, str]]] = {"xx": ("x", "x"), "yy": ("y", "y"), "xy": ("x", "y")}


__all__ = [
    "PartialComoments", "PartialCount", "PartialMax", "PartialMin", "PartialMoments", "PartialSum",
]  # fmt: skip
