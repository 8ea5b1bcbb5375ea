"""What Python, pandas and PySpark would have on an expression: an error at the user's line that says what to write instead."""

from __future__ import annotations

import datetime as dt
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import streamq as sq
from streamq import functions
from streamq.errors import PlanError, StreamqError, StreamqWarning, TimeError, TypeMismatch, UnknownColumn
from streamq.plan.expr import Lit, as_expr

EVENTS = sq.events([(1, 5, {"v": 3, "x": 1.5, "txt": "abc", "xs": [1, 2], "ok": True})])


@pytest.mark.parametrize(
    ("function", "hint"),
    [
        (lambda e: e.txt.upper(), 'Write sq.functions.upper("txt").'),
        (lambda e: e.txt.strip(), 'Write sq.functions.trim("txt").'),
        (lambda e: e.txt.split(","), 'Write sq.functions.split("txt", ...).'),
        (lambda e: e.x.isNaN(), 'Write sq.functions.isnan("x").'),
        (lambda e: (e.x + 1).fillna(0), "Write sq.functions.coalesce(..., sq.lit(0))."),
        (lambda e: e.v == None, "== None is true of no value, as of NULL in SQL; found v. Write .is_null()."),  # noqa: E711
        (lambda e: e.v != None, "Write .is_not_null()."),  # noqa: E711
        (lambda e: e.v > pd.NaT, "Write .is_null()."),
        (lambda e: e.txt + "!", "Texts are put together by sq.functions.concat(x, y)."),
        (lambda e: e.v + "1", "+ needs numbers; found string in v + '1'. Cast it."),
        (lambda e: e.v.sum(), 'Use sq.sum("v") in a window\'s select.'),
        (lambda e: e.v.mean(), 'Use sq.avg("v") in a window\'s select.'),
        (lambda e: e.txt.startwith("a"), "Did you mean 'startswith'?"),
        (lambda e: e.txt.qqqq, "A field of a struct is expression['qqqq']."),
        (lambda e: len(e.txt), 'Write sq.functions.length("txt"), or sq.functions.size("txt") of an array or map.'),
        (lambda e: e.txt[0:3], 'Write sq.functions.substring("txt", from, length)'),
        (lambda e: "a" in e.txt, "Write .contains(...)"),
        (lambda e: e.txt in ["a", "b"], ".isin(...) for in"),
        (lambda e: 1 if e.ok else 2, "sq.when(...) for if"),
        (lambda e: e.ok and e.v > 1, "Use & | ~ instead of and, or, not"),
        (lambda e: max(e.v, 2), "greatest and least for max and min"),
        (lambda e: sum(e.xs), "aggregates are sq.sum"),
        (lambda e: str(e.v), "Write .cast('string')"),
        (lambda e: f"{e.v}!", "Write sq.functions.concat(...)"),
        (lambda e: f"{e.x:.2f}", "sq.functions.format_string(...)"),
        (lambda e: float(e.v), "Write .cast('double')"),
        (lambda e: math.sqrt(e.v), "as sq.functions.sqrt"),
        (lambda e: int(e.x), "Write .cast('bigint')"),
        (lambda e: math.trunc(e.x), "Write .cast('bigint')"),
        (lambda e: math.floor(e.x), 'Write sq.functions.floor("x").'),
        (lambda e: math.ceil(e.x), 'Write sq.functions.ceil("x").'),
        (lambda e: complex(e.x), "Write .cast('double')"),
        (lambda e: range(e.v), "It has a value an event"),
        (lambda e: round(e.x, 1), 'Write sq.functions.round("x", 1)'),
        (lambda e: e.v // 2, "Write sq.functions.floor(x / y)."),
        (lambda e: 2 // e.v, "Write sq.functions.floor(x / y)."),
        (lambda e: divmod(e.v, 2), "and x % y"),
        (lambda e: operator.matmul(e.v, 2), "Products of numbers are x * y."),
        (lambda e: e.ok ^ True, "Of booleans write x != y"),
        (lambda e: e.v << 2, "Write sq.functions.shiftleft(x, n)."),
        (lambda e: 2 >> e.v, "Write sq.functions.shiftright(x, n)."),
        (lambda e: np.sqrt(e.x), 'Write sq.functions.sqrt("x").'),
        (lambda e: np.array([1, 2]) * e.x, "arrays are made by sq.functions.array(...)"),
        (lambda e: [e.v, e.x], "arrays are made by sq.functions.array(...)"),
        (lambda e: e.v == len, 'made one of expressions by sq.udf'),
        (lambda e: e.v.cast(int), "Write 'bigint'."),
        (lambda e: e.v.cast(None), "Give the name of a type"),
        (lambda e: e, "a whole event where one of its columns is wanted; found an event of v, x, txt, xs, ok. Write e.v."),
        (lambda e: e > 5, "Write e.v."),
        (lambda e: len(e), "Write e.v."),
        (lambda e: e.V, "Did you mean 'v'?"),
    ],
)  # fmt: skip
def test_what_is_written_in_another_language(function: Callable[[Any], Any], hint: str) -> None:
    with pytest.raises(PlanError) as error:
        EVENTS.select(y=function)
    assert hint in str(error.value)


def test_a_text_that_is_the_name_of_a_column() -> None:
    """It is a text after a keyword, and warned of at the user's line; any other text is not."""
    for made in (lambda: EVENTS.select(y="v"), lambda: EVENTS.with_columns(y="v")):
        with pytest.warns(StreamqWarning, match=r"y='v' is a text.* Write y=sq.col\('v'\) for the column") as caught:
            assert made().columns[-1] == "y"
        assert [w.filename for w in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        EVENTS.select(y="w", z=sq.lit("v"), v=sq.col("v"))


def test_an_array_of_nothing_is_told_to_have_a_type() -> None:
    with pytest.raises(
        TypeMismatch, match=r"found array<void>. Say its type where the stream is made: sq.events\(..., schema="
    ):
        sq.events([(1, 5, {"k": []})]).group_by("k")
    with pytest.raises(functions.UnknownFunction, match="Did you mean 'length'?"):
        _ = functions.len


def test_what_is_the_same_in_spark_works() -> None:
    found = EVENTS.select(
        a=lambda e: abs(-e.v), b=lambda e: +e.v, c=lambda e: np.int64(2) * e.v, d=lambda e: np.float64(2) - e.x,
        e=lambda e: e.v < np.int8(4),
    )  # fmt: skip
    assert found.to_arrow().to_pylist() == [{"a": 3, "b": 3, "c": 6, "d": 0.5, "e": True, "start": 1, "end": 5}]
    assert repr(EVENTS["x"] ** 2) == "pow(x, 2)"
    assert repr(2 ** EVENTS["x"]) == "pow(2, x)"
    assert not hasattr(EVENTS["x"], "upper")
    assert f"{EVENTS['x']!r}" == str(EVENTS["x"]) == "x"


def test_scalars_of_numpy_and_pandas_are_what_they_say() -> None:
    moment = dt.datetime(2020, 1, 1)
    for given in (np.datetime64("2020-01-01", "ns"), np.datetime64("2020-01-01", "s"), pd.Timestamp(moment)):
        assert isinstance(literal := as_expr(given), Lit)
        assert literal.value == moment
    for nothing in (np.datetime64("NaT"), pd.NaT):
        assert isinstance(literal := as_expr(nothing), Lit)
        assert literal.value is None
    with pytest.raises(TypeMismatch, match="Give a Python one"):
        as_expr(np.longdouble(1))


POINTS = sq.points(pa.table({"at": [1, 2], "v": [1, 2]}), time="at")
STAYS = sq.intervals(pa.table({"from": [1, 2], "to": [3, 4], "w": [1, 2]}), start="from", end="to")
TASKS = sq.edges(pa.table({"at": [1], "what": ["start"], "k": [1]}), time="at", edge="what", key="k")
CHANGES = pa.table({"type": ["insert"], "a": [1], "b": [2], "c": [3], "v": [1]})
PHYSICAL = sq.physical(CHANGES, kind="type", start="a", end="b", new_end="c")


@pytest.mark.parametrize(
    ("verb", "hint"),
    [
        (lambda: POINTS.where(sq.col("at") > 1), "it is sq.start() now"),
        (lambda: POINTS.at, "it is sq.start() now"),
        (lambda: POINTS.drop("at"), "it is sq.start() now"),
        (lambda: POINTS.tumbling_window(5).select(n=sq.count()).where(sq.col("at") > 1), "it is sq.start() now"),
        (lambda: POINTS.join(STAYS).where(sq.col("to") > 1), "it is sq.end() now"),
        (lambda: POINTS.join(STAYS, where=sq.col("to") > 1), "it is sq.end() now"),
        (
            lambda: POINTS.select(w=sq.col("v")).union(STAYS.to_points().select("w")).where(sq.col("from") > 1),
            "it is sq.start() now",
        ),
        (lambda: TASKS.where(sq.col("what") == "start"), "it says what a row is, and is no part of an event"),
        (lambda: PHYSICAL.where(sq.col("type") == "insert"), "it says what a row is, and is no part of an event"),
        (lambda: PHYSICAL.where(sq.col("c") == 1), "it is sq.end() now"),
    ],
)
def test_columns_that_the_source_has_read(verb: Callable[[], Any], hint: str) -> None:
    with pytest.raises(UnknownColumn, match=r"no column .*; there are: ") as error:
        verb()
    assert f"The source has read it: {hint}." in str(error.value)


def test_errors_of_results_show_no_names_of_our_own() -> None:
    window = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 5})]).tumbling_window(5)
    for column, shown in (
        (sq.sum("v") / (sq.count() - 2), "sum(...) / (count(...) - 2)"),
        (sq.functions.sha(sq.max("v").cast("string")), "max(...)"),
        ((sq.avg("v") * 2).cast("tinyint") + sq.lit(127).cast("tinyint"), "sum(...) / cast(count(...) as double)"),
        (sq.max("v") == "a", "max(...) == 'a'"),
        (sq.sum("v", where=sq.col("v") < 2) / (sq.sum("v") - 6), "sum(...) / (sum(...) - 6)"),
    ):
        with pytest.raises(StreamqError, match="found") as error:
            window.select(x=column).to_arrow()
        assert "__" not in str(error.value), error.value
        assert shown in str(error.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("v > 2", 'write col("v") > 2.'),
        ("txt = 'abc'", """write col("txt") == 'abc'."""),
        ("v<>2", 'write col("v") != 2.'),
        ("v IS NULL", 'write col("name") > 20.'),
    ],
)
def test_a_text_is_no_predicate(text: str, hint: str) -> None:
    with pytest.raises(TypeMismatch) as refused:
        EVENTS.where(text)
    assert str(refused.value).endswith(f"SQL is no predicate here: {hint}")


def test_a_column_of_several_sides_is_guessed_by_its_ending() -> None:
    pairs = EVENTS.select("v").join(EVENTS.select("v"), suffixes=("_a", "_b")).rename(v_a="a_v", v_b="b_v")
    with pytest.raises(UnknownColumn, match="no column 'v'; there are: a_v, b_v. Did you mean 'a_v' or 'b_v'?"):
        pairs.select(x=lambda pair: pair.v)


def test_columns_of_streamqs_own_are_no_columns_of_windows() -> None:
    for windows in (EVENTS.per_window(), EVENTS.group_by("v").per_window()):
        with pytest.raises(UnknownColumn, match="no column 'lifetime_start'; there are: v, x, txt, xs, ok."):
            windows.select(n=sq.sum("lifetime_start"))


@pytest.mark.parametrize("unit", ["hr", "m"])
def test_a_unit_that_there_is_not_lists_the_short_forms(unit: str) -> None:
    with pytest.raises(TimeError, match="in short us, ms, sec, s, min, h, d, w."):
        sq.events([(dt.datetime(2024, 5, 1), None, {"v": 1})]).tumbling_window(f"5 {unit}")
