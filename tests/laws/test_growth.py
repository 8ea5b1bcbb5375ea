"""State for good: it grows, however long ago all windows have ended, exactly where explain says that it does."""

from __future__ import annotations

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.operators.operator import Operator
from streamq.operators.source import Source
from streamq.plan.node import nodes, number_sources
from tests.laws.cost_operators import FAR, OPERATORS, Query, program, rows, source

OTHERS: dict[str, Query] = {
    "landmark of members": lambda a, b: a.group_by("k").landmark_window(FAR, start=0).select(x=sq.collect("v")),
    "landmark of values": lambda a, b: a.group_by("k").landmark_window(FAR, start=0).select(x=sq.median("v")),
    "landmark with a period": lambda a, b: (
        a.group_by("k").landmark_window(FAR, period=3 * FAR).select(x=sq.collect("v"))
    ),
    "landmark of all": lambda a, b: a.landmark_window(FAR, start=0).select(n=sq.count()),
    "members of a landmark of all": lambda a, b: a.landmark_window(FAR, start=0).select(x=sq.collect("v")),
    "count of all": lambda a, b: a.count_window(20).select(n=sq.count()),
    "rows of all": lambda a, b: a.rows_window(20).select(n=sq.count()),
    "few rows of members": lambda a, b: a.rows_window(20, 5).where(sq.col("v") == 0).group_by("k").select(n=sq.count()),
    "last rows of all": lambda a, b: a.last_rows(20),
    "groups of last rows": lambda a, b: a.last_rows(20, 5).group_by("k").select(n=sq.count()),
    "pairs of last rows": lambda a, b: a.windowed_join(b, on="k", rows=5, suffixes=("", "_b")).select(n=sq.count()),
    "signal of all": lambda a, b: a.to_points().to_signal(),
    "ids": lambda a, b: sq.intervals(rows(), "start", "end", id="k", name="a", progress=sq.generate(0)),
    "edges": lambda a, b: edges("drop"),
    "edges that are adjusted": lambda a, b: edges("adjust"),
}
QUERIES = {**OPERATORS, **OTHERS}
ENDED = [name for name in OPERATORS if name != "rows of members"]
"""The queries of operators whose windows end: one has windows of more rows than all micro-batches."""
NEW = 10
"""The events of a micro-batch, each of a group that there has not been, and as many of them again."""


def edges(late: str) -> sq.Stream:
    """An edge that opens and one that closes for each row, of one key."""
    table = t.table("at bigint, k bigint, v bigint", [])
    return sq.edges(table, time="at", edge="v", key="k", open=0, close=1, name="c", progress=sq.generate(0), late=late)


@pytest.mark.parametrize("name", [*OTHERS, *(pytest.param(name, marks=pytest.mark.slow) for name in ENDED)])
def test_state_grows_exactly_where_explain_says_so(name: str) -> None:
    """Micro-batches are ten times as long apart as the longest window."""
    plan = rewrite(number_sources(QUERIES[name](source("a"), source("b")).plan)[0]).plan
    names = [node.table for node in nodes(plan) if isinstance(node, Source)]
    grows = any(isinstance(node, Operator) and node.footprint.for_good for node in nodes(plan))
    live, state_rows = LocalRun(program(QUERIES[name], output=OutputForm.FINAL)), []
    for n in range(6):
        at = 10 * n * FAR
        new = [(at + i, at + i + 3, NEW * n + i, 0) for i in range(NEW)]
        new += [(at + i + 20, at + i + 23, NEW * n + i, 1) for i in range(NEW)]
        tables = {"a": rows(*new), "b": rows(*new[: NEW // 2])}
        tables["c"] = t.table("at bigint, k bigint, v bigint", [(start, k, v) for start, _, k, v in new])
        live.batch({name: tables[name] for name in names})
        state_rows.append(sum(kernel.state_rows or 0 for kernel in live.readings.of_kernels.values()))
    assert (state_rows[-1] >= state_rows[2] + 3 * NEW) == grows, state_rows
    assert grows or state_rows[-1] <= state_rows[2], state_rows
