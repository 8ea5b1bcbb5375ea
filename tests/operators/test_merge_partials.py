"""Merging partials into windows: its schema is the window's own, less the range."""

from __future__ import annotations

from pyspark.sql import types as t

import streamq as sq
from streamq.operators import MergePartials
from streamq.plan.aggregation import expand
from streamq.plan.footprint import NO_RATES
from streamq.plan.schema import Field, Schema
from streamq.windows import Hopping

S = sq.events([(1, 4, {"k": "a", "v": 1})]).plan


def test_schema() -> None:
    split = expand((("m", sq.avg("v")),), S.schema)
    merged = MergePartials(S, ("k",), Hopping(10, 5), split.arguments, split.partials)
    (total,) = split.partials
    assert merged.schema.names == ("k", "__n", total.name, f"{total.name}__n") and total.name.startswith("__sum_")
    assert merged.detail() == "size=10, hop=5 by k: count(*), sum(cast(v as double))"
    assert not merged.traits.infinite and merged.input.traits.infinite


# Partial aggregates: what aggregates expand to (DataCell, expanding replication).

SCHEMA = Schema((Field("v", t.IntegerType()), Field("d", t.DecimalType(8, 2))), "integer")


def test_what_may_be_subtracted() -> None:
    partials = expand((("a", sq.sum("v")), ("b", sq.sum("d")), ("c", sq.count("v"))), SCHEMA).partials
    assert all(partial.exact for partial in partials)
    sums = [partial for partial in partials if partial.title == "sum"]
    assert [partial.type.simpleString() for partial in sums] == ["bigint", "decimal(18,2)"]


def test_lifetimes_are_copied_into_their_windows_if_these_are_few() -> None:
    points = sq.events([(1, 2, {"v": 1})]).to_points()
    for longest, form in ((55, "explode"), (56, "dyadic"), (None, "dyadic")):
        plan = points.set_duration(longest).plan
        split = expand((("m", sq.max("v")),), plan.schema)
        # 10 windows of a point, and one more for each tick after it
        forms = MergePartials(plan, (), Hopping(10, 1), split.arguments, split.partials).batch_forms(NO_RATES)
        assert forms is not None and forms.cheapest.form == form
