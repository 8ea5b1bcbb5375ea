"""Exact numbers: sums and products of doubles without any rounding, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from streamq.runtime.exact_sums import CHUNK, WORD, Accumulator, ExactNumbers, is_empty

FINITE = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-100, 100),
    st.integers(-3, 3).map(float),
    st.sampled_from(
        [5e-324, -5e-324, 2.0**-1022, 1.7976931348623157e308, -1.7976931348623157e308, 2.0**32, -(2.0**64)]
    ),
    st.builds(math.ldexp, st.sampled_from([1.0, -1.0, 0.1]), st.integers(-1074, 1000)),
)
LEAST = -100


def accumulated(values: list[float]) -> ExactNumbers:
    sums = Accumulator(1)
    sums.add(np.zeros(len(values), np.int64), np.array(values, float))
    return sums.sums()


def fraction(numbers: ExactNumbers, i: int = 0) -> Fraction:
    return Fraction(int(numbers.integers(LEAST)[i])) * Fraction(2) ** (WORD * LEAST)


def nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@given(st.lists(FINITE, max_size=12))
@example([1e16, 1.0, -1e16])
@example([1.0, 2.0**-53, 2.0**-1074])
@example([1.0, 2.0**-53])
@example([-1.0, -(2.0**-53), -(2.0**-120)])
@example([1.7976931348623157e308] * 3)
@example([-(2.0**32), 2.0**-40])
def test_a_sum_is_exact_and_rounded_once_half_to_even(values: list[float]) -> None:
    numbers, exact = accumulated(values), sum(map(Fraction, values), Fraction(0))
    assert fraction(numbers) == exact
    rounded, is_exact = numbers.rounded()
    assert rounded[0] == nearest(exact)
    assert is_exact[0] == (math.isfinite(rounded[0]) and Fraction(rounded[0]) == exact)


@given(st.lists(st.tuples(FINITE, FINITE), max_size=8))
@example([(1e-200, 1e-200), (1e200, 1e200)])
@example([(5e-324, 5e-324), (1.7976931348623157e308, -1.7976931348623157e308), (0.1, 0.1)])
def test_sums_of_products_are_exact(pairs: list[tuple[float, float]]) -> None:
    sums = Accumulator(1)
    left, right = (np.array(side, float) for side in ([a for a, _ in pairs], [b for _, b in pairs]))
    sums.add_products(np.zeros(len(pairs), np.int64), left, right)
    least = 2 * LEAST
    whole = Fraction(int(sums.sums().integers(least)[0])) * Fraction(2) ** (WORD * least)
    assert whole == sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0))


@given(st.lists(st.lists(FINITE, max_size=4), min_size=1, max_size=4))
def test_bytes_hold_numbers_and_only_the_words_that_they_need(groups: list[list[float]]) -> None:
    number = np.repeat(np.arange(len(groups)), [len(values) for values in groups])
    sums = Accumulator(len(groups))
    sums.add(number, np.array([v for values in groups for v in values], float))
    numbers = sums.sums()
    packed = numbers.packed(np.ones(len(groups), bool))
    again = Accumulator(len(groups))
    again.add_packed(np.arange(len(groups)), pa.chunked_array([packed.slice(0, 1), packed.slice(1)]))
    for i, value in enumerate(packed.to_pylist()):
        assert fraction(again.sums(), i) == fraction(numbers, i)
        alone = accumulated(groups[i]).packed(np.ones(1, bool))
        assert alone.to_pylist() == [value], "equal numbers have equal bytes, whatever is beside them"
    assert is_empty(packed).tolist() == [fraction(numbers, i) == 0 for i in range(len(groups))]
    assert is_empty(numbers.packed(np.zeros(len(groups), bool))).all()


@given(FINITE, st.sampled_from([0, 1, 3, 2**29, 2**30, 2**31 + 1, 2**59 + 7]))
def test_a_number_times_an_integer(value: float, factor: int) -> None:
    assert fraction(accumulated([value]).times(np.array([factor]))) == Fraction(value) * factor


def test_more_words_than_a_double_can_add_up() -> None:
    count = CHUNK + 3
    sums = Accumulator(1)
    sums.add(np.zeros(count, np.int64), np.full(count, 2.0**64 - 2.0**11))
    assert fraction(sums.sums()) == count * (2**64 - 2**11)
