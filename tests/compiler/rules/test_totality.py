"""Which expressions can raise: those must not be evaluated for events that a filter would have kept from them."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

import streamq as sq
from streamq.compiler.rules.totality import can_fail
from streamq.plan.expr import Expr
from streamq.plan.schema import Field, Schema

SCHEMA = Schema((Field("i", t.LongType()), Field("d", t.DoubleType()), Field("s", t.StringType())), "integer")
i, d, s = sq.col("i"), sq.col("d"), sq.col("s")


@pytest.mark.parametrize("expr", [i > 3, d + 1.0 > 2.0, s == "x", i.is_null(), (i == 1) | (s != "y")], ids=repr)
def test_cannot_fail(expr: Expr) -> None:
    assert not can_fail(expr, SCHEMA)


@pytest.mark.parametrize("expr", [i / 0 > 1, i + 1 > 2, s.cast("int") == 1, i % i == 0], ids=repr)
def test_can_fail(expr: Expr) -> None:
    assert can_fail(expr, SCHEMA)
