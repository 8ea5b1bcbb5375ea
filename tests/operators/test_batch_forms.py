"""What computes the built-in aggregates in batch: Spark alone, but for a few over snapshots."""

from __future__ import annotations

import streamq as sq
from streamq.operators.batch_form import BatchForm
from streamq.operators.window_aggregate import WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.node import nodes
from tests.window_modules import WINDOWS

AGGREGATES: list[Aggregate] = [
    sq.count(),
    sq.count("v"),
    sq.sum("v"),
    sq.avg("v"),
    sq.min("v"),
    sq.max("v"),
    sq.var("v"),
    sq.var_pop("v"),
    sq.stddev("v"),
    sq.stddev_pop("v"),
    sq.covar("v", "w"),
    sq.covar_pop("v", "w"),
    sq.corr("v", "w"),
    sq.first("v"),
    sq.last("v"),
    sq.count_distinct("v"),
    sq.median("v"),
    sq.percentile("v", 0.9),
    sq.collect("v"),
    sq.time_weighted_avg("v"),
]
OF_ALL_MEMBERS = {"count_distinct", "percentile"}
"""A median is a percentile."""


def test_python_computes_those_that_need_all_members_of_a_snapshot() -> None:
    """A sliding window is a snapshot of longer lifetimes."""
    stream = sq.events([(1, 3, {"k": "a", "v": 1, "w": 2.0})], name="s")
    evaluated = set()
    for window, over in WINDOWS.items():
        for aggregate in AGGREGATES:
            plan = over(stream.group_by("k")).select(x=aggregate).plan
            (choice,) = {n.batch_choice.form for n in nodes(plan) if isinstance(n, WindowAggregate)}
            if choice is BatchForm.EVALUATED:
                evaluated.add((window, aggregate.function.name))
    assert evaluated == {(window, name) for window in ("snapshot", "sliding") for name in OF_ALL_MEMBERS}
