"""Random histories through the kernels, longer than those that laws draw: rows are the oracle's, however they come.

The arguments of each query are drawn, too. Bins are small and rewritten all the time, each micro-batch begins with a restart,
and a CTI follows it that is as high as it may be (``tests/judges``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.plan.schema import POINT
from streamq.testing.arrival import Item
from streamq.testing.case import Case
from streamq.testing.execution import STREAM, Execution
from streamq.testing.trial import check
from tests.laws.cost_operators import TOTAL

SEEDS = range(100 if os.environ.get("STREAMQ_SOAK") else 4)
EVENTS = 40

COLUMNS = "kind string, start bigint, end bigint, new_end bigint, k bigint, v bigint"
POINTS = sq.points(t.table("at bigint, k bigint, v bigint", []), "at", name="p", progress=sq.explicit())
SPANS = sq.intervals(
    t.table("start bigint, end bigint, k bigint, v bigint", []), "start", "end", name="s", progress=sq.explicit()
)
A, B = (sq.physical(t.table(COLUMNS, []), name=name) for name in "ab")
V = sq.col("v")

MERGED = {"s": sq.sum("v"), "m": sq.max("v"), "t": TOTAL("v")}
OF_MEMBERS = {"d": sq.count_distinct("v"), "p": sq.median("v"), "n": sq.count()}
SUBTRACTED = {"n": sq.count(), "s": sq.sum("v")}


def rows_of(source: sq.Stream, random: Random, **how: str) -> Any:
    return source.rows_window(random.randint(1, 24), random.randint(2, 6), **how)


QUERIES: dict[str, Callable[[Random], sq.Stream]] = {
    "clip": lambda r: SPANS.clip(B, on="k"),
    "clip of ends that move": lambda r: A.clip(B, on="k"),
    "windowed_join": lambda r: A.windowed_join(
        B.rename(v="w"), on="k", size=r.choice([3, 7, 10]), hop=r.choice([2, 7, 10]), where=lambda a, b: a.v != b.w
    ),
    "snapshots": lambda r: SPANS.group_by("k").snapshot_window().select(**SUBTRACTED, m=sq.max("v")),
    "snapshots of all": lambda r: SPANS.snapshot_window(stamp="point_at_end").select(n=sq.count(), l=sq.min("v")),
    "sliding": lambda r: SPANS.group_by("k").sliding_window(r.randint(5, 40)).select(**SUBTRACTED),
    "the best of snapshots": lambda r: SPANS.group_by("k").snapshot_window().top_k(2, by="v"),
    "the best of snapshots, ranked apart": lambda r: (
        SPANS.group_by("k").snapshot_window().top_k(2, by="v", ties="break", row_number=True)
    ),
    "rows": lambda r: rows_of(POINTS.group_by("k"), r, order_by="v").select(**MERGED),
    "rows of values": lambda r: rows_of(POINTS.select("v", "k"), r, order_by="v", stamp="align").select(**OF_MEMBERS),
    "the best of rows": lambda r: rows_of(POINTS, r, order_by="k", stamp="align").top_k(
        r.randint(1, 3), by="v", ties=r.choice(["keep", "break"])
    ),
    "members of rows": lambda r: rows_of(POINTS, r, order_by="v").where(V % 3 != 1).group_by("k").select(**MERGED),
    "values of members of rows": lambda r: (
        rows_of(POINTS, r, order_by="v", stamp=r.choice(["align", None]))
        .where(V % 3 != 1)
        .group_by("k")
        .select(**OF_MEMBERS)
    ),
    "signal": lambda r: SPANS.to_signal("k"),
    "sessions": lambda r: SPANS.group_by("k").session_window(r.randint(2, 5)).select(n=sq.count()),
    "chop": lambda r: SPANS.chop(r.randint(2, 5)),
    "distinct_ids": lambda r: SPANS.distinct_ids(r.randint(1, 9), id="k"),
}


def drawn_case(query: sq.Stream, random: Random) -> Case:
    """Events of two groups at each source, many of one instant; some have no end, and ends that may move do so, or events go."""
    arrival: list[tuple[str, Item]] = []
    cut: list[int] = []
    sources = Case(query.plan, (), ()).sources
    moving: list[tuple[str, Item]] = []
    c = 0
    while len(arrival) < EVENTS:
        before = len(arrival)
        if moving and random.random() < 0.7:
            name, item = moving.pop(random.randrange(len(moving)))
            first = max(c, item.start or 0)
            if item.end is None or item.end > first:
                new_end = random.choice([first, first + random.randint(1, 9), None])
                if new_end != item.end:
                    arrival.append((name, replace(item, kind="retract", new_end=new_end)))
                if new_end is None or new_end > (item.start or 0):
                    moving.append((name, replace(item, end=new_end)))
        for name, source in sources.items():
            for _ in range(random.randrange(4)):
                start = c + random.randrange(10)
                length = 1 if source.schema.shape == POINT else random.choice([1, 3, 9, 40, None])
                payload = {"k": random.randrange(2), "v": random.randrange(7)}
                item = Item("insert", start, None if length is None else start + length, payload=payload)
                arrival.append((name, item))
                moving += [(name, item)] if name in "ab" else []
        c += random.randrange(5)
        cut.append(len(arrival) - before)
    return Case(query.plan, tuple(arrival), tuple(cut))


WAYS = (
    Execution(STREAM, OutputForm.CHANGELOG, ctis=True, slack=(0,), restart=True),
    Execution(STREAM, OutputForm.FINAL, slack=(0,), restart=True, buckets=2),
    Execution(STREAM, OutputForm.CHANGELOG, early=True, slack=(0, None), restart=True),
    Execution(STREAM, OutputForm.CHANGELOG, slack=(3, 0), blocks=(0, None, 4), restart=True),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_rows_are_those_of_the_oracle(name: str) -> None:
    for seed in SEEDS:
        judge(name, seed)


def judge(name: str, seed: int) -> None:
    random = Random(f"{name} {seed}")
    case = drawn_case(QUERIES[name](random), random)
    assert check(case, [WAYS[(seed + list(QUERIES).index(name)) % len(WAYS)]])
