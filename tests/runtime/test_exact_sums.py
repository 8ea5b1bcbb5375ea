"""Exact numbers: sums and products of doubles without any rounding, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType

from streamq.plan.partial import COUNT, Partial
from streamq.runtime.partials.built_in_partials import PartialSum
from streamq.runtime.partials.deviation_partials import PartialMoments
from streamq.runtime.partials.exact_sums import CHUNK, WORD, Accumulator, DoubleSums, ExactNumbers, is_empty
from streamq.runtime.partials.ranges import merge_by_window, merge_partial_rows

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


# Sums and deviations of doubles have the same bits in whatever order, and by whatever merges, they are computed.

ANY = st.one_of(FINITE, st.sampled_from([math.nan, math.inf, -math.inf, -0.0]), st.none())
PARTIALS: list[Partial] = [PartialSum("s", "v", DoubleType()), PartialMoments("d", "v", DoubleType())]


def single(values: list[float | None]) -> pa.Table:
    """The partial results of single values, in one group ``k``."""
    table = pa.table({"k": pa.array([1] * len(values), pa.int64()), "v": pa.array(values, pa.float64())})
    table = table.append_column(COUNT, pa.array([1] * len(values), pa.int64()))
    columns = [item for partial in PARTIALS for item in partial.of_events(table).items()]
    return pa.table({"k": table.column("k"), COUNT: table.column(COUNT), **dict(columns)})


def results(table: pa.Table) -> bytes:
    """The bits of the results of a row."""
    for partial in PARTIALS:
        table = partial.finished(table)
    return bits(table)


def bits(table: pa.Table) -> bytes:
    """The bits of a row of results."""
    columns = (table.column(name) for partial in PARTIALS for name in partial.columns)
    return b"".join(
        column.is_valid().to_numpy().tobytes() + column.fill_null(0).to_numpy().tobytes() for column in columns
    )


@given(st.lists(ANY, min_size=1, max_size=10), st.data())
def test_results_are_the_same_for_any_order_and_tree_of_merges(values: list[float | None], data: st.DataObject) -> None:
    at_once = merge_partial_rows(single(values), ["k"], PARTIALS)
    parts = [single([value]) for value in data.draw(st.permutations(values))]
    while len(parts) > 1:
        size = data.draw(st.integers(2, len(parts)))
        at = data.draw(st.integers(0, len(parts) - size))
        some = pa.concat_tables([part.select(at_once.column_names) for part in parts[at : at + size]])
        parts[at : at + size] = [merge_partial_rows(some, ["k"], PARTIALS)]
    assert results(parts[0]) == results(at_once)


@given(st.lists(ANY, min_size=1, max_size=6), st.data())
def test_a_value_that_counts_several_times_is_as_many_values(values: list[float | None], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(1, 4), min_size=len(values), max_size=len(values)))
    held: dict[str, Any] = {"k": [1] * len(values), COUNT: weights}
    table = pa.table(
        held | {name: pa.array(values, pa.float64()) for partial in PARTIALS for name in partial.value_columns}
    )
    for partial in PARTIALS:
        table = partial.from_weighted(table)
    each = single([value for value, weight in zip(values, weights, strict=True) for _ in range(weight)])
    assert results(merge_partial_rows(table, ["k"], PARTIALS)) == results(merge_partial_rows(each, ["k"], PARTIALS))


@pytest.mark.slow
@given(st.lists(st.tuples(ANY, st.integers(0, 40), st.integers(0, 20)), min_size=1, max_size=12))
def test_windows_have_the_same_results_copied_or_cut(events: list[tuple[float | None, int, int]]) -> None:
    table = single([value for value, _, _ in events]).drop_columns(["k"])
    low = np.array([first for _, first, _ in events])
    high = low + np.array([length for _, _, length in events])
    copied, cut = (
        merge_by_window(table, low, high, (), PARTIALS, explode_rows=rows).in_order(["__i"]) for rows in (1_000, 0)
    )
    assert bits(copied.finished()) == bits(cut.finished())


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([1e16, 1.0, -1e16], 1.0),
        ([1e308, 1e308, -1e308], 1e308),
        ([1e308, 1e308], math.inf),
        ([-0.0, -0.0], 0.0),
        ([math.inf, 1.0, math.inf], math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, math.inf, 1.0], math.nan),
        ([0.1] * 10, 1.0),
        ([], 0.0),
    ],
)
def test_sums(values: list[float], total: float) -> None:
    sums, _ = DoubleSums.from_values(np.zeros(len(values), np.int64), np.array(values, float), 1).columns()
    assert sums.tobytes() == np.array([total]).tobytes()


@given(st.lists(FINITE, min_size=1, max_size=8))
def test_deviations_lose_nothing(values: list[float]) -> None:
    rows = merge_partial_rows(single(list(values)), ["k"], PARTIALS)
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    moments = PARTIALS[1].finished(rows)
    assert moments.column("d__m2")[0].as_py() == nearest(sum(((value - mean) ** 2 for value in exact), Fraction(0)))
