"""Partial aggregates: what aggregates expand to (DataCell, expanding replication)."""

from __future__ import annotations

from pyspark.sql import types as t

import streamq as sq
from streamq.plan.aggregation import expand
from streamq.plan.schema import Field, Schema
from streamq.plan.tree import show

SCHEMA = Schema((Field("v", t.IntegerType()), Field("d", t.DecimalType(8, 2))), "integer")


def test_equal_parts_are_computed_once() -> None:
    wanted = {"n": sq.count(), "m": sq.avg("v"), "s": sq.var("v"), "p": sq.stddev_pop("v"), "top": sq.max("v")}
    split = expand(tuple(wanted.items()), SCHEMA)
    arguments = {name: show(expr) for name, expr in split.arguments}
    assert [(partial.title, arguments[partial.arg], partial.exact) for partial in split.partials] == [
        ("sum", "cast(v as double)", False),
        ("moments", "cast(v as double)", False),
        ("max", "v", False),
    ]
    assert [name for name, _ in split.outputs] == list(wanted)


def test_what_may_be_subtracted() -> None:
    partials = expand((("a", sq.sum("v")), ("b", sq.sum("d")), ("c", sq.count("v"))), SCHEMA).partials
    assert all(partial.exact for partial in partials)
    sums = [partial for partial in partials if partial.title == "sum"]
    assert [partial.type.simpleString() for partial in sums] == ["bigint", "decimal(18,2)"]
