"""Sums and deviations of doubles have the same bits in whatever order, and by whatever merges, they are computed."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType

from streamq.plan.partial import COUNT, Partial
from streamq.runtime.built_in_partials import PartialSum
from streamq.runtime.deviation_partials import PartialMoments
from streamq.runtime.exact_sums import DoubleSums
from streamq.runtime.range_partials import merge_by_window, merge_partial_rows
from tests.runtime.test_exact_numbers import FINITE, nearest

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
    sums, _ = DoubleSums.of(np.zeros(len(values), np.int64), np.array(values, float), 1).columns()
    assert sums.tobytes() == np.array([total]).tobytes()


@given(st.lists(FINITE, min_size=1, max_size=8))
def test_deviations_lose_nothing(values: list[float]) -> None:
    rows = merge_partial_rows(single(list(values)), ["k"], PARTIALS)
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    moments = PARTIALS[1].finished(rows)
    assert moments.column("d__m2")[0].as_py() == nearest(sum(((value - mean) ** 2 for value in exact), Fraction(0)))


def test_a_small_deviation_beside_a_great_mean() -> None:
    rows = merge_partial_rows(single([1e9 + offset for offset in (4.0, 7.0, 13.0, 16.0)]), ["k"], PARTIALS)
    assert PARTIALS[1].finished(rows).column("d__m2")[0].as_py() == 90.0
