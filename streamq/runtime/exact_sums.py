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
from streamq.runtime.exact_numbers import WORD, Accumulator, ExactNumbers, Floats, is_empty
from streamq.runtime.values import Ints, Mask


@dataclass(frozen=True, eq=False)
class DoubleSums:
    """Sums of doubles: ``numbers`` of the finite ones, ``beyond`` of NaN and infinities, 0.0 without any (None: of none)."""

    numbers: ExactNumbers
    beyond: Floats | None

    @classmethod
    def of(cls, number: Ints, values: Floats, count: int, exact: Any = None) -> DoubleSums:
        """Return the sums of the rows of each number, 0 to ``count`` - 1.

        ``exact`` has bytes, which :meth:`columns` returned, where a value is not the row's sum itself; None: nowhere.
        """
        total = Accumulator(count)
        if exact is not None:
            values = np.where(is_empty(exact), values, 0.0)
            total.add_packed(number, exact)
        is_finite = np.isfinite(values)
        beyond: Floats | None = None
        if not is_finite.all():
            beyond = np.bincount(number[~is_finite], values[~is_finite], count).astype(np.float64)
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

    def columns(self) -> tuple[Floats, pa.Array]:
        """Return the sums rounded, and the exact ones as bytes where they differ."""
        values, is_exact = self.numbers.rounded()
        if self.beyond is not None:
            is_beyond = self.is_beyond
            values = np.where(is_beyond, np.where(np.isnan(self.beyond), np.nan, self.beyond), values)
            is_exact |= is_beyond
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

    def of_sums(self, sums: DoubleSums, at: Ints | slice = slice(None)) -> Values:
        """Return the columns of the sums of some numbers."""
        values, exact = sums.columns()
        return {self.name: values[at], self.exact: exact if isinstance(at, slice) else exact.take(pa.array(at))}

    def merged(self, table: pa.Table, number: Ints, count: int) -> DoubleSums:
        """Return the sums of the rows of each number, 0 to ``count`` - 1."""
        return DoubleSums.of(number, self.rounded(table), count, table.column(self.exact))

    def rounded(self, table: pa.Table) -> Floats:
        """Return the sums as doubles."""
        return table.column(self.name).to_numpy()


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


__all__ = ["DoubleSums", "SumColumns", "product_of_deviations"]
