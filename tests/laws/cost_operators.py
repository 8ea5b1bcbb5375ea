"""Queries whose cost goes with change, an operator each, and the work of their micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.compiler.staged_plan import StagedPlan
from streamq.operators.operator import Operator
from streamq.plan.footprint import OpenedPart
from streamq.plan.node import nodes, number_sources
from streamq.runtime.state.baskets import Baskets, BinSizes
from tests.drawn.queries import RESETTING_SUM
from tests.programs import compiled, with_sizes

COLUMNS = "start bigint, end bigint, k bigint, v bigint"
FAR = 1_000_000
HOT = 3
"""The number of groups that rows of later micro-batches touch."""
EACH = 3
"""The events of a group when the trickle begins."""
BATCHES, NEW = 4, 4
WARM = 2
"""The micro-batches after which the windows in which the bulk begins have fallen due; the others are measured."""
SIZES = BinSizes(split_above=2_048, whole_upto=128)
"""Bins a quarter of a run's, so that they fill with a quarter of the groups."""
SMALL = BinSizes(split_above=32, whole_upto=0)
"""Bins of a few groups each, whose rows are told apart."""
FEW, MANY = 50, 1_000
"""The groups with open events that are compared; many of them fill several bins."""


@sq.uda("bigint", name="spread")
def spread(v: pd.Series) -> int:
    return int(v.max() - v.min())


class Total:
    """A sum whose states merge."""

    def initial(self) -> int:
        return 0

    def add(self, state: int, v: pd.Series) -> int:
        return state + int(v.sum())

    def merge(self, one: int, other: int) -> int:
        return one + other

    def result(self, state: int) -> int:
        return state


class Balance:
    """A sum from which events are taken off again."""

    def initial(self) -> int:
        return 0

    def add(self, state: int, v: pd.Series) -> int:
        return state + int(v.sum())

    def remove(self, state: int, v: pd.Series) -> int:
        return state - int(v.sum())

    def result(self, state: int) -> int:
        return state


TOTAL = sq.uda("bigint", name="total")(Total)
BALANCE = sq.uda("bigint", name="balance")(Balance)


class BalanceRows(Balance):
    """The same as a row."""

    def result(self, state: Any) -> Any:
        return [super().result(state)]


BALANCE_ROWS = sq.udo("x bigint", name="balance_rows")(BalanceRows)


@sq.udo("top bigint", name="greatest")
def greatest(v: pd.Series) -> list[dict[str, int]]:
    return [{"top": int(v.max())}]


Query = Callable[[sq.Stream, sq.Stream], sq.Stream]


def operators(far: int) -> dict[str, Query]:
    """The queries, with windows that last so long."""
    return {
        "session": lambda a, b: a.group_by("k").session_window(5).select(n=sq.count(), s=sq.sum("v")),
        "snapshot": lambda a, b: a.group_by("k").snapshot_window().select(n=sq.count(), m=sq.max("v")),
        "sliding": lambda a, b: a.group_by("k").sliding_window(far).select(n=sq.count()),
        "count": lambda a, b: a.group_by("k").count_window(2).select(n=sq.count()),
        "rows": lambda a, b: a.group_by("k").rows_window(far, 50).select(n=sq.count(), m=sq.max("v")),
        "rows of members": lambda a, b: (
            a.rows_window(far, 50).where(sq.col("v") >= 0).group_by("k").select(n=sq.count(), m=sq.max("v"))
        ),
        "landmark": lambda a, b: a.group_by("k").landmark_window(far, start=0).select(n=sq.count()),
        "top_k": lambda a, b: a.group_by("k").session_window(5).top_k(1, by="v"),
        "top_k of snapshots": lambda a, b: a.group_by("k").snapshot_window().top_k(2, by="v"),
        "uda": lambda a, b: a.group_by("k").session_window(5).select(x=spread("v")),
        "uda of counted": lambda a, b: a.group_by("k").count_window(2).select(x=spread("v")),
        "uda that merges": lambda a, b: a.group_by("k").session_window(5).select(x=TOTAL("v")),
        "uda that removes": lambda a, b: a.group_by("k").snapshot_window().select(x=BALANCE("v")),
        "first": lambda a, b: a.group_by("k").session_window(5).select(x=sq.first("v")),
        "count_distinct": lambda a, b: a.group_by("k").snapshot_window().select(x=sq.count_distinct(sq.col("v") % 4)),
        "collect": lambda a, b: a.group_by("k").snapshot_window().select(x=sq.collect("v")),
        "time_weighted_avg": lambda a, b: (
            a.group_by("k").hopping_window(far, far // 4).select(x=sq.time_weighted_avg("v"))
        ),
        "median": lambda a, b: a.group_by("k").session_window(5).select(s=sq.sum("v"), x=sq.median(sq.col("v") % 4)),
        "udo": lambda a, b: a.group_by("k").session_window(5).select(greatest("v")),
        "hopping": lambda a, b: a.group_by("k").hopping_window(far, far // 4).select(n=sq.count(), m=sq.max("v")),
        "hopping median": lambda a, b: (
            a.group_by("k").hopping_window(far, far // 4).select(s=sq.sum("v"), x=sq.median("v"))
        ),
        "hopping top_k": lambda a, b: a.group_by("k").hopping_window(far, far // 4).top_k(2, by="v"),
        "hopping uda": lambda a, b: a.group_by("k").tumbling_window(far).select(x=spread("v")),
        "scan": lambda a, b: a.to_points().group_by("k").scan(RESETTING_SUM("v")),
        "inner join": lambda a, b: a.join(b, on="k", suffixes=("", "_b")),
        "left join": lambda a, b: a.join(b, on="k", how="left", suffixes=("", "_b")),
        "semi join": lambda a, b: a.join(b, on="k", how="semi"),
        "anti join": lambda a, b: a.left_anti_join(b, on="k"),
        "windowed_join": lambda a, b: a.windowed_join(b, on="k", size=far, hop=far, suffixes=("", "_b")),
        "except_": lambda a, b: a.select("k").except_(b.select("k")),
        "clip": lambda a, b: a.clip(b, on="k"),
        "to_signal": lambda a, b: a.to_signal("k"),
        "last_rows": lambda a, b: a.last_rows(2, key="k"),
        "chop": lambda a, b: a.chop(far),
        "distinct_ids": lambda a, b: a.distinct_ids(far, id="k"),
        "unless": lambda a, b: sq.cedr("EVENT E WHEN UNLESS(A, B, 1000) WHERE A.k = B.k", A=a, B=b),
        "first consume": lambda a, b: sq.cedr(
            "EVENT E WHEN SEQUENCE(A FIRST CONSUME, B FIRST CONSUME, 1000) WHERE A.k = B.k", A=a, B=b
        ),
    }


OPERATORS = operators(FAR)


def source(name: str) -> sq.Stream:
    return sq.intervals(t.table(COLUMNS, []), start="start", end="end", name=name, progress=sq.generate(0))


def opens(query: Query, part: OpenedPart) -> bool:
    """True if an operator of the query states that it opens this part of its state."""
    plan = rewrite(number_sources(query(source("a"), source("b")).plan)[0]).plan
    return any(isinstance(node, Operator) and node.footprint.opened is part for node in nodes(plan))


WHOLE_GROUPS = [name for name, query in OPERATORS.items() if opens(query, OpenedPart.WHOLE_GROUPS)]
"""The operators that read all open events of a group that is touched: a user's function sees all of them, and each may have a
row together with those of the other side (of a pattern, within its scope)."""
PARTS = [name for name in OPERATORS if name not in WHOLE_GROUPS]
NOTED = 4_000
"""The bytes by which manifests may differ: some bins more, of 200 bytes at most. A number for each event would be several
times as much."""
BY_START = ("chop",)
"""The operators whose groups are the events of one start."""
EARLY: dict[str, Any] = {"early": True, "output": OutputForm.CHANGELOG}


def rows(*events: tuple[int, int, int, int]) -> Any:
    return t.table(COLUMNS, list(events))


class Work(NamedTuple):
    """The work of some micro-batches: rows that all kernels together compute with, bins that they read, bytes beside the bins."""

    evaluated: int
    bins: int
    noted: int
    """The bytes of the manifests, which are read and written in each micro-batch."""


def work_of_trickle(
    query: Query, groups: int, sizes: BinSizes = SIZES, *, by_start: bool = False, **options: Any
) -> Work:
    """The work of all operators in micro-batches that touch HOT of the groups; ``by_start``: each has starts of its own."""
    live = LocalRun(with_sizes(program(query, **options), sizes))
    # ends differ, so that what bounds windows of endless lifetimes cannot be one instant
    starts = [(k, i, i - k * EACH if by_start else i) for k in range(groups) for i in range(EACH)]
    bulk = [(start, FAR + k * EACH + i, k, i) for k, i, start in starts]
    live.batch({"a": rows(*bulk), "b": rows(*((start, FAR, k, v + 1) for start, _, k, v in bulk))})
    for n in range(BATCHES):
        if n == WARM:
            before = work(live)
        at = 10 + n
        new = [(at, FAR, (n + i) % HOT, n) for i in range(NEW)]
        live.batch({"a": rows(*new), "b": rows(*new)})
    return work_since(before, live)


def work_of_hot_groups(query: Query, each: int, **options: Any) -> Work:
    """The work of all operators in micro-batches that touch all groups; each of these has so many events open.

    It is measured once each group has had a right row, which clips what is open, and that has been forgotten.
    """
    live = LocalRun(with_sizes(program(query, **options), BinSizes(split_above=128, whole_upto=0, awake_upto=16)))
    bulk = [(i, FAR + k + i * 13, k, i) for k in range(HOT) for i in range(each)]
    live.batch({"a": rows(*bulk), "b": rows(*((i, FAR, k, v + 1) for i, _, k, v in bulk[:1]))})
    for n in range(HOT + BATCHES):
        if n == HOT + WARM:
            before = work(live)
        new = [(each + n, FAR, (n + i) % HOT, n) for i in range(NEW)]
        live.batch({"a": rows(*new), "b": rows(*new[:1])})
    return work_since(before, live)


def program(query: Query, buckets: int = 1, **options: Any) -> StagedPlan:
    """A query compiled."""
    plan = rewrite(number_sources(query(source("a"), source("b")).plan)[0]).plan
    return compiled(plan, buckets=buckets, **options)


def work(live: LocalRun) -> Work:
    """The work since the beginning."""
    kernels = live.readings.of_kernels.values()
    noted = sum(len(store[Baskets.MANIFEST]) for store in live.stores.values())
    return Work(sum(k.evaluated or 0 for k in kernels), sum(k.bins_read or 0 for k in kernels), noted)


def work_since(before: Work, live: LocalRun) -> Work:
    after = work(live)
    return Work(after.evaluated - before.evaluated, after.bins - before.bins, after.noted)
