"""Functions that run on Spark alone: what their errors say to write instead runs in-process; and the limits that docs state."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

import streamq as sq
from scripts.expressions_page import NOTES
from streamq import col, lit, when
from streamq import functions as f
from streamq.errors import NeedsSpark
from streamq.functions.catalogue import function_of, legal_names
from streamq.plan.expr import Expr
from streamq.plan.hints import INSTEAD

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
EVENTS = sq.events(
    [(1, 2, {"m": 7, "b": 2, "s": "ab", "ts": NOON}), (2, None, {"m": -7, "b": 0, "s": None, "ts": None})]
)
m, b, s = col("m"), col("b"), col("s")


@pytest.fixture(autouse=True)
def _no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)


INSTEAD_OF = {
    "pmod": (m % 5 + 5) % 5,
    "pow": m * m,
    "power": m * m,
    "negate": -m,
    "try_divide": when(b != 0, m / b),
    "try_mod": when(b != 0, m % b),
    "locate": f.instr("s", lit("a")),
    "position": f.instr("s", lit("a")),
    "regexp_replace": f.replace("s", lit("a"), lit("b")),
    "extract": f.year("ts") + f.hour("ts"),
    "date_part": f.month("ts"),
    "datepart": f.hour("ts"),
    "date_format": f.year("ts"),
    "dateadd": f.date_add(f.to_date("ts"), lit(3)),
    "unix_timestamp": f.unix_seconds("ts"),
}
"""What the hints of functions that run on Spark alone say to write."""


@pytest.mark.parametrize("name", INSTEAD)
def test_what_a_hint_says_to_write_instead_runs_in_process(name: str) -> None:
    assert name in legal_names() and function_of(name).arrow is None
    evaluated = EVENTS.select(x=INSTEAD_OF[name]).to_arrow()
    assert evaluated.num_rows == EVENTS.to_arrow().num_rows
    for function in re.findall(r"sq\.functions\.(\w+)", INSTEAD[name]):
        assert function_of(function).arrow is not None


def test_a_remainder_that_is_never_negative() -> None:
    rows = sq.events([(i, i + 1, {"m": i}) for i in range(-12, 12)])
    modulo = rows.select("m", x=(col("m") % 5 + 5) % 5).to_arrow().to_pylist()
    assert [row["x"] for row in modulo] == [row["m"] % 5 for row in modulo]


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
