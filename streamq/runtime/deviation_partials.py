"""Partial results of variances, covariances and correlations: the number of values, their sums, and the sums of their products.

All sums are exact, so nothing is lost where deviations are small beside the mean, and results do not depend on any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, DoubleType, LongType

from streamq.plan.partial import (
    COUNT,
    Algebra,
    Ints,
    MergeableColumns,
    RowWindow,
    SparkPartial,
    Values,
    alive_rows,
    no_row_window,
    rows_present,
)
from streamq.runtime.columnar import ints, with_columns
from streamq.runtime.exact_numbers import Accumulator, ExactNumbers, Floats
from streamq.runtime.exact_sums import DoubleSums, SumColumns, SumWords, WordColumns, product_of_deviations

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True, eq=False)
class _Totals:
    """The number of values of each row, and by their parts the sums of values and of products."""

    n: Ints
    sums: Mapping[str, DoubleSums]
    products: Mapping[str, ExactNumbers]


class _Deviations(MergeableColumns):
    """The number of values, their means, and sums of products of the deviations from these.

    Until it is finished it has exact sums of the values and of their products instead. Those of a single value are left out,
    as the value says what they are.
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
    def held_columns(self) -> list[str]:
        sums = (name for of in self.means for name in self._sums(of).names)
        return [self.part("n"), *sums, *(self._products(of) for of in self.products)]

    def _sums(self, of: str) -> SumColumns:
        """Return the columns of the sums of the values that a mean is of."""
        return SumColumns(f"{self.part(of)}__sum")

    def _products(self, of: str) -> str:
        """Return the column of the exact sums of a product."""
        return f"{self.part(of)}__products"

    @property
    def grouped(self) -> dict[str, str]:
        raise AssertionError("deviations merge in words")

    def of_values(self, values: Mapping[str, Any], is_there: Any) -> Values:
        """Return the parts of single values, by their means; ``is_there``: 1, or 0 where there is none, and values are 0."""
        columns = {self.part("n"): is_there}
        for of, each in values.items():
            columns |= self._sums(of).of_values(each)
            nothing = columns[self._sums(of).exact]
        return columns | {self._products(of): nothing for of in self.products}

    def for_merging(self, table: pa.Table) -> tuple[pa.Table, MergeableColumns]:
        """Return the table with the sums of values and of products as words."""
        totals = self._totals(table)
        sums, products = {}, {}
        columns: dict[str, Any] = {}
        for of, of_values in totals.sums.items():
            sums[of], words = SumWords.of(self.part(of), of_values)
            columns |= words
        for of, of_products in totals.products.items():
            products[of], words = WordColumns.of(self.part(of), of_products)
            columns |= words
        held = [name for name in self.held_columns if name != self.part("n")]
        return with_columns(table.drop_columns(held), columns), _DeviationsInWords(self.name, self, sums, products)

    def columns_of(self, totals: _Totals) -> Values:
        """Return the held columns of totals."""
        parts: dict[str, Any] = {self.part("n"): totals.n}
        for of, sums in totals.sums.items():
            parts |= self._sums(of).of_sums(sums)
        for of, products in totals.products.items():
            parts[self._products(of)] = products.packed(totals.n > 1)
        return parts

    def _totals(self, table: pa.Table) -> _Totals:
        """Return the totals of each row."""
        return _Totals(
            ints(table, self.part("n")),
            {of: self._sums(of).read(table) for of in self.means},
            {of: self._sums_of_products(of, table) for of in self.products},
        )

    def _sums_of_products(self, of: str, table: pa.Table) -> ExactNumbers:
        """Return the sums of a product in each row; of values beyond the finite ones they are any numbers."""
        sums, row = Accumulator(table.num_rows), np.arange(table.num_rows)
        sums.add_packed(row, table.column(self._products(of)))
        is_single = ints(table, self.part("n")) == 1
        x, y = (_finite(self._sums(side).rounded(table)[is_single]) for side in self.products[of])
        sums.add_products(row[is_single], x, y)
        return sums.sums()

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        """Return the table with the means, and the sums of products of deviations, each rounded once.

        They are NaN if a value is NaN or infinite.
        """
        return self.with_results(table, self._totals(table))

    def with_results(self, table: pa.Table, totals: _Totals) -> pa.Table:
        """Return the table with the results of each row's totals."""
        parts: dict[str, Any] = {of: sums.rounded()[0] / np.maximum(totals.n, 1) for of, sums in totals.sums.items()}
        for of, (a, b) in self.products.items():
            sums = totals.sums[a], totals.sums[b]
            parts[of] = product_of_deviations(totals.n, sums, totals.products[of])
        return with_columns(table, {self.part(of): values for of, values in parts.items()})


@dataclass(frozen=True)
class _DeviationsInWords(MergeableColumns):
    """Sums of values and of products, by their parts, while one process merges them."""

    partial: _Deviations
    sums: Mapping[str, SumWords]
    products: Mapping[str, WordColumns]

    @property
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        return self.partial.fields

    @property
    def held_columns(self) -> list[str]:
        of_sums = [name for columns in self.sums.values() for name in columns.names]
        of_products = [name for columns in self.products.values() for name in columns.names]
        return [self.partial.part("n"), *of_sums, *of_products]

    @property
    def grouped(self) -> dict[str, str]:
        return dict.fromkeys(self.held_columns, "sum")

    def as_held(self, table: pa.Table) -> pa.Table:
        """Return the table with rounded sums and bytes instead of words."""
        return with_columns(self._without_words(table), self.partial.columns_of(self._totals(table)))

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        """Return the table with the results instead of words."""
        return self.partial.with_results(self._without_words(table), self._totals(table))

    def _totals(self, table: pa.Table) -> _Totals:
        """Return the totals of each row."""
        return _Totals(
            ints(table, self.partial.part("n")),
            {of: columns.sums(table) for of, columns in self.sums.items()},
            {of: columns.numbers(table) for of, columns in self.products.items()},
        )

    def _without_words(self, table: pa.Table) -> pa.Table:
        return table.drop_columns(self.held_columns[1:])


def _finite(values: Floats) -> Floats:
    """Return values with 0.0 for those that are not finite."""
    return np.where(np.isfinite(values), values, 0.0)


class PartialMoments(_Deviations, SparkPartial):
    """The number, mean and sum of squared deviations (``n``, ``mean``, ``m2``) of doubles."""

    title = "moments"
    means = ("mean",)
    products: ClassVar[Mapping[str, tuple[str, str]]] = {"m2": ("mean", "mean")}

    def of_events(self, table: pa.Table) -> Values:
        """Return the parts of single values."""
        return self.of_values({"mean": table.column(self.arg)}, rows_present(table, self.arg))

    def from_weighted(self, table: pa.Table) -> pa.Table:
        """Return the table with the parts of each value instead of it, counted as often as its weight says.

        A value of weight below 1, and NULL, are not counted.
        """
        values = alive_rows(table, self.name).cast(pa.float64())
        weight = pc.if_else(pc.is_valid(values), table.column(COUNT), 0)
        parts = dict(self.of_values({"mean": values}, weight))
        table = with_columns(table.drop_columns([self.name]), parts)
        if pc.max(weight).as_py() in (None, 0, 1):
            return table
        many, row = ints(table, self.part("n")), np.arange(len(values))
        sums, value = self._sums("mean"), self._sums("mean").rounded(table)
        squares = Accumulator(len(row))
        squares.add_products(row, _finite(value), _finite(value))
        columns = dict(sums.of_sums(DoubleSums.of(row, value, len(row)).times(many)))
        columns[self._products("m2")] = squares.sums().times(many).packed(many > 1)
        return with_columns(table, columns)

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
    """The number, means and products of deviations of two columns of doubles."""

    title = "comoments"
    means = ("x", "y")
    products: ClassVar[Mapping[str, tuple[str, str]]] = {"xx": ("x", "x"), "yy": ("y", "y"), "xy": ("x", "y")}


__all__ = ["PartialComoments", "PartialMoments"]
