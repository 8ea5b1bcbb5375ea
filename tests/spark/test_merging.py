"""Differential: every form of merging, over random histories, gives the oracle's windows."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DoubleType, LongType

import streamq as sq
from streamq import testing as t
from streamq.operators.window_forms import choose_form, merge_partials
from streamq.plan.partial import SparkPartial
from streamq.runtime.partials.built_in_partials import PartialCount, PartialMin, PartialSum
from streamq.testing.backends import frame
from streamq.testing.history import assert_same_history
from streamq.testing.oracle import oracle

COLUMNS = "start bigint, end bigint, k string, whole bigint, price decimal(20,2), v double, name string"
EXACT = {"n": sq.count(), "whole": sq.count("whole"), "s": sq.sum("whole"), "price": sq.sum("price")}
ALL = {
    **EXACT,
    "total": sq.sum("v"),
    "low": sq.min("v"),
    "high": sq.max("v"),
    "greatest": sq.max("name"),
    "spread": sq.var_pop("v"),
    "both": sq.covar_pop("v", "whole"),
    "first": sq.first("name"),
    "last": sq.last("name"),
}
GRIDS = {"points": [(3, 7), (64, 1)], "intervals": [(25, 10)]}


def history(shape: str, size: int, hop: int) -> pa.Table:
    """Random events: negative times, gaps, NULL keys and values, NaN, values that differ little from 1e9, one a century away."""
    rng = random.Random(f"{shape} {size} {hop}")
    rows = []
    for span, base in ((60, 0.0), (400, 1e9)):
        for _ in range(60):
            start = rng.randint(-span, span) + (10**9 if rng.random() < 0.02 else 0)
            length = 1 if shape == "points" else rng.choice([1, 2, rng.randint(1, 3 * span)])
            v = rng.choice([None, math.nan, *(base + rng.choice([-1.0, 0.0, 1.0, rng.random()]) for _ in range(20))])
            price = rng.choice([None, Decimal(rng.randint(-(10**6), 10**6)).scaleb(-2)])
            whole, name = rng.choice([None, rng.randint(-(2**40), 2**40)]), rng.choice([None, "a", "b", "ab"])
            rows.append((start, start + length, rng.choice(["a", None, f"b{span}"]), whole, price, v, name))
    return t.table(COLUMNS, rows)


def check(spark: SparkSession, form: str, shapes: Sequence[str], aggregates: dict[str, Any], *keys: str) -> None:
    """Compare windows of all grids, one query in a form of merging, with the oracle's."""
    tables, windows = {}, []
    grids = [(shape, *grid) for shape in shapes for grid in GRIDS[shape]]
    for number, (shape, size, hop) in enumerate(grids):
        name = f"{shape}{number}"
        tables[name] = history(shape, size, hop)
        rows = sq.intervals(frame(spark, tables[name]), "start", "end", name=name)
        grouped: Any = rows.to_points() if shape == "points" else rows
        grouped = grouped.group_by(*keys) if keys else grouped
        windows.append(grouped.hopping_window(size, hop, number).select(**aggregates).with_columns(g=sq.lit(number)))
    query = windows[0].union(*windows[1:])
    expected = oracle(query.plan, tables)
    assert expected.num_rows > 300
    assert_same_history(query.to_df(form=form).toArrow(), expected, tolerance=1e-6)


@pytest.mark.parametrize(
    ("form", "shapes", "aggregates"),
    [
        ("difference", ["points", "intervals"], EXACT),
        ("explode", ["points", "intervals"], ALL),
        ("dyadic", ["points", "intervals"], ALL),
        ("blocks", ["points"], ALL),
    ],
)
def test_any_ranges(spark: SparkSession, form: str, shapes: Sequence[str], aggregates: dict[str, Any]) -> None:
    check(spark, form, shapes, aggregates, "k")


@pytest.mark.parametrize("form", ["difference", "blocks"])
def test_no_keys_are_keys(spark: SparkSession, form: str) -> None:
    check(spark, form, ["points"], EXACT)


def sums(spark: SparkSession, rows: Sequence[tuple[int, int, int]]) -> DataFrame:
    filled = [(lo, hi, 1, value, 1) for lo, hi, value in rows]
    return spark.createDataFrame(filled, "__lo bigint, __hi bigint, __n bigint, s bigint, s__n bigint")


def test_difference_overflows_only_where_a_window_does(spark: SparkSession) -> None:
    big, total = 2**62 + 2**61, [PartialSum("s", "", LongType())]
    rows = [(0, 0, big), (0, 1, big), (0, 1, -big), (1, 2, big), (2, 3, -big), (3, 3, -(2**61)), (4, 4, -(2**63))]
    merged = merge_partials(sums(spark, rows), [], total, 2, "difference").collect()
    assert {row["__i"]: row["s"] for row in merged} == {0: big, 1: big, 2: 0, 3: -(2**63), 4: -(2**63)}
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        merge_partials(sums(spark, [(0, 1, big), (1, 2, big)]), [], total, 2, "difference").collect()


def test_a_form_that_does_not_fit_is_an_error(spark: SparkSession) -> None:
    df = sums(spark, [(0, 1, 1)])
    with pytest.raises(ValueError, match="s cannot be subtracted"):
        merge_partials(df, [], [PartialSum("s", "", DoubleType())], 2, "difference")
    with pytest.raises(ValueError, match="no form 'direct' for partials"):
        merge_partials(df, [], [PartialSum("s", "", LongType())], 2, "direct")


SUBTRACTED = (PartialCount("n", "", LongType()), PartialSum("s", "", LongType()))
PARTIALS = (*SUBTRACTED, PartialMin("low", "", DoubleType()))


@pytest.mark.parametrize(
    ("shape", "n", "partials", "most", "form"),
    [
        ("point", 1, PARTIALS, 1, "direct"),
        ("point", 4, PARTIALS, 4, "direct"),
        ("point", 24, PARTIALS, 24, "explode"),
        ("point", 25, PARTIALS, 25, "blocks"),
        ("point", 9, SUBTRACTED, 9, "difference"),
        ("interval", 1, SUBTRACTED, 3, "difference"),
        ("interval", 1, PARTIALS, 64, "explode"),
        ("interval", 1, PARTIALS, 65, "dyadic"),
        ("interval", 1, PARTIALS, None, "dyadic"),
    ],
)
def test_the_form_where_nothing_is_expected(
    shape: str, n: int, partials: Sequence[SparkPartial], most: int | None, form: str
) -> None:
    assert choose_form(shape, n, partials, most=most).form == form
