"""Exact sums of doubles and of their products, rounded once: they depend on the values alone, not on the order of additions.

A finite double is an integer times a power of two, so a sum of them is a long integer in enough words of 32 bits on a grid of
exponents (Kulisch, *Computer Arithmetic and Validity*); only the words that it needs are held. NaN and infinities are added up
apart, and of them alone is the sum if there are any. A sum of zeros is 0.0, whatever their signs. Cost: some operations of numpy
on all values for each word, of which values about as great as one another need two or three.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType

from streamq.plan.partial import MergeableColumns, RowWindow, SparkPartial, Values, no_row_window
from streamq.runtime.arrow.columnar import ints, with_columns
from streamq.runtime.arrow.values import Ints, Mask, distinct

Floats = np.ndarray[Any, np.dtype[np.float64]]

WORD = 32
"""The bits of a word."""

_ONES = 2**WORD - 1

CHUNK = 2**20
"""The number of words whose sum has no more than the 53 bits of a double."""

_FAR = 18
"""The words by which factors that are very great or small are moved, so that products neither overflow nor lose digits."""


@dataclass(frozen=True, eq=False)
class ExactNumbers:
    """Exact numbers: ``i`` is the sum of ``words[j, i] * 2 ** (WORD * (least + j))``; only the last word may be below 0."""

    words: Ints
    least: int

    @classmethod
    def of_sums(cls, words: Sequence[Ints], least: int) -> ExactNumbers:
        """Return the numbers whose words are sums of words."""
        nothing = np.zeros_like(words[0])
        return cls(_carried(np.stack([*words, nothing, nothing])), least)

    def times(self, factor: Ints) -> ExactNumbers:
        """Return the numbers times integers from 0 to 2^60."""
        low, high = factor & (2**30 - 1), factor >> 30
        room = np.zeros((2, self.words.shape[1]), np.int64)
        words = _carried(np.concatenate([self.words * low, room]))
        if high.any():
            further = _carried(np.concatenate([self.words * high, room]))
            words = _carried(words + (further << 30))
        return ExactNumbers(words, self.least)

    def integers(self, least: int) -> Any:
        """Return the numbers in units of ``2 ** (WORD * least)``, an array of Python's integers."""
        whole = np.zeros(self.words.shape[1], object)
        for word in self.words[::-1]:
            whole = (whole << WORD) + word
        return whole << WORD * (self.least - least)

    def rounded(self) -> tuple[Floats, Mask]:
        """Return the nearest doubles (half to even, infinite beyond the greatest), and a mask of those that are exact."""
        words = np.concatenate([np.zeros((2, self.words.shape[1]), np.int64), self.words])
        lowest, highest = _bounds(words)
        highest = np.maximum(highest, 2)
        column = np.arange(words.shape[1])
        first, second, third = (words[highest - i, column] for i in range(3))
        # a word above the first has only copies of the sign
        first = np.where(highest < len(words) - 1, first | -(words[-1] < 0).astype(np.int64) << WORD, first)
        # 53 bits, then 44 more and one that tells whether any follow: the sum of two doubles rounds once
        high = ((first << 20) | (second >> 12)).astype(np.float64) * 2.0**45
        is_cut = lowest < highest - 2
        low = ((((second & 0xFFF) << WORD | third) << 1) | is_cut).astype(np.float64)
        nearest = high + low
        with np.errstate(over="ignore"):
            values = np.ldexp(nearest, WORD * (highest - 4 + self.least) - 1)
        return values, (nearest - high == low) & ~is_cut & np.isfinite(values)

    def packed(self, is_wanted: Mask) -> pa.Array:
        """Return the wanted numbers as bytes, the place of the lowest word and the words; 0 and the others as no bytes."""
        lowest, highest = _bounds(self.words)
        negative = self.words[-1] < 0
        # the highest bit is the sign
        column = np.arange(self.words.shape[1])
        highest = np.maximum(highest, lowest)
        highest += ((self.words[highest, column] & _ONES) >> (WORD - 1) != 0) != negative
        lengths = np.where(is_wanted & self.words.any(axis=0), highest - lowest + 2, 0)
        place = np.arange(len(self.words) + 2)[:, None] - 1
        padded = np.concatenate([(lowest + self.least)[None], self.words, -negative.astype(np.int64)[None]])
        is_held = (place >= lowest) & (place <= highest)
        is_held[0] = True
        is_held &= lengths > 0
        body = padded.T[is_held.T].astype(np.uint32)
        ends = np.concatenate([[0], np.cumsum(4 * lengths)]).astype(np.int32)
        return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(ends), pa.py_buffer(body)])


class Accumulator:
    """Adds values up, each to the sum of its number: 0 to ``count`` - 1. Instead of numbers None: each is a sum by itself."""

    def __init__(self, count: int):
        self.count = count
        self.totals: dict[int, Ints] = {}

    def add(self, number: Ints | None, values: Floats, place: int = 0) -> None:
        """Add finite doubles times ``2 ** (WORD * place)``."""
        at = (math.frexp(float(np.abs(values).max(initial=0.0)))[1] - 1) // WORD
        while values.any():
            words = np.trunc(_scaled(values, -WORD * at))
            values = values - _scaled(words, WORD * at)
            self._add_words(at + place, _totals(number, words, self.count))
            at -= 1

    def add_products(self, number: Ints, left: Floats, right: Floats) -> None:
        """Add the products of finite doubles."""
        (left, moved), (right, moved_too) = _in_reach(left), _in_reach(right)
        places = moved + moved_too
        for place in distinct(places).tolist():
            is_here = places == place
            a, b = left[is_here], right[is_here]
            product = a * b
            (a, a_low), (b, b_low) = _halves(a), _halves(b)
            rest = ((a * b - product) + a * b_low + a_low * b) + a_low * b_low
            of = number[is_here]
            self.add(np.concatenate([of, of]), np.concatenate([product, rest]), place)

    def add_packed(self, number: Ints | None, numbers: Any) -> None:
        """Add exact numbers, which :meth:`ExactNumbers.packed` wrote."""
        ends, body = _buffers(numbers)
        lengths = np.diff(ends) // 4
        some = np.flatnonzero(lengths)
        if not len(some):
            return
        starts, lengths = ends[some] // 4, lengths[some] - 1
        last = np.cumsum(lengths)
        of = np.repeat(np.arange(len(some)), lengths)
        within = np.arange(last[-1]) - (last - lengths)[of]
        words = body[starts[of] + 1 + within].astype(np.int64)
        words[last - 1] -= words[last - 1] >> (WORD - 1) << WORD
        places = body[starts].view(np.int32)[of] + within
        least = int(places.min())
        height = int(places.max()) - least + 1
        into = (places - least) * self.count + (some if number is None else number[some])[of]
        for at, totals in enumerate(_totals(into, words, height * self.count).reshape(height, self.count)):
            self._add_words(least + at, totals)

    def _add_words(self, place: int, words: Ints) -> None:
        self.totals[place] = self.totals[place] + words if place in self.totals else words

    def sums(self) -> ExactNumbers:
        least, most = min(self.totals, default=0), max(self.totals, default=0)
        words = np.zeros((most - least + 2, self.count), np.int64)
        for place, totals in self.totals.items():
            words[place - least] = totals
        return ExactNumbers(_carried(words), least)


def _carried(words: Ints) -> Ints:
    """Move what exceeds a word into the next one, in place."""
    for low, high in pairwise(words):
        high += low >> WORD
        low &= _ONES
    return words


def _bounds(words: Ints) -> tuple[Ints, Ints]:
    """Return the places of the lowest word of each number that is not 0, and of the highest that is no mere copy of its sign."""
    differs = words != np.where(words[-1] < 0, _ONES, 0)
    differs[-1] = (words[-1] != 0) & (words[-1] != -1)
    highest = len(words) - 1 - np.argmax(differs[::-1], axis=0)
    return np.where(words.any(axis=0), np.argmax(words != 0, axis=0), highest), highest


def _totals(number: Ints | None, words: Any, count: int) -> Ints:
    """Return the sum of the words of each number, which are below ``2 ** WORD``; None: each word."""
    if number is None:
        return np.asarray(words, np.int64)
    totals = np.zeros(count, np.int64)
    for i in range(0, len(number), CHUNK):
        totals += np.bincount(number[i : i + CHUNK], words[i : i + CHUNK], count).astype(np.int64)
    return totals


def _scaled(values: Floats, bits: int) -> Floats:
    """Return values times ``2 ** bits``, which may exceed the greatest double."""
    if abs(bits) < 1000:
        return values * 2.0**bits
    return values * 2.0 ** (bits // 2) * 2.0 ** (bits - bits // 2)


def _in_reach(values: Floats) -> tuple[Floats, Ints]:
    """Return values that may be multiplied, and by how many words each has been moved down to be one."""
    size = np.abs(values)
    moved = ((size > 2.0**480).astype(np.int64) - ((size < 2.0**-450) & (size > 0))) * _FAR
    return (np.ldexp(values, -WORD * moved) if moved.any() else values), moved


def _halves(values: Floats) -> tuple[Floats, Floats]:
    """Return two doubles of at most 26 bits each, whose sum is the value (Dekker)."""
    great = values * (2.0**27 + 1)
    high = great - (great - values)
    return high, values - high


def _buffers(numbers: Any) -> tuple[Ints, Any]:
    """Return the ends of the values of a binary column, the first start before them, and its bytes as words."""
    array = numbers.combine_chunks() if isinstance(numbers, pa.ChunkedArray) else numbers
    if not len(array):
        return np.zeros(1, np.int64), np.zeros(0, np.uint32)
    _, ends, body = array.buffers()
    ends = np.frombuffer(ends, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    return ends, np.frombuffer(body or b"", np.uint32, int(ends[-1]) // 4 if body else 0)


def is_empty(numbers: Any) -> Mask:
    """Mark the values of a binary column that have no bytes."""
    return np.diff(_buffers(numbers)[0]) == 0


@dataclass(frozen=True, eq=False)
class DoubleSums:
    """Sums of doubles: ``numbers`` of the finite ones, ``beyond`` of NaN and infinities, 0.0 without any (None: of none)."""

    numbers: ExactNumbers
    beyond: Floats | None

    @classmethod
    def from_values(cls, number: Ints | None, values: Floats, count: int, exact: Any = None) -> DoubleSums:
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
        return self.name, self.exact

    def of_values(self, values: Any) -> Values:
        """Return the columns of single doubles, 0.0 for NULL."""
        ends = pa.py_buffer(np.zeros(len(values) + 1, np.int32))
        nothing = pa.Array.from_buffers(pa.binary(), len(values), [None, ends, pa.py_buffer(b"")])
        # -0.0 becomes 0.0, as in a sum
        return {self.name: pc.add(pc.fill_null(values, 0.0), 0.0), self.exact: nothing}

    def of_sums(self, sums: DoubleSums) -> Values:
        values, exact = sums.columns()
        return {self.name: values, self.exact: exact}

    def read(self, table: pa.Table) -> DoubleSums:
        return DoubleSums.from_values(None, self.rounded(table), table.num_rows, table.column(self.exact))

    def rounded(self, table: pa.Table) -> Floats:
        return table.column(self.name).to_numpy()


@dataclass(frozen=True)
class SumWords:
    """The columns of sums while one process merges them: ``count`` words each, integers that Arrow adds up.

    beyond: the column of NaN and infinities; None if all is finite.
    """

    name: str
    least: int
    count: int
    beyond: str | None

    @classmethod
    def from_sums(cls, name: str, sums: DoubleSums) -> tuple[SumWords, Values]:
        """Return the columns, with the words of the sums; words above or below all others, which are 0, are left out."""
        used = np.flatnonzero(sums.numbers.words.any(axis=1))
        least, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
        beyond = None if sums.beyond is None else f"{name}__beyond"
        columns = cls(name, sums.numbers.least + least, end - least, beyond)
        return columns, dict(zip(columns.names, [*sums.numbers.words[least:end], sums.beyond], strict=False))

    @property
    def names(self) -> list[str]:
        words = [f"{self.name}__{i}" for i in range(self.count)]
        return words if self.beyond is None else [*words, self.beyond]

    def sums(self, table: pa.Table) -> DoubleSums:
        """Return the sums, once words have been added up or not."""
        words = [ints(table, name) for name in self.names[: self.count]]
        beyond = None if self.beyond is None else table.column(self.beyond).to_numpy()
        return DoubleSums(ExactNumbers.of_sums(words, self.least), beyond)


class ExactSumPartial(SparkPartial):
    """A partial result of exact sums, by the names of their parts."""

    @abstractmethod
    def columns_of(self, table: pa.Table, sums: Mapping[str, DoubleSums]) -> Values:
        """Return the held columns of the sums of each row."""

    @abstractmethod
    def with_results(self, table: pa.Table, sums: Mapping[str, DoubleSums]) -> pa.Table:
        """Return the table with the final values of the sums of each row."""


@dataclass(frozen=True)
class SumsInWords(MergeableColumns):
    """The exact sums of a ``partial`` result as ``words``, while one process merges them; ``many``: the number of values."""

    partial: ExactSumPartial
    words: Mapping[str, SumWords]
    many: str

    @classmethod
    def from_sums(
        cls, partial: ExactSumPartial, table: pa.Table, sums: Mapping[str, DoubleSums], many: str
    ) -> tuple[pa.Table, SumsInWords]:
        """Return the table with words instead of the columns that hold the sums, and the form that has these."""
        words: dict[str, SumWords] = {}
        table = table.drop_columns([name for name in partial.held_columns if name != many])
        for part, of_part in sums.items():
            words[part], columns = SumWords.from_sums(f"{partial.name}__{part}", of_part)
            table = with_columns(table, columns)
        return table, cls(partial.name, partial, words, many)

    @property
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        return self.partial.fields

    @property
    def held_columns(self) -> list[str]:
        return [self.many, *(name for columns in self.words.values() for name in columns.names)]

    @property
    def grouped(self) -> dict[str, str]:
        return dict.fromkeys(self.held_columns, "sum")

    def as_held(self, table: pa.Table) -> pa.Table:
        return with_columns(self._without_words(table), self.partial.columns_of(table, self._sums(table)))

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        return self.partial.with_results(self._without_words(table), self._sums(table))

    def _sums(self, table: pa.Table) -> dict[str, DoubleSums]:
        return {part: columns.sums(table) for part, columns in self.words.items()}

    def _without_words(self, table: pa.Table) -> pa.Table:
        return table.drop_columns(self.held_columns[1:])


def product_of_deviations(n: Ints, sums: tuple[DoubleSums, DoubleSums], products: DoubleSums) -> Floats:
    """Return ``sum(x * y) - sum(x) * sum(y) / n``, rounded once; 0 over nothing, NaN where a value is not finite."""
    x, y = sums[0].numbers, sums[1].numbers
    least = min(x.least, y.least)
    unit = min(2 * least, products.numbers.least, 0)
    many = n.astype(object)
    of_sums = x.integers(least) * y.integers(least) << WORD * (2 * least - unit)
    dividend = many * products.numbers.integers(unit) - of_sums
    divisor = np.maximum(many, 1) << -WORD * unit
    quotient = np.asarray(np.frompyfunc(_quotient, 2, 1)(dividend, divisor), np.float64)
    return np.where(sums[0].is_beyond | sums[1].is_beyond, np.nan, quotient)


def _quotient(dividend: int, divisor: int) -> float:
    try:
        return dividend / divisor
    except OverflowError:
        return math.inf if dividend > 0 else -math.inf
