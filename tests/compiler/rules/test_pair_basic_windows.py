from __future__ import annotations

from typing import Any

import pytest

import streamq as sq
from streamq.compiler.rules.window_aggregates import pair_basic_windows
from streamq.operators import Join, WindowAggregate, WindowedJoin
from streamq.plan.node import Node, nodes
from streamq.stream import Stream
from tests.compiler.rules.law import MORE, STAYS, TABLES, TRIPS, holds, why_not

LEFT, RIGHT = Stream(TRIPS, TABLES), Stream(MORE, TABLES).rename(v="x", w="y")
N = {"n": sq.count(), "m": sq.max("x"), "a": sq.avg("w"), "s": sq.stddev("v")}


def pairs(**more: Any) -> sq.Stream:
    return LEFT.windowed_join(RIGHT, **{"on": "k", "size": 7, "hop": 3, "offset": 1, **more})


def aggregated(query: sq.Stream) -> Node:
    """The aggregates of a query, which selects may rename."""
    return next(n for n in reversed(nodes(query.plan)) if isinstance(n, WindowAggregate))


@pytest.mark.parametrize(
    "query",
    [
        pairs().select(**N),
        pairs(size=4, hop=1, offset=-9).group_by("k").select(**N),
        pairs(size=5, where=lambda l, r: l.v < r.x).group_by("y").select(**N),
        pairs().where(sq.col("v") > 1).group_by(odd=sq.col("x") % 2).select(**N),
        LEFT.set_duration(5).windowed_join(RIGHT, "k", size=6, hop=4).select(n=sq.count(), v=sq.min("v")),
        pairs().group_by("y").select(x=sq.median("x"), d=sq.count_distinct("v"), s=sq.sum("v")),
    ],
    ids=[
        "no group",
        "by the key",
        "by another column",
        "filtered, by an expression",
        "intervals",
        "values with numbers",
    ],
)
def test_pairs_by_range_of_windows_are_aggregated_alike(query: sq.Stream) -> None:
    left = aggregated(query)
    right = pair_basic_windows(left)
    assert right is not None and why_not(pair_basic_windows, left) is None
    assert any(isinstance(n, Join) for n in nodes(right)) and not any(isinstance(n, WindowedJoin) for n in nodes(right))
    holds(pair_basic_windows, left, right)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (pairs(hop=7).select(**N), "windows do not overlap"),
        (Stream(STAYS, TABLES).windowed_join(RIGHT, "k", size=7, hop=3).select(n=sq.count()), "events may never end"),
        (pairs().select(x=sq.first("x")), "x depends on the lifetimes of pairs"),
        (pairs().select(x=sq.time_weighted_avg("x")), "time_weighted_avg does not merge"),
        (pairs().select(x=sq.max(sq.start())), "x depends on the lifetimes of pairs"),
        (pairs().where(sq.start() > 3).select(n=sq.count()), "start() > 3 reads the window's lifetime"),
    ],
)
def test_what_depends_on_lifetimes_or_members_is_a_reason_why_not(query: sq.Stream, reason: str) -> None:
    assert pair_basic_windows(aggregated(query)) is None
    assert (why_not(pair_basic_windows, aggregated(query)) or "").startswith(reason)


def test_other_windows_and_other_inputs_are_left_alone() -> None:
    for query in (LEFT.hopping_window(4, 2).select(n=sq.count()), LEFT.per_window().select(n=sq.count())):
        assert pair_basic_windows(aggregated(query)) is why_not(pair_basic_windows, aggregated(query)) is None
