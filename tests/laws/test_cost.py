"""Cost goes with change: a micro-batch computes with the rows that came, the groups they touch, and what falls due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

import streamq as sq
from streamq import testing as t
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from streamq.testing.operators.scan import RESETTING_SUM
from tests.programs import compiled

COLUMNS = "start bigint, end bigint, k bigint, v bigint"
FAR = 1_000_000
HOT = 3
"""The number of groups that rows of later micro-batches touch."""
EACH = 3
"""The events of a group when the trickle begins."""
BATCHES, NEW = 20, 4


@sq.uda("bigint", name="spread")
def spread(v: pd.Series) -> int:
    return int(v.max() - v.min())


@sq.udo("top bigint", name="greatest")
def greatest(v: pd.Series) -> list[dict[str, int]]:
    return [{"top": int(v.max())}]


Query = Callable[[sq.Stream, sq.Stream], sq.Stream]

OPERATORS: dict[str, Query] = {
    "session": lambda a, b: a.group_by("k").session_window(5).select(n=sq.count(), s=sq.sum("v")),
    "snapshot": lambda a, b: a.group_by("k").snapshot_window().select(n=sq.count(), m=sq.max("v")),
    "sliding": lambda a, b: a.group_by("k").sliding_window(FAR).select(n=sq.count()),
    "count": lambda a, b: a.group_by("k").count_window(2).select(n=sq.count()),
    "rows": lambda a, b: a.group_by("k").rows_window(2, 1).select(n=sq.count()),
    "landmark": lambda a, b: a.group_by("k").landmark_window(FAR, start=0).select(n=sq.count()),
    "top_k": lambda a, b: a.group_by("k").session_window(5).top_k(1, by="v"),
    "uda": lambda a, b: a.group_by("k").session_window(5).select(x=spread("v")),
    "udo": lambda a, b: a.group_by("k").session_window(5).select(greatest("v")),
    "hopping uda": lambda a, b: a.group_by("k").tumbling_window(FAR).select(x=spread("v")),
    "scan": lambda a, b: a.to_points().group_by("k").scan(RESETTING_SUM("v")),
    "left join": lambda a, b: a.join(b, on="k", how="left", suffixes=("", "_b")),
    "semi join": lambda a, b: a.join(b, on="k", how="semi"),
    "anti join": lambda a, b: a.left_anti_join(b, on="k"),
    "windowed_join": lambda a, b: a.windowed_join(b, on="k", size=FAR, hop=FAR, suffixes=("", "_b")),
    "except_": lambda a, b: a.except_(b),
    "clip": lambda a, b: a.clip(b, on="k"),
    "to_signal": lambda a, b: a.to_signal("k"),
    "chop": lambda a, b: a.chop(FAR),
    "distinct_ids": lambda a, b: a.distinct_ids(FAR, id="k"),
    "unless": lambda a, b: sq.cedr("EVENT E WHEN UNLESS(A, B, 1000) WHERE A.k = B.k", A=a, B=b),
    "first consume": lambda a, b: sq.cedr(
        "EVENT E WHEN SEQUENCE(A FIRST CONSUME, B FIRST CONSUME, 1000) WHERE A.k = B.k", A=a, B=b
    ),
}


def source(name: str) -> sq.Stream:
    return sq.intervals(t.table(COLUMNS, []), start="start", end="end", name=name, progress=sq.generate(0))


def rows(*events: tuple[int, int, int, int]) -> Any:
    return t.table(COLUMNS, list(events))


def work_of_trickle(query: Query, groups: int) -> tuple[int, int]:
    """The rows that all operators together evaluate, and the bins they read, in micro-batches that touch HOT of the groups."""
    a, b = source("a"), source("b")
    plan = rewrite(number_sources(query(a, b).plan)[0]).plan
    live = LocalRun(compiled(plan, buckets=1))
    bulk = [(i, FAR, k, i) for k in range(groups) for i in range(EACH)]
    live.batch({"a": rows(*bulk), "b": rows(*((i, FAR, k, v + 1) for i, _, k, v in bulk))})
    for n in range(BATCHES):
        if n == 2:
            # by now the windows in which the bulk begins have fallen due
            before = work(live)
        at = 10 + n
        new = [(at, FAR, (n + i) % HOT, n) for i in range(NEW)]
        live.batch({"a": rows(*new), "b": rows(*new)})
    after = work(live)
    return after[0] - before[0], after[1] - before[1]


def work(live: LocalRun) -> tuple[int, int]:
    kernels = live.readings.of_kernels.values()
    return sum(k.evaluated or 0 for k in kernels), sum(k.bins_read or 0 for k in kernels)


@pytest.mark.parametrize("query", OPERATORS.values(), ids=OPERATORS.keys())
def test_what_is_open_costs_nothing(query: Query) -> None:
    evaluated, bins = work_of_trickle(query, 400)
    more_evaluated, more_bins = work_of_trickle(query, 12_000)
    assert more_evaluated <= 1.1 * evaluated + 100
    assert more_bins <= 4 * bins, "each group may lie in a bin of its own, and have a place in the agenda"
