"""Partial results of variances, covariances and correlations: the number of values, their sums, and the sums of their products.

All sums are exact, so nothing is lost where deviations are small beside the mean, and results do not depend on any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, DoubleType, LongType

from streamq.plan.partial import COUNT, Algebra, MergeableColumns, RowWindow, Values, alive_rows, no_row_window
from streamq.runtime.arrow.columnar import ints, with_columns
from streamq.runtime.partials.exact_sums import (
    Accumulator,
    DoubleSums,
    ExactNumbers,
    ExactSumPartial,
    Floats,
    SumColumns,
    SumsInWords,
    product_of_deviations,
)
from streamq.runtime.partials.merging_sql import DeviationsAlgebra

if TYPE_CHECKING:
    from pyspark.sql import Column


class _Deviations(ExactSumPartial):
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
        return SumColumns(f"{self.part(of)}__sum")

    def _products(self, of: str) -> str:
        return f"{self.part(of)}__products"

    @property
    def grouped(self) -> dict[str, str]:
        raise AssertionError("deviations merge in words")

    @property
    def algebras(self) -> tuple[tuple[Algebra, tuple[str, ...]], ...]:
        pairs = tuple((self.means.index(a), self.means.index(b)) for a, b in self.products.values())
        return ((DeviationsAlgebra(len(self.means), pairs), tuple(self.columns)),)

    @property
    def shown_args(self) -> tuple[str, ...]:
        return self.read_columns

    @property
    def value_columns(self) -> tuple[str, ...]:
        return tuple(f"{self.part(of)}__value" for of in self.means)

    def of_events(self, table: pa.Table) -> Values:
        """Return the parts of single events; one without a value in some column does not count."""
        is_there, values = _where_all([table.column(name) for name in self.read_columns])
        return self._of_values(values, pc.cast(is_there, pa.int64()))

    def of_weighted(self, table: pa.Table) -> Values:
        _, values = _where_all([table.column(name) for name in self.read_columns])
        return dict(zip(self.value_columns, values, strict=True))

    def from_weighted(self, table: pa.Table) -> pa.Table:
        """Return the table with the parts of each event instead of its values, counted as often as its weight says.

        An event of weight below 1, and one without values, is not counted.
        """
        values = [alive_rows(table, name).cast(pa.float64()) for name in self.value_columns]
        weight = pc.if_else(pc.is_valid(values[0]), table.column(COUNT), 0)
        table = with_columns(table.drop_columns(list(self.value_columns)), self._of_values(values, weight))
        if pc.max(weight).as_py() in (None, 0, 1):
            return table
        many, row = ints(table, self.part("n")), np.arange(table.num_rows)
        each = {of: self._sums(of).rounded(table) for of in self.means}
        columns: dict[str, Any] = {}
        for of, numbers in each.items():
            columns |= self._sums(of).of_sums(DoubleSums.from_values(row, numbers, len(row)).times(many))
        for of, (a, b) in self.products.items():
            products = Accumulator(len(row))
            products.add_products(row, _finite(each[a]), _finite(each[b]))
            columns[self._products(of)] = products.sums().times(many).packed(many > 1)
        return with_columns(table, columns)

    def on_spark(self, values: Mapping[str, Column]) -> list[Column]:
        """Return the parts from Spark's count, means and covariances; over no events the count is 0 and the others are NULL."""
        from pyspark.sql import functions as F

        each = [values[name] for name in self.read_columns]
        is_there = reduce(and_, (value.isNotNull() for value in each))
        of_means = dict(zip(self.means, (F.when(is_there, value) for value in each), strict=True))
        n = F.count(F.when(is_there, 1))
        parts = {"n": n} | {of: F.avg(value) for of, value in of_means.items()}
        for of, (a, b) in self.products.items():
            # the covariance of a column with itself, but for its last digits
            spread = F.var_pop(of_means[a]) if a == b else F.covar_pop(of_means[a], of_means[b])
            parts[of] = spread * n
        return [column.alias(self.part(of)) for of, column in parts.items()]

    def of_event(self, values: Mapping[str, Column]) -> list[Column]:
        from pyspark.sql import functions as F

        each = [values[name] for name in self.read_columns]
        is_there = reduce(and_, (value.isNotNull() for value in each))
        of_means = {of: F.when(is_there, value) for of, value in zip(self.means, each, strict=True)}
        spreads = dict.fromkeys(self.products, F.when(is_there, F.lit(0.0)))
        parts = {"n": F.when(is_there, F.lit(1)).otherwise(0).cast("bigint"), **of_means, **spreads}
        return [column.alias(self.part(of)) for of, column in parts.items()]

    def _of_values(self, values: Sequence[Any], is_there: Any) -> Values:
        """Return the parts of single events, of a value for each mean; ``is_there``: 1, or 0 where values are NULL."""
        columns = {self.part("n"): is_there}
        for of, each in zip(self.means, values, strict=True):
            columns |= self._sums(of).of_values(each)
            nothing = columns[self._sums(of).exact]
        return columns | {self._products(of): nothing for of in self.products}

    def merging_form(self, table: pa.Table) -> tuple[pa.Table, MergeableColumns]:
        """Return the table with the sums of values and of products as words."""
        return SumsInWords.from_sums(self, table, self._totals(table), self.part("n"))

    def columns_of(self, table: pa.Table, sums: Mapping[str, DoubleSums]) -> Values:
        is_several = ints(table, self.part("n")) > 1
        parts: dict[str, Any] = {}
        for of in self.means:
            parts |= self._sums(of).of_sums(sums[of])
        return parts | {self._products(of): sums[of].numbers.packed(is_several) for of in self.products}

    def _totals(self, table: pa.Table) -> dict[str, DoubleSums]:
        """Return the sums of values and of products of each row, by their parts."""
        sums = {of: self._sums(of).read(table) for of in self.means}
        return sums | {of: DoubleSums(self._sums_of_products(of, table), None) for of in self.products}

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

    def with_results(self, table: pa.Table, sums: Mapping[str, DoubleSums]) -> pa.Table:
        n = ints(table, self.part("n"))
        parts: dict[str, Any] = {of: sums[of].rounded()[0] / np.maximum(n, 1) for of in self.means}
        for of, (a, b) in self.products.items():
            parts[of] = product_of_deviations(n, (sums[a], sums[b]), sums[of])
        return with_columns(table, {self.part(of): values for of, values in parts.items()})


def _where_all(columns: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return a mask of the rows in which all columns have values, and the columns with NULL in the others."""
    is_there = reduce(pc.and_, (pc.is_valid(column) for column in columns))
    return is_there, [pc.if_else(is_there, column, None) for column in columns]


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, 0.0)


class PartialMoments(_Deviations):
    """The number, mean and sum of squared deviations (``n``, ``mean``, ``m2``) of doubles."""

    title = "moments"
    means = ("mean",)
    products: ClassVar[Mapping[str, tuple[str, str]]] = {"m2": ("mean", "mean")}


@dataclass(frozen=True)
class PartialComoments(_Deviations):
    """The number, means and products of deviations of two columns of doubles, ``arg`` and ``other``, where both have a value."""

    other: str

    title = "comoments"
    means = ("x", "y")
    products: ClassVar[Mapping[str, tuple[str, str]]] = {"xx": ("x", "x"), "yy": ("y", "y"), "xy": ("x", "y")}

    @property
    def read_columns(self) -> tuple[str, ...]:
        return (self.arg, self.other)
