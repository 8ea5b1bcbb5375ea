"""top_k: the members with the greatest (or least) values, by SQL's RANK; ties kept, or cut by the payload."""

from __future__ import annotations

import streamq as sq
from streamq.compiler.estimates import expected_rates
from streamq.compiler.results import Results
from streamq.operators.top_k import TopK
from streamq.plan.node import nodes
from streamq.testing.table import table


def test_estimates_do_not_count_ties() -> None:
    """10 groups, 1,000 events in 10 ticks: 30 best in a hop; 60 of windows of 2.5 hops, as a hop has two ranges of windows."""
    expected = sq.Expected(rows=1_000, every=10, distinct={"k": 10})
    s = sq.points(table("at bigint, k string, v bigint", []), time="at")
    for size, best in ((20, 30), (25, 60)):
        for ties, note in (("keep", ", but for ties"), ("break", "")):
            top = s.group_by("k").hopping_window(size, 10).top_k(3, by="v", ties=ties)
            text = top.explanation(expected=expected)
            assert f"at most 30 rows in 10{note}\n" in text
            assert f", at most {best} rows in 10 in micro-batches of a hop or longer{note};" in text
            (node,) = (node for node in nodes(top.plan) if isinstance(node, TopK))
            choice = node.batch_forms(expected_rates(Results((top.plan,)), expected)).cheapest
            assert f"; {best / 1_000:.2g} of the best an event, " in choice.reason
