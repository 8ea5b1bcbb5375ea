"""Expressions of a printed program read as one writes them, and come back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from pyspark.sql import types as t

import streamq as sq
from streamq import col, lit, when
from streamq import functions as f
from streamq.functions.catalogue import function_of
from streamq.plan.expr import Call, Expr, Lit, Opaque
from streamq.plan.schema import Field, Schema
from streamq.testing.drawn_expressions import predicates
from streamq.testing.program_text import UnwritableCode, argument, expression
from streamq.time import INTEGER

# expressions

EXPRESSIONS: list[tuple[Expr, str]] = [
    ((col("v") > 1) & col("k").is_null(), '(col("v") > 1) & col("k").is_null()'),
    (~(col("v") == 1) | col("k").is_not_null(), '~(col("v") == 1) | col("k").is_not_null()'),
    ((col("a") & col("b")) | (col("c") & (col("d") | col("e"))), 'col("a") & col("b") | col("c") & (col("d") | col("e"))'),
    (col("a") - (col("b") - col("c")) - 1, 'col("a") - (col("b") - col("c")) - 1'),
    ((col("a") + 1) * -col("b") % 7, '(col("a") + 1) * -col("b") % 7'),
    (-(col("a") + 1), '-(col("a") + 1)'),
    (3 - col("v"), '3 - col("v")'),
    (1.5 / (2 * col("v")), '1.5 / (2 * col("v"))'),
    (lit("a%s") % col("v"), 'lit("a%s") % col("v")'),
    (lit(1) < col("v"), 'lit(1) < col("v")'),
    (lit(1) + 2, "lit(1) + 2"),
    (lit(True) & col("a"), 'lit(True) & col("a")'),
    ((col("a") < col("b")) == (col("c") < 1), '(col("a") < col("b")) == (col("c") < 1)'),
    (col("a") == lit(None), 'col("a") == lit(None)'),
    (col("a").eq_null_safe(None), 'col("a").eq_null_safe(None)'),
    ((col("a") + 1).isin(0, 1, None), '(col("a") + 1).isin(0, 1, None)'),
    (col("a").isin(), 'col("a").isin()'),
    (col("a") != float("nan"), 'col("a") != float("nan")'),
    (col("a") > float("-inf"), 'col("a") > float("-inf")'),
    (col("a").startswith("x").cast("int"), 'col("a").startswith("x").cast("int")'),
    (col("a").like(col("b")), 'col("a").like(col("b"))'),
    (col("a")["b"][0], 'col("a")["b"][0]'),
    (when(col("a"), 1).when(col("b"), "x").otherwise(col("c")), 'when(col("a"), 1).when(col("b"), "x").otherwise(col("c"))'),
    (when(col("a"), None), 'when(col("a"), None)'),
    (f.coalesce("a", lit(0)), 'f.coalesce(col("a"), lit(0))'),
    (f.date_trunc("hour", sq.start()), 'f.date_trunc("hour", sq.start())'),
    (f.struct("a", col("b").alias("c d")), 'f.struct(col("a").alias("a"), col("b").alias("c d"))'),
    (sq.duration() > 3, "sq.duration() > 3"),
    (col("a").cast("decimal(5,2)"), 'col("a").cast("decimal(5,2)")'),
    (col("a").cast(t.ArrayType(t.LongType(), False)), 'col("a").cast(ArrayType(LongType(), False))'),
    (col("say \"hi\"") == "it's", "col('say \"hi\"') == \"it's\""),
    (col("a") == "\n\\ü\ud800", 'col("a") == "\\n\\\\ü\\ud800"'),
    (col("a") > Decimal("1.50"), 'col("a") > Decimal("1.50")'),
    (col("a") == b"\x00", "col(\"a\") == b'\\x00'"),
    (col("a") > dt.date(2024, 5, 1), 'col("a") > dt.date(2024, 5, 1)'),
    (col("a") - dt.timedelta(days=1), 'col("a") - dt.timedelta(days=1)'),
    (
        sq.start() > dt.datetime(2024, 5, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        "sq.start() > dt.datetime(2024, 5, 1, 0, 0, tzinfo=zoneinfo.ZoneInfo(key='Europe/Berlin'))",
    ),
    (sq.sum("v", where=col("v") > 1), 'sq.sum("v", where=col("v") > 1)'),
    (sq.count() + sq.covar("a", col("b") + 1), 'sq.count() + sq.covar("a", col("b") + 1)'),
    (sq.median("v") / sq.percentile("v", 0.9), 'sq.median("v") / sq.percentile("v", 0.9)'),
]  # fmt: skip


def evaluated(text: str) -> Expr:
    import zoneinfo

    known = {"sq": sq, "f": f, "col": col, "lit": lit, "when": when, "dt": dt, "zoneinfo": zoneinfo, "Decimal": Decimal}
    return eval(text, {**vars(t), **known})


@pytest.mark.parametrize(("expr", "text"), EXPRESSIONS, ids=[text for _, text in EXPRESSIONS])
def test_expressions_read_as_one_writes_them(expr: Expr, text: str) -> None:
    assert expression(expr) == text
    assert evaluated(text).digest == expr.digest


KINDS = {"v": t.IntegerType(), "w": t.DoubleType(), "k": t.StringType()}
COLUMNS = Schema(tuple(Field(name, kind) for name, kind in KINDS.items()), INTEGER)


@given(predicates(COLUMNS, frozenset(COLUMNS.names)))
def test_any_predicate_comes_back(expr: Expr) -> None:
    assert evaluated(expression(expr)).digest == expr.digest


def test_constants_stand_alone_where_a_verb_takes_them() -> None:
    assert [argument(lit(v)) for v in (1, "x", None)] == ["1", '"x"', "lit(None)"]


def test_what_has_no_form_is_refused() -> None:
    for expr in (Lit(1, t.LongType()), Opaque(None, "x"), Call(function_of("no name"), (col("a"),))):
        with pytest.raises(UnwritableCode):
            expression(expr)
