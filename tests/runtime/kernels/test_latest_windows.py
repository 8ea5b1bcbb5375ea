"""Aggregates over last rows, and over pairs of them, are those of snapshots of the members."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.operators.latest_windows import LatestAggregate
from streamq.plan.node import Node, nodes, number_sources
from streamq.runtime.deltas import WEIGHT
from streamq.time import INFINITY
from tests.programs import compiled

COLUMNS = "at bigint, k bigint, v bigint"


def source(name: str, progress: Any) -> sq.Stream:
    return sq.points(t.table(COLUMNS, []), "at", name=name, progress=progress)


RESULTS = {"n": sq.count(), "s": sq.sum("v"), "m": sq.max("v")}
QUERIES: dict[str, Callable[[sq.Stream, sq.Stream], sq.Stream]] = {
    "all": lambda a, b: a.last_rows(3, 2).select(**RESULTS),
    "groups": lambda a, b: a.last_rows(4).where(sq.col("v") > 0).group_by("k").select(**RESULTS),
    "gaps": lambda a, b: a.last_rows(1, 3).group_by("k").select(**RESULTS),
    "pairs": lambda a, b: a.windowed_join(b, on="k", rows=3, step=2, suffixes=("", "_b")).select(**RESULTS),
    "pairs of other lengths, by groups": lambda a, b: (
        a.last_rows(2)
        .join(b.last_rows(5, 3), on="k", where=lambda a, b: a.v <= b.v, suffixes=("", "_b"))
        .group_by("v_b")
        .select(n=sq.count(), s=sq.avg("v"))
    ),
}


def deltas(plan: Node, micro_batches: list[dict[str, Any]], output: str) -> Counter[Any]:
    run = LocalRun(compiled(plan, output, buckets=1))
    total: Counter[Any] = Counter()
    for batch in [*micro_batches, None]:
        rows = run.batch({}, [(None, INFINITY)]) if batch is None else run.batch(batch)
        for row in rows.to_pylist():
            total[tuple(value for name, value in row.items() if name != WEIGHT)] += row[WEIGHT]
            assert output != OutputForm.FINAL or row[WEIGHT] > 0
    return +total


@pytest.mark.parametrize("query", QUERIES)
def test_rows_are_those_of_snapshots_of_the_members(query: str) -> None:
    """Whatever the micro-batches, the delay and the ties: final rows, and changes of rows that are sent before."""
    rng = random.Random(query)
    for _ in range(12):
        delay, last = rng.randrange(4), rng.choice([3, 12, 40])
        built = QUERIES[query](*(source(name, sq.generate(delay)) for name in "ab")).plan
        (plan,) = number_sources(built)[:1]
        fast = rewrite(plan).plan
        assert any(isinstance(node, LatestAggregate) for node in nodes(fast))
        batches = []
        for at in sorted(rng.randrange(last) for _ in range(rng.randrange(1, 12))):
            some = [
                (max(0, at - rng.randrange(2)), rng.randrange(2), rng.randrange(3)) for _ in range(rng.choice([1, 3]))
            ]
            batches.append({rng.choice("ab"): t.table(COLUMNS, some)})
        output = rng.choice([OutputForm.FINAL, OutputForm.CHANGELOG])
        assert deltas(fast, batches, output) == deltas(plan, batches, OutputForm.FINAL)
