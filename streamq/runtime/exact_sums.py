"""Sums of doubles, rounded once: they depend on the values alone, not on the order in which these were added.

NaN and infinities are added up apart, and of them alone is the sum if there are any. A sum of zeros is 0.0, whatever their signs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.plan.partial import Values
from streamq.runtime.columnar import ints
from streamq.runtime.exact_numbers import WORD, Accumulator, ExactNumbers, Floats, is_empty
from streamq.runtime.values import Ints, Mask


@dataclass(frozen=True, eq=False)
class DoubleSums:
    """Sums of doubles: ``numbers`` of the finite ones, ``beyond`` of NaN and infinities, 0.0 without any (None: of none)."""

    numbers: ExactNumbers
    beyond: Floats | None

    @classmethod
    def of(cls, number: Ints | None, values: Floats, count: int, exact: Any = None) -> DoubleSums:
        """Return the sums of the rows of each number, 0 to ``count`` - 1; None: of each row by itself.

        ``exact`` has bytes, which :meth:`columns` returned, where a value is not the row's sum itself; None: nowhere.
        """
        total = Accumulator(count)
        if exact is not None:
            values = np.where(is_empty(exact), values, 0.0)
            total.add_packed(number, exact)
        is_finite = np.isfinite(values)
        beyond: Floats | None = None
        if not is_finite.all():
            place = np.flatnonzero(~is_finite) if number is None else number[~is_finite]
            beyond = np.bincount(place, values[~is_finite], count).astype(np.float64)
            values = np.where(is_finite, values, 0.0)
        total.add(number, values)
        return cls(total.sums(), beyond)

    @property
    def is_beyond(self) -> Mask:
        """Mark the sums that are NaN or infinite because of a value that is."""
        return np.zeros(self.numbers.words.shape[1], bool) if self.beyond is None else self.beyond != 0

    def times(self, factor: Ints) -> DoubleSums:
        """Return the sums times integers from 0 to 2^60; what is beyond the finite stays."""
        return DoubleSums(self.numbers.times(factor), self.beyond)

    def rounded(self) -> tuple[Floats, Mask]:
        """Return the sums rounded once, and a mask of those that are exact."""
        values, is_exact = self.numbers.rounded()
        if self.beyond is not None:
            values = np.where(self.is_beyond, np.where(np.isnan(self.beyond), np.nan, self.beyond), values)
            is_exact |= self.is_beyond
        return values, is_exact

    def columns(self) -> tuple[Floats, pa.Array]:
        """Return the sums rounded, and the exact ones as bytes where they differ."""
        values, is_exact = self.rounded()
        return values, self.numbers.packed(~is_exact)


@dataclass(frozen=True)
class SumColumns:
    """The columns of sums of doubles: ``name`` has them rounded, ``exact`` has bytes where that is not the sum itself."""

    name: str

    @property
    def exact(self) -> str:
        return f"{self.name}__exact"

    @property
    def names(self) -> tuple[str, str]:
        """Both columns."""
        return self.name, self.exact

    def of_values(self, values: Any) -> Values:
        """Return the columns of single doubles, 0.0 for NULL."""
        ends = pa.py_buffer(np.zeros(len(values) + 1, np.int32))
        nothing = pa.Array.from_buffers(pa.binary(), len(values), [None, ends, pa.py_buffer(b"")])
        # -0.0 becomes 0.0, as in a sum
        return {self.name: pc.add(pc.fill_null(values, 0.0), 0.0), self.exact: nothing}

    def of_sums(self, sums: DoubleSums) -> Values:
        """Return the columns of sums."""
        values, exact = sums.columns()
        return {self.name: values, self.exact: exact}

    def read(self, table: pa.Table) -> DoubleSums:
        """Return the sums of each row."""
        return DoubleSums.of(None, self.rounded(table), table.num_rows, table.column(self.exact))

    def rounded(self, table: pa.Table) -> Floats:
        """Return the sums as doubles."""
        return table.column(self.name).to_numpy()


@dataclass(frozen=True)
class WordColumns:
    """The columns of exact numbers while one process merges them: ``count`` words each, integers that Arrow adds up."""

    name: str
    least: int
    count: int

    @classmethod
    def of(cls, name: str, numbers: ExactNumbers) -> tuple[WordColumns, Values]:
        """Return the columns, with the words of the numbers; words above or below all others, which are 0, are left out."""
        used = np.flatnonzero(numbers.words.any(axis=1))
        least, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
        columns = cls(name, numbers.least + least, end - least)
        return columns, dict(zip(columns.names, numbers.words[least:end], strict=True))

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [f"{self.name}__{i}" for i in range(self.count)]

    def numbers(self, table: pa.Table) -> ExactNumbers:
        """Return the numbers, once words have been added up or not."""
        return ExactNumbers.of_sums([ints(table, name) for name in self.names], self.least)


@dataclass(frozen=True)
class SumWords:
    """The columns of sums of doubles while one process merges them: words, and ``beyond`` if anything is not finite."""

    words: WordColumns
    beyond: str | None

    @classmethod
    def of(cls, name: str, sums: DoubleSums) -> tuple[SumWords, Values]:
        """Return the columns, with the sums."""
        words, columns = WordColumns.of(name, sums.numbers)
        if sums.beyond is None:
            return cls(words, None), columns
        return cls(words, f"{name}__beyond"), {**columns, f"{name}__beyond": sums.beyond}

    @property
    def names(self) -> list[str]:
        """The names of the columns, each of which Arrow adds up."""
        return self.words.names if self.beyond is None else [*self.words.names, self.beyond]

    def sums(self, table: pa.Table) -> DoubleSums:
        """Return the sums."""
        beyond = None if self.beyond is None else table.column(self.beyond).to_numpy()
        return DoubleSums(self.words.numbers(table), beyond)


def product_of_deviations(n: Ints, sums: tuple[DoubleSums, DoubleSums], products: ExactNumbers) -> Floats:
    """Return ``sum(x * y) - sum(x) * sum(y) / n``, rounded once; 0 over nothing, NaN where a value is not finite."""
    x, y = sums[0].numbers, sums[1].numbers
    least = min(x.least, y.least)
    unit = min(2 * least, products.least, 0)
    many = n.astype(object)
    of_sums = x.integers(least) * y.integers(least) << WORD * (2 * least - unit)
    dividend = many * products.integers(unit) - of_sums
    divisor = np.maximum(many, 1) << -WORD * unit
    quotient = np.asarray(np.frompyfunc(_quotient, 2, 1)(dividend, divisor), np.float64)
    return np.where(sums[0].is_beyond | sums[1].is_beyond, np.nan, quotient)


def _quotient(dividend: int, divisor: int) -> float:
    try:
        return dividend / divisor
    except OverflowError:
        return math.inf if dividend > 0 else -math.inf


__all__ = ["DoubleSums", "SumColumns", "SumWords", "WordColumns", "product_of_deviations"]
