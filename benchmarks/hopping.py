"""Hopping windows with a hop of a minute, by streamq and by Spark: the same aggregates of a key's points, or of its intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import streamq as sq

HOP_US = 60_000_000
LONGEST_US = 2 * HOP_US
"""The longest lifetime of an interval."""


@dataclass(frozen=True)
class Aggregates:
    """The results of a window: by streamq, and by functions of Spark's own."""

    ours: Callable[[Any], sq.Stream]
    spark: Callable[[], list[Column]]


def selected(**aggregates: Callable[[], Any]) -> Callable[[Any], sq.Stream]:
    """Return a function that selects aggregates of a window."""
    return lambda window: window.select(**{name: make() for name, make in aggregates.items()})


AGGREGATES: dict[str, Aggregates] = {
    "sum": Aggregates(
        selected(events=lambda: sq.count("v"), total=lambda: sq.sum("v"), top=lambda: sq.max("v")),
        lambda: [F.count("v"), F.sum("v"), F.max("v")],
    ),
    "count_sum": Aggregates(
        selected(events=lambda: sq.count("v"), total=lambda: sq.sum("v")), lambda: [F.count("v"), F.sum("v")]
    ),
    "count": Aggregates(selected(events=lambda: sq.count("v")), lambda: [F.count("v")]),
    "max": Aggregates(selected(top=lambda: sq.max("v")), lambda: [F.max("v")]),
    "avg": Aggregates(selected(mean=lambda: sq.avg("v")), lambda: [F.avg("v")]),
    "median": Aggregates(selected(mid=lambda: sq.median("v")), lambda: [F.median("v")]),
    "mixed": Aggregates(
        selected(mid=lambda: sq.median("v"), total=lambda: sq.sum("v"), top=lambda: sq.max("v")),
        lambda: [F.median("v"), F.sum("v"), F.max("v")],
    ),
    # a stream of Spark's takes no distinct aggregate
    "distinct": Aggregates(
        selected(values=lambda: sq.count_distinct(sq.functions.floor("v"))),
        lambda: [F.size(F.collect_set(F.floor("v")))],
    ),
    "corr": Aggregates(selected(corr=lambda: sq.corr("v", "w")), lambda: [F.corr("v", "w")]),
    "first": Aggregates(
        selected(first=lambda: sq.first("v")), lambda: [F.min_by("v", F.struct("ts", "key", "v", "w"))]
    ),
    "top_k": Aggregates(lambda window: window.top_k(10, by="v"), lambda: [F.max_by("v", "v", 10)]),
}


def windows(rows: Any, n: int, of: str, *, lasting: bool = False) -> sq.Stream:
    """Return windows of ``n`` hops by the public API over a DataFrame or files; ``lasting``: from ``ts`` to ``until``."""
    if lasting:
        events = sq.intervals(rows, start="ts", end="until", name="events")
    else:
        events = sq.points(rows, time="ts", name="events")
    return AGGREGATES[of].ours(events.group_by("key").hopping_window(f"{n} minutes", "1 minute"))


def spark_windows(df: DataFrame, n: int, of: str, *, lasting: bool = False, streaming: bool = False) -> DataFrame:
    """Return the same by Spark: points by its ``window()``; intervals, which that does not know, by a copy for each window."""
    if not lasting:
        marked = df.withWatermark("ts", "0 seconds") if streaming else df
        groups = marked.groupBy("key", F.window("ts", f"{n} minutes", "1 minute"))
        return groups.agg(*AGGREGATES[of].spark())
    start, end = F.unix_micros("ts"), F.unix_micros("until")
    first = F.floor((start - n * HOP_US) / HOP_US) * HOP_US + HOP_US
    last = F.ceil(end / HOP_US) * HOP_US - HOP_US
    exploded = df.withColumn("start", F.explode(F.sequence(first, last, F.lit(HOP_US))))
    copies = exploded.withColumn("window", F.timestamp_micros("start"))
    # a window of a later event starts at most its size before that
    marked = copies.withWatermark("window", f"{n + LONGEST_US // HOP_US} minutes") if streaming else copies
    return marked.groupBy("key", "window").agg(*AGGREGATES[of].spark())
