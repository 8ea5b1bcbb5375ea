"""A run that goes on at another level of consistency, window by window: what was held back is there, once and as it came."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.operators import WindowAggregate
from streamq.plan.node import nodes, number_sources
from streamq.policies import MIDDLE, Level
from streamq.testing.history import sum_deltas
from streamq.windows import KINDS
from tests.programs import compiled

SOAK = 20 if os.environ.get("STREAMQ_SOAK") else 1

WINDOWS: dict[str, Callable[[Any], Any]] = {
    "hopping": lambda s: s.hopping_window(10, 5),
    "hops with gaps": lambda s: s.hopping_window(4, 9),
    "snapshot": lambda s: s.snapshot_window(),
    "sliding": lambda s: s.sliding_window(4),
    "count": lambda s: s.count_window(3),
    "rows": lambda s: s.rows_window(4, 2, order_by="v"),
    "session": lambda s: s.session_window(4),
    "landmark": lambda s: s.landmark_window(5, start=0),
    "landmarks": lambda s: s.landmark_window(5, start=0, period=20),
    "uneven landmarks": lambda s: s.landmark_window(5, start=0, period=18),
    "calendar": lambda s: s.calendar_window("1 day", zone="Europe/Berlin"),
}
READERS: dict[str, Callable[[Any], sq.Stream]] = {
    "partial results": lambda w: w.select(n=sq.count(), s=sq.sum("v"), m=sq.max("v")),
    "values": lambda w: w.select(n=sq.count(), x=sq.median("v"), d=sq.count_distinct("v")),
    "the best": lambda w: w.top_k(1, by="v"),
}
BLOCKS = [(0, None, 0), (None, 0), (0, 4, None), (6, 0, 0, None)]
"""For how long rows are held back, in one micro-batch after another."""

HOURS = {"calendar": pa.timestamp("us")}
"""The windows over instants of a calendar, an hour each; others are over integers."""


def table(window: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    kind = HOURS.get(window, pa.int64())
    times = [pa.array([row[n] if kind == pa.int64() else row[n] * 3_600_000_000 for row in rows], kind) for n in (0, 1)]
    keys, values = (pa.array([row[n] for row in rows], type) for n, type in ((2, pa.string()), (3, pa.int64())))
    return pa.table({"at": times[0], "til": times[1], "k": keys, "v": values})


def sources(window: str = "") -> dict[str, sq.Stream]:
    progress, rows = sq.generate("6 hours" if window in HOURS else 6), table(window, [])
    return {
        "points": sq.points(rows, "at", name="s", progress=progress).select("k", "v"),
        "intervals": sq.intervals(rows, "at", "til", name="s", progress=progress),
    }


def arrival(window: str, chance: random.Random) -> list[pa.Table]:
    """Micro-batches of rows out of order, within the delay, some of them equal."""
    micro_batches = []
    for n in range(7):
        starts = [4 * n + chance.randrange(4) for _ in range(chance.randrange(1, 5))]
        drawn = [(at, at + chance.randrange(1, 6), chance.choice("ab"), chance.randrange(3)) for at in starts]
        micro_batches.append(table(window, drawn + drawn[:1]))
    return micro_batches


@pytest.mark.slow
@pytest.mark.parametrize("shape", sources())
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("window", WINDOWS)
def test_rows_held_back_are_there_at_another_level(window: str, reader: str, shape: str) -> None:
    """After restarts at levels that hold rows back one by one and at others, the answer is that of one run without restarts."""
    query = READERS[reader](WINDOWS[window](sources(window)[shape].group_by("k")))
    plan = rewrite(number_sources(query.plan)[0]).plan
    turn = list(itertools.product(WINDOWS, READERS)).index((window, reader))
    for seed in range(SOAK):
        blocks = BLOCKS[(turn + seed) % len(BLOCKS)]
        levels = [Level(block) for block in blocks]
        programs = {level: compiled(plan, OutputForm.CHANGELOG, level=level, buckets=2) for level in (MIDDLE, *levels)}
        whole, run = (LocalRun(programs[level]) for level in (MIDDLE, levels[0]))
        deltas: tuple[list[pa.Table], list[pa.Table]] = ([], [])
        for rows, level in zip(
            arrival(window, random.Random(turn + 100 * seed)), itertools.cycle(levels), strict=False
        ):
            run = run.go_on(programs[level])
            for each, out in zip((whole, run), deltas, strict=True):
                out.append(each.batch({"s": rows}))
        for each, out in zip((whole, run), deltas, strict=True):
            out.append(each.finish())
        t.assert_same_history(
            *(sum_deltas(out, OutputForm.CHANGELOG, query.plan.schema.axis) for out in reversed(deltas))
        )


def test_no_window_is_left_out() -> None:
    queries = [READERS["values"](make(sources(name)["points"].group_by("k"))) for name, make in WINDOWS.items()]
    seen = {type(node.window) for query in queries for node in nodes(query.plan) if isinstance(node, WindowAggregate)}
    assert seen == set(KINDS)
