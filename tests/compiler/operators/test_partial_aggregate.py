"""Partial aggregates: what aggregates expand to (DataCell, expanding replication)."""

from __future__ import annotations

from pyspark.sql import types as t

import streamq as sq
from streamq.compiler.operators.partial_aggregate import expand
from streamq.expr import show
from streamq.schema import Field, Schema

SCHEMA = Schema((Field("v", t.IntegerType()), Field("d", t.DecimalType(8, 2))), "integer")


def test_equal_parts_are_computed_once() -> None:
    wanted = {"n": sq.count(), "m": sq.avg("v"), "s": sq.var("v"), "p": sq.stddev_pop("v"), "top": sq.max("v")}
    slots, outputs = expand(tuple(wanted.items()), SCHEMA)
    assert [(s.kind, show(s.arg), s.exact) for s in slots if s.arg is not None] == [
        ("sum", "cast(v as double)", False),
        ("moments", "cast(v as double)", False),
        ("max", "v", False),
    ]
    assert [name for name, _ in outputs] == list(wanted)


def test_what_may_be_subtracted() -> None:
    slots, _ = expand((("a", sq.sum("v")), ("b", sq.sum("d")), ("c", sq.count("v"))), SCHEMA)
    assert all(s.exact for s in slots)
    assert [s.type.simpleString() for s in slots if s.kind == "sum"] == ["bigint", "decimal(18,2)"]
