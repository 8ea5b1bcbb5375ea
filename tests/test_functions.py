"""Functions by name: what becomes a column, what stays plain, what is refused."""

from __future__ import annotations

import datetime as dt
import inspect
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as t

import streamq as sq
from scripts.expressions_page import NOTES
from streamq import col, lit, when
from streamq import functions as f
from streamq.errors import NeedsSpark, PlanError, StreamqError
from streamq.functions.catalogue import function_of, legal_names
from streamq.plan.expr import Call, Expr, show
from streamq.plan.hints import INSTEAD
from streamq.plan.passes import columns


@pytest.mark.parametrize(
    ("built", "shown", "read"),
    [
        (f.upper("name"), "upper(name)", {"name"}),
        (f.upper(col("name")), "upper(name)", {"name"}),
        (f.date_format(col("ts"), "yyyy"), "date_format(ts, 'yyyy')", {"ts"}),
        (f.substring("s", 1, 2), "substring(s, 1, 2)", {"s"}),
        (f.substring("s", "p", len="l"), "substring(s, p, l)", {"s", "p", "l"}),
        (f.round("x", scale=2), "round(x, 2)", {"x"}),
        (f.round("x"), "round(x)", {"x"}),
        (f.concat_ws(",", "a", "b"), "concat_ws(',', a, b)", {"a", "b"}),
        (f.array(["a", "b"]), "array(a, b)", {"a", "b"}),
        (f.coalesce("a", 0), "coalesce(a, 0)", {"a"}),
        (f.regexp_replace("s", "x", "y"), "regexp_replace(s, 'x', 'y')", {"s"}),
        (f.log(2.0, "x"), "log(2.0, x)", {"x"}),
        (f.log("x"), "log(x)", {"x"}),
        (f.lpad("s", 3, "#"), "lpad(s, 3, '#')", {"s"}),
        (f.trim("s", lit("#")), "trim(s, '#')", {"s"}),
        (f.array_contains("a", "v"), "array_contains(a, 'v')", {"a"}),
        (f.extract("YEAR", "ts"), "extract('YEAR', ts)", {"ts"}),
        (f.locate("x", "s", pos=3), "locate('x', s, 3)", {"s"}),
        (f.date_trunc(lit("hour"), "ts"), "date_trunc('hour', ts)", {"ts"}),
        (f.pow("x", np.float64(2)), "pow(x, 2.0)", {"x"}),
        (f.rand(), "rand()", set()),
    ],
)
def test_strings_are_columns_where_pyspark_takes_columns(built: Call, shown: str, read: set[str]) -> None:
    assert (show(built), columns(built)) == (shown, read)


def test_plain_arguments_are_json() -> None:
    built = [
        f.round("x", scale=2),
        f.from_json("s", t.StructType([t.StructField("a", t.IntegerType())])),
        f.levenshtein("a", "b", threshold=2),
    ]
    plain = [a for call in built for a in call.args if not isinstance(a, Expr)]
    assert all(a is None or isinstance(a, str | int | float | bool) for a in plain)


def test_a_builder_has_the_name_signature_and_help_of_pysparks() -> None:
    assert f.upper.__name__ == "upper"
    assert list(inspect.signature(f.substring).parameters) == ["str", "pos", "len"]
    assert inspect.getdoc(f.upper)
    assert f.upper is f.upper


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: f.uper("s"), "Did you mean 'upper'?"),
        (lambda: f.sum("x"), "sq.sum in a window's select"),
        (lambda: f.mean("x"), "sq.avg in a window's select"),
        (lambda: f.bit_and("x"), "In a window's select there are sq.avg"),
        (lambda: f.row_number(), "window function"),
        (lambda: f.explode("a"), "several rows"),
        (lambda: f.window("ts", "1 hour"), "tumbling_window"),
        (lambda: f.lit(1), "sq.lit"),
        (lambda: f.expr("a"), "PySpark"),
        (lambda: f.udf("a"), "@sq.udf"),
        (lambda: f.upper(), "missing a required argument: 'col'; it is upper(col)"),
        (lambda: f.upper("a", b=1), "unexpected keyword argument 'b'"),
        (lambda: f.transform("a", lambda x: x), "Pass a pyspark Column instead: pyspark.sql.functions.transform(...)"),
        (lambda: f.from_json("s", "a int", {"mode": "x"}), "Pass a pyspark Column instead"),
        (lambda: f.date_trunc(col("unit"), "ts"), "format is a plain value in PySpark"),
    ],
)
def test_what_is_no_function_of_an_event_says_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(PlanError) as caught:
        make()
    assert words in str(caught.value)


def test_dir_lists_what_can_be_called() -> None:
    names = dir(f)
    assert {"upper", "date_format", "coalesce", "element_at"} <= set(names)
    assert not {"sum", "explode", "row_number", "udf", "col"} & set(names)
    assert all(callable(getattr(f, name)) for name in names)
    assert not hasattr(f, "sum")


def test_private_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError) as caught:
        f.__wrapped__
    assert not isinstance(caught.value, PlanError)


# Functions that run on Spark alone: what their errors say to write instead runs in-process; and the limits that docs state.

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
EVENTS = sq.events(
    [(1, 2, {"m": 7, "b": 2, "s": "ab", "ts": NOON}), (2, None, {"m": -7, "b": 0, "s": None, "ts": None})]
)
m, b, s = col("m"), col("b"), col("s")


@pytest.fixture(autouse=True)
def _no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)


@pytest.mark.parametrize("name", INSTEAD)
def test_what_a_hint_says_to_write_instead_runs_in_process(name: str) -> None:
    assert name in legal_names() and function_of(name).arrow is None
    code = re.split(r", \.\.\.| for ", INSTEAD[name])[0]
    assert any(runs(code, x) for x in (m, s, col("ts"), f.to_date("ts")))


def runs(code: str, x: Expr) -> bool:
    """True if expressions of a number, a text, an instant or a date are evaluated in-process."""
    names = {"sq": sq, "x": x, "y": b, "n": 5, "part": lit("a"), "by": lit("b"), "days": lit(3)}
    try:
        return (
            EVENTS.select(*(e.alias(f"x{i}") for i, e in enumerate(eval(f"({code},)", names)))).to_arrow().num_rows == 2
        )
    except StreamqError:
        return False


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        (f.pmod("m", lit(5)) + 1, r"pmod\(\) runs on Spark alone, .*; found pmod\(m, 5\)\. Write \(x % n \+ n\) % n; or start"),
        (f.soundex("s"), r"soundex\(\) runs .* Start a session by sq.session\(\), and call to_df\(\).*docs/expressions.md lists"),
        (s["a"], r"x\[key\] runs on Spark alone"),
        (when(m > 1, "a").otherwise(1), "values of several types in one column; .* Cast them to one type."),
        (f.round(lit(Decimal("1.25")), 1), "only Spark knows the type .* Cast its operands; or start a session"),
    ],
    ids=str,
)  # fmt: skip
def test_without_a_session_the_part_that_takes_spark_is_named(expr: Expr, words: str) -> None:
    with pytest.raises(NeedsSpark, match=words):
        EVENTS.select(x=expr)


@pytest.mark.parametrize(
    ("name", "expr"),
    [
        ("+", lit(dt.date(2024, 1, 1)) + 1),
        ("%", lit(Decimal("1.5")) % 2),
        ("==", f.array("m") == f.array("m")),
        ("round", f.round(lit(Decimal("1.25")), 1)),
        ("rlike", f.regexp_like(s, s)),
        ("hour", f.hour(lit(dt.datetime(2024, 1, 1)).cast("timestamp_ntz"))),
        ("concat", f.concat(f.array("m"), f.array("m"))),
    ],
)
def test_limits_of_functions_in_process(name: str, expr: Expr) -> None:
    assert name in NOTES
    with pytest.raises(NeedsSpark):
        EVENTS.where(f.isnull(expr)).to_arrow()
