"""What rules ask of an expression before they write it into another, or evaluate it for more events."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

import streamq as sq
from streamq.compiler.rules.rule import can_fail, count_uses, inline, is_cheap, is_plain
from streamq.plan.expr import Expr, show
from streamq.plan.schema import Field, Schema

SCHEMA = Schema((Field("i", t.LongType()), Field("d", t.DoubleType()), Field("s", t.StringType())), "integer")
i, d, s = sq.col("i"), sq.col("d"), sq.col("s")


@pytest.mark.parametrize("expr", [i > 3, d + 1.0 > 2.0, s == "x", i.is_null(), (i == 1) | (s != "y")], ids=repr)
def test_cannot_fail(expr: Expr) -> None:
    assert not can_fail(expr, SCHEMA)


@pytest.mark.parametrize("expr", [i / 0 > 1, i + 1 > 2, s.cast("int") == 1, i % i == 0], ids=repr)
def test_can_fail(expr: Expr) -> None:
    assert can_fail(expr, SCHEMA)


def test_plain_and_cheap() -> None:
    x = sq.col("x")
    assert is_plain(x) and not is_plain(x + 1)
    assert is_cheap(x + 1) and not is_cheap(sq.functions.upper("x"))


def test_uses_and_inlining() -> None:
    x, y = sq.col("x"), sq.col("y")
    assert count_uses([x + x, y])["x"] == 2
    assert show(inline(x * y, {"x": y + 1})) == "(y + 1) * y"


def test_fields_keep_the_names_they_were_given() -> None:
    x, y = sq.col("x"), sq.col("y")
    made = sq.functions.struct("x", y, sq.start(), x.alias("z"), x * 2)
    assert show(made) == "struct(x, y, start() as start, x as z, x * 2)"
    assert show(inline(made, {"x": y + 1})) == "struct(y + 1 as x, y, start() as start, y + 1 as z, (y + 1) * 2)"
    assert show(inline(sq.functions.arrays_zip("x"), {"x": y})) == "arrays_zip(y as x)"
