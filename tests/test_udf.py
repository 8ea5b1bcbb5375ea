"""Functions of a user's own, in-process: what they are called with, what they may give, how they fail, what tells them apart."""

from __future__ import annotations

import datetime as dt
import math
import sys
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
from streamq.errors import ModuleFailed, PlanError
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


def test_functions_that_are_there_are_wrapped_in_one_line() -> None:
    hypot = sq.udf("double")(math.hypot)
    logs = sq.udf("double", takes="series", name="log")(np.log1p)
    upper = sq.udf("string", takes="arrays")(pc.utf8_upper)
    rows = S.where(col("v") > 0).select(x=hypot("v", sq.lit(3)), y=logs("v"), z=upper("k")).to_arrow().to_pylist()
    assert [(row["x"], row["z"]) for row in rows] == [(5.0, "A"), (math.hypot(9, 3), "B")]
    assert rows[0]["y"] == pytest.approx(math.log1p(4))


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


@pytest.mark.parametrize("takes", ["values", "series", "arrays"])
def test_an_error_names_the_function_and_the_event(takes: str) -> None:
    def inverse(v: Any, of: Any) -> Any:
        if takes == "values":
            return of / v
        if 0 in v.to_pylist() if takes == "arrays" else (v == 0).any():
            raise ZeroDivisionError("division by zero")
        return pc.divide(of, v) if takes == "arrays" else of / v

    function = sq.udf("double", takes=takes)(inverse)
    with pytest.raises(
        ModuleFailed, match=r"inverse: it failed; ZeroDivisionError: (float )?division by zero; of v = 0, of = 1(.0)?\."
    ):
        S.where(col("v") >= 0).select(x=function(col("v") - 4, sq.lit(1.0))).to_arrow()


def test_an_error_that_nothing_depends_on_is_none() -> None:
    inverse = sq.udf("double")(lambda v: 1 / v)
    guarded = sq.when(col("v") != 4, inverse(col("v") - 4))
    assert values(S.where(col("v") > 0).select(x=guarded)) == [None, 0.2]
    assert values(S.where(col("v") > 4).where(inverse(col("v") - 4) > 0), "v") == [9]


@pytest.mark.parametrize(
    ("kind", "takes", "code", "message"),
    [
        ("int", "values", lambda v: "many", r"'many' is no int; of v = 4"),
        ("int", "values", lambda v: 2**40, "1099511627776 is no int"),
        ("int", "series", lambda v: v.head(0), "0 results for 1 events"),
        (
            "int",
            "arrays",
            lambda v: v.filter(pa.array([False] * len(v))),
            "0 results for 1 events",
        ),
        ("date", "arrays", lambda v: pa.array(["x"] * len(v)), "is no column of date"),
        ("string", "values", lambda v: [v], r"\[4\] is no string"),
        ("string", "series", lambda v: v, "is no column of string: it is a column of int64"),
        ("timestamp", "arrays", lambda v: v, "is no column of timestamp: it is a column of int64"),
        ("boolean", "series", lambda v: v, "is no column of boolean"),
        ("int", "series", lambda v: v + 0.5, "is no column of int"),
        ("bigint", "values", lambda v: 1.5, "1.5 is no bigint"),
        ("int", "values", lambda v: np.float64(2.7), "is no int"),
        ("array<int>", "values", lambda v: [1.5], r"\[1.5\] is no array<int>"),
        ("struct<a: int, b: int>", "values", lambda v: {"a": 1, "c": 2}, "is no struct<a:int,b:int>"),
        ("date", "values", lambda v: dt.datetime(2024, 5, 1, 12), "is no date"),
        ("timestamp", "values", lambda v: 5, "5 is no timestamp"),
        ("float", "values", lambda v: 1e300, "1e\\+300 is no float"),
        ("bigint", "values", lambda v: True, "True is no bigint"),
    ],
)
def test_what_is_no_result_is_refused(kind: str, takes: str, code: Any, message: str) -> None:
    with pytest.raises(ModuleFailed, match=message):
        S.where(col("v") == 4).select(x=sq.udf(kind, takes=takes)(code)("v")).to_arrow()


def test_a_call_is_checked_while_the_query_is_written() -> None:
    with pytest.raises(
        PlanError, match=r"by_value: it is called with 3 columns; it takes 1 to 2. It is by_value\(v, scale=1\)"
    ):
        by_value("v", "v", "v")
    with pytest.raises(PlanError, match="by_value: it is called without a column"):
        by_value()
    with pytest.raises(PlanError, match="by_value: no parameter 'scales'. Did you mean 'scale'"):
        by_value("v", scales=2)
    with pytest.raises(
        PlanError, match="udf: takes is 'values', 'series' or 'arrays'; found 'seris'. Did you mean 'series'"
    ):
        sq.udf("double", takes="seris")
    with pytest.raises(PlanError, match="udf: not a function; found 3"):
        sq.udf("double")(3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="by_value: scale is a plain value; found a column. Columns come by position"):
        by_value("v", scale=col("v"))
    with pytest.raises(PlanError, match=r"udf: no type of the results; found <built-in function len>. Write @sq.udf"):
        sq.udf(len)  # type: ignore[arg-type]
    lock = threading.Lock()
    with pytest.raises(PlanError, match="f: what it holds cannot be pickled; TypeError: cannot pickle '_thread.lock'"):
        sq.udf("int", name="f")(lambda v: v if lock else 0)


def test_what_fails_for_events_together_fails() -> None:
    """Even where it answers for each alone: an answer may not go by which events come together."""

    def first(v: pd.Series) -> pd.Series:
        return v.head(1)

    def only_one(v: pa.Array) -> pa.Array:
        if len(v) > 1:
            raise ValueError("too many")
        return v

    for takes, code, wrong in (
        ("series", first, "1 results for 4 events"),
        ("arrays", only_one, "ValueError: too many"),
    ):
        with pytest.raises(ModuleFailed, match=f"it failed; {wrong}; of 4 events together, and none of them alone"):
            S.select(x=sq.udf("bigint", takes=takes)(code)("v")).to_arrow()


def test_whole_numbers_with_nulls_are_floats_in_pandas() -> None:
    assert values(S.select(x=sq.udf("bigint", takes="series")(lambda v: v.astype("float64"))("v"))) == [4, 9, None, -1]


def test_what_it_raised_is_the_cause() -> None:
    with pytest.raises(ModuleFailed) as caught:
        S.where(col("v") == 4).select(x=sq.udf("double")(lambda v: v / 0)("v")).to_arrow()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.__cause__.__traceback__ is not None


@pytest.mark.parametrize("takes", ["values", "series", "arrays"])
def test_what_would_end_the_program_fails_like_any_error(takes: str) -> None:
    leaving = sq.udf("int", takes=takes, name="leaving")(lambda v: sys.exit(3))
    with pytest.raises(ModuleFailed, match="leaving: it failed; SystemExit: 3; of v = 4") as raised:
        S.where(col("v") == 4).select(x=leaving("v")).to_arrow()
    assert isinstance(raised.value.__cause__, SystemExit)

    def interrupted(v: Any) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        S.select(x=sq.udf("int", takes=takes)(interrupted)("v")).to_arrow()


def test_what_a_function_says_of_itself_does_not_tell_it_apart() -> None:
    def one(v: int) -> int:
        """One text."""
        return v + 1

    def two(v: int) -> int:
        """Another."""
        return v + 1

    assert sq.udf("int", name="f")(one)("v").digest == sq.udf("int", name="f")(two)("v").digest


def test_what_tells_functions_apart() -> None:
    def made(add: int) -> Any:
        return sq.udf("int", name="f")(lambda v: v + add)

    calls = [made(1)("v"), made(2)("v"), by_value("v"), by_value("v", scale=2), over_series("v")]
    calls += [sq.udf("double", name="f")(math.sin)("v"), sq.udf("double", name="f")(math.cos)("v")]
    assert len({call.digest for call in calls}) == len(calls)
    assert made(1)("v").digest == made(1)("v").digest


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
