"""State for good: it grows, however long ago all windows have ended, exactly where explain says that it does."""

from __future__ import annotations

import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.operators.operator import Operator
from streamq.plan.node import nodes, number_sources
from tests.laws.cost_operators import FAR, OPERATORS, Query, program, rows, source

LANDMARKS: dict[str, Query] = {
    "landmark of members": lambda a, b: a.group_by("k").landmark_window(FAR, start=0).select(x=sq.collect("v")),
    "landmark of values": lambda a, b: a.group_by("k").landmark_window(FAR, start=0).select(x=sq.median("v")),
    "landmark with a period": lambda a, b: (
        a.group_by("k").landmark_window(FAR, period=3 * FAR).select(x=sq.collect("v"))
    ),
}
QUERIES = {**OPERATORS, **LANDMARKS}
NEW = 10
"""The events of a micro-batch, each of a group that there has not been."""


@pytest.mark.parametrize("name", QUERIES)
def test_state_grows_exactly_where_explain_says_so(name: str) -> None:
    """Micro-batches are ten times as long apart as the longest window."""
    plan = rewrite(number_sources(QUERIES[name](source("a"), source("b")).plan)[0]).plan
    grows = any(isinstance(node, Operator) and node.growth for node in nodes(plan))
    live, kept = LocalRun(program(QUERIES[name], output=OutputForm.FINAL)), []
    for n in range(8):
        new = [(10 * n * FAR + i, 10 * n * FAR + i + 3, NEW * n + i, i) for i in range(NEW)]
        live.batch({"a": rows(*new), "b": rows(*new[: NEW // 2])})
        kept.append(sum(kernel.state_rows or 0 for kernel in live.readings.of_kernels.values()))
    assert (kept[-1] >= kept[3] + 4 * NEW) == grows, kept
    assert grows or kept[-1] <= kept[3], kept
