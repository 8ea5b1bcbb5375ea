"""Joins in batch of events whose greatest length the plan says: the answers of those that ask the data."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable

from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t

S = sq.Stream
SOAK = bool(os.environ.get("STREAMQ_SOAK"))
COLUMNS = "at bigint, k string, v int"


def events(name: str, seed: int) -> S:
    chance = random.Random(seed)
    rows = [(chance.randrange(-20, 20), chance.choice(["a", "b", None]), chance.randrange(4)) for _ in range(40)]
    return sq.points(t.table(COLUMNS, rows), time="at", name=name)


def both(left: S, right: S, how: str, *, keyed: bool) -> S:
    names = {"suffixes": ("", "_r")} if how == "inner" else {}
    on = {"on": "k"} if keyed else {}
    joined = left.join(right, **on, where=lambda a, b: a.v <= b.v, how=how, **names)  # type: ignore[arg-type]
    return joined.select("k", "v", r=sq.col("v_r") if how == "inner" else sq.lit(None).cast("int"))


SIDES: dict[str, Callable[[S, S], tuple[S, S]]] = {
    "points and points": lambda a, b: (a, b),
    "points and longer ones": lambda a, b: (a, b.set_duration(5)),
    "longer ones and points": lambda a, b: (a.shift(1).set_duration(8), b),
    "of different lengths": lambda a, b: (a.set_duration(3), b.set_duration(12).shift(-7).extend(4)),
    "of two lengths": lambda a, b: (a.union(a.set_duration(9).select("k", "v")), b.set_duration(2)),
}


HOWS = (("inner", True), ("inner", False), ("semi", False), ("anti", True))
"""The kinds of joins, and whether each has keys."""


def test_they_give_the_same(spark: SparkSession, plain: None) -> None:
    """Every other length meets a kind of join, in a soak all do: how far partners lie apart is a matter of lengths alone."""
    a, b = events("a", 1), events("b", 2)
    queries = {
        f"{sides}, {how}, {'by key' if keyed else 'all'}": both(*make(a, b), how, keyed=keyed)
        for i, (sides, make) in enumerate(SIDES.items())
        for j, (how, keyed) in enumerate(HOWS)
        if SOAK or (i + j) % 2 == 0
    }
    first, *others = (query.with_columns(of=sq.lit(name)) for name, query in queries.items())
    whole = first.union(*others)
    expected = Counter(tuple(row.values()) for row in whole.to_arrow().to_pylist())
    order = whole.to_arrow().column_names
    found = Counter(tuple(row[n] for n in order) for row in whole.to_df().toArrow().to_pylist())
    assert found == expected
    assert {row[order.index("of")] for row in expected} == set(queries)
