"""Functions of a user's own, in-process: what they are called with, what they may give, how they fail, what tells them apart."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamq as sq
from streamq import col
from streamq.compiler.rules.rule import can_fail
from streamq.errors import PlanError
from streamq.testing.oracle import oracle

S = sq.events(
    [
        (1, 4, {"k": "a", "v": 4}),
        (2, 5, {"k": "b", "v": 9}),
        (3, 6, {"k": None, "v": None}),
        (4, 9, {"k": "c", "v": -1}),
    ],
    name="s",
)


@sq.udf("double")
def by_value(v: int | None, scale: int = 1) -> float | None:
    """The root."""
    return None if v is None or v < 0 else math.sqrt(v) * scale


@sq.udf("double", takes="series")
def over_series(v: pd.Series, scale: int = 1) -> pd.Series:
    return np.sqrt(v.where(v >= 0, 0.0).astype("float64")).where(v.fillna(-1) >= 0) * scale


@sq.udf("double", takes="arrays")
def over_arrays(v: pa.Array, scale: int = 1) -> pa.Array:
    return pc.multiply(pc.sqrt(pc.if_else(pc.greater_equal(v, 0), pc.cast(v, pa.float64()), None)), scale)


def values(stream: sq.Stream, column: str = "x") -> list[Any]:
    return [None if value != value else value for value in stream.to_arrow().column(column).to_pylist()]


@pytest.mark.parametrize("function", [by_value, over_series, over_arrays], ids=lambda f: f.name)
def test_it_is_an_expression_like_any_other(function: Any) -> None:
    assert values(S.select(x=function("v"))) == [2.0, 3.0, None, None]
    assert values(S.select(x=function(col("v") + 7, scale=2) + 1)) == [
        1 + 2 * math.sqrt(11),
        9.0,
        None,
        1 + 2 * math.sqrt(6),
    ]
    assert S.select(x=function("v")).schema.describe() == "x double; interval on integer"
    assert values(S.where(function("v") > 2), "v") == [9]
    groups = S.where(col("v") >= 0).group_by(root=function("v")).snapshot_window().select(n=sq.count())
    assert groups.to_arrow().num_rows == 2
    pairs = S.join(S, where=lambda a, b: function(a.v) < function(b.v), suffixes=("", "_r"))
    assert values(pairs, "v_r") == [9]
    judged = oracle(pairs.plan, pairs.tables)
    assert judged.column("v_r").to_pylist() == [9]
    assert S.group_by("k").tumbling_window(20).select(x=sq.max(function("v"))).to_arrow().num_rows == 4


def test_explain_and_its_own_text_show_it() -> None:
    assert "where by_value(v) > 2" in S.where(by_value("v") > 2).explanation("logical")
    assert by_value.__doc__ == "The root."
    assert can_fail(by_value("v"), S.plan.schema)


def test_results_of_many_types() -> None:
    made = {
        "array<int>": lambda v: [v, 1],
        "struct<a: int, b: string>": lambda v: {"a": v, "b": "x"},
        "date": lambda v: __import__("datetime").date(2024, 5, 1),
        "boolean": lambda v: v > 4,
        "decimal(5,2)": lambda v: __import__("decimal").Decimal(v),
    }
    stream = S.where(col("v") > 0)
    for kind, code in made.items():
        first = stream.select(x=sq.udf(kind)(code)("v")).to_arrow().column("x").to_pylist()[0]
        assert first == code(4), kind


def test_an_error_that_nothing_depends_on_is_none() -> None:
    inverse = sq.udf("double")(lambda v: 1 / v)
    guarded = sq.when(col("v") != 4, inverse(col("v") - 4))
    assert values(S.where(col("v") > 0).select(x=guarded)) == [None, 0.2]
    assert values(S.where(col("v") > 4).where(inverse(col("v") - 4) > 0), "v") == [9]


def test_whole_numbers_with_nulls_are_floats_in_pandas() -> None:
    assert values(S.select(x=sq.udf("bigint", takes="series")(lambda v: v.astype("float64"))("v"))) == [4, 9, None, -1]


def test_options_tell_calls_apart_by_their_values() -> None:
    many = np.arange(2_000)
    others = many.copy()
    others[1_000] = 0
    options: list[Any] = [many, others, (1, 2), [1, 2], {"a": 1}, {"a": "1"}, {"x", "y"}, {"x"}, 1, 1.0, "1", b"1"]
    calls = [by_value("v", scale=option) for option in options]
    assert len({call.digest for call in calls}) == len(calls)
    assert by_value("v", scale=many).digest == by_value("v", scale=many.copy()).digest
    with pytest.raises(PlanError, match="by_value: scale is no plain value; found <unlocked.*cannot pickle"):
        by_value("v", scale=threading.Lock())


@pytest.mark.parametrize("takes", ["values", "series", "arrays"])
def test_an_events_result_does_not_depend_on_the_events_beside_it(takes: str) -> None:
    """Zero, NULL and NaN divided by themselves, alone and beside each other; a result of NaN is NULL."""
    forms = {
        "values": lambda v: None if v is None else (float("nan") if v == 0 or v != v else v / v),
        "series": lambda v: v / v,
        "arrays": lambda v: pc.divide(v, v),
    }
    for kind in (pa.float64(), pa.int32()):
        ratio = sq.udf("double", takes=takes, name="ratio")(
            lambda v: forms[takes](v.cast(pa.float64()) if takes == "arrays" else v)
        )
        values: list[Any] = [0, None, 2, 0, 5] + ([float("nan")] if kind == pa.float64() else [])
        expected = [None if v in (0, None) or v != v else 1.0 for v in values]
        for first in range(len(values)):
            for last in range(first + 1, len(values) + 1):
                table = pa.table({"start": range(last - first), "v": pa.array(values[first:last], kind)})
                results = sq.points(table, time="start").select(x=ratio("v")).to_arrow().sort_by("start")
                assert results.column("x").to_pylist() == expected[first:last]
