"""The queries that mutants are verified with: one or two an operator or law, such as somebody writes who asks whether it works.

The columns are named, the data is left open, and nothing is made for a single mutant to be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamq as sq
from streamq import col
from streamq import testing as t
from tests.mutation.first_queries import FIRST_QUERIES


def events(**given_as: Any) -> t.Scenario:
    """A stream of numbers by key, from any kind of source."""
    return t.stream(columns="k string, v double", axis="integer", **given_as)


def whole_numbers(shape: str = "intervals") -> t.Scenario:
    """A stream of integers by key, whose sums are exact."""
    return t.stream(columns="k string, v bigint", axis="integer", shape=shape)


def two_numbers() -> t.Scenario:
    """A stream of pairs of numbers by key."""
    return t.stream(columns="k string, v double, w double", axis="integer")


def totals(windows: t.Scenario) -> t.Scenario:
    return windows.select(n=sq.count(), total=sq.sum("v"), most=sq.max("v"))


def shared_windows(windows: Any) -> t.Scenario:
    """Two results of the same windows, joined."""
    sums = windows.select(total=sq.sum("w"), n=sq.count("v"))
    joined: t.Scenario = windows.select(total=sq.sum("v")).join(sums, on="k", suffixes=("", "_r"))
    return joined


def windows_of_two_sizes(points: Any) -> t.Scenario:
    """The totals of long windows and of shorter ones, in one result."""
    long, short = (points.hopping_window(*grid).select(n=sq.count(), total=sq.sum("v")) for grid in ((8, 1), (4, 2, 1)))
    both: t.Scenario = long.union(short)
    return both


def pattern(text: str) -> t.Scenario:
    """The matches of a pattern over two streams."""
    matches: t.Scenario = sq.cedr(f"EVENT E WHEN {text}", A=events(), B=events())  # type: ignore[arg-type, assignment]
    return matches


QUERIES: dict[str, Callable[[], t.Scenario]] = {
    "hopping": lambda: totals(events().group_by("k").hopping_window(6, 2, 1)),
    "hopping over points": lambda: totals(events(shape="points").group_by("k").hopping_window(5, 2)),
    "hopping over starts": lambda: totals(events().to_points().group_by("k").hopping_window(5, 2)),
    "hopping over many": lambda: totals(whole_numbers("points").group_by("k").hopping_window(16, 1)),
    "hopping in blocks": lambda: totals(whole_numbers("points").group_by("k").hopping_window(4, 1)),
    "hopping of lifetimes": lambda: totals(whole_numbers().group_by("k").hopping_window(8, 2)),
    "windows of two sizes": lambda: windows_of_two_sizes(whole_numbers("points").group_by("k")),
    "tumbling": lambda: (
        events().tumbling_window(4).select(n=sq.count("v"), mean=sq.avg("v"), least=sq.min("v"), most=sq.max("v"))
    ),
    "spread": lambda: events().group_by("k").hopping_window(6, 3).select(spread=sq.var("v")),
    "snapshot": lambda: totals(events().group_by("k").snapshot_window()),
    "sliding": lambda: whole_numbers().sliding_window(20).select(n=sq.count(), total=sq.sum("v"), most=sq.max("v")),
    "session": lambda: totals(events().group_by("k").session_window(3)),
    "session of integers": lambda: (
        t.stream(columns="k string, v bigint", axis="integer").group_by("k").session_window(3).select(total=sq.sum("v"))
    ),
    "median of sessions": lambda: events().group_by("k").session_window(3).select(n=sq.count(), middle=sq.median("v")),
    "session, on its window": lambda: totals(events().group_by("k").session_window(3, stamp="align")),
    "count": lambda: totals(events().group_by("k").count_window(2)),
    "rows": lambda: events().group_by("k").rows_window(2, order_by="v").select(first=sq.first("v"), total=sq.sum("v")),
    "rows in steps": lambda: totals(events().group_by("k").rows_window(5, 3, order_by="v")),
    "members of rows": lambda: totals(
        events(shape="points").rows_window(5, 3, order_by="v").where(col("v") > 0).group_by("k")
    ).where(col("k") != "a"),
    "landmark": lambda: totals(events().landmark_window(4, period=10)),
    "landmark of points": lambda: totals(events(shape="points").landmark_window(4, period=10)),
    "time_weighted_avg": lambda: events().group_by("k").tumbling_window(5).select(level=sq.time_weighted_avg("v")),
    "first and last": lambda: events().snapshot_window().select(first=sq.first("v"), last=sq.last("v")),
    "median of hops": lambda: events(shape="points").group_by("k").hopping_window(6, 2).select(middle=sq.median("v")),
    "count_distinct": lambda: events().hopping_window(4, 2).select(keys=sq.count_distinct("k")),
    "top_k": lambda: events().tumbling_window(4).top_k(2, by="v"),
    "join": lambda: events().join(events(), on="k"),
    "left join": lambda: events().join(
        events(), on="k", where=lambda l, r: l["v"] < r["v"], how="left", suffixes=("", "_r")
    ),
    "anti join": lambda: events().left_anti_join(events(), on="k"),
    "windowed_join": lambda: events().windowed_join(events(), on="k", size=4, hop=2),
    "pairs by window": lambda: (
        events(shape="points")
        .windowed_join(events(shape="points"), on="k", size=5, hop=2, suffixes=("", "_r"))
        .select(n=sq.count(), most=sq.max("v_r"))
    ),
    "except_": lambda: events().except_(events()),
    "clip": lambda: events().clip(events(), on="k"),
    "to_signal": lambda: events(shape="points").to_signal(key="k"),
    "last_rows": lambda: events(shape="points").last_rows(3, 2, key="k", order_by="v"),
    "pairs of last rows": lambda: (
        events(shape="points")
        .windowed_join(events(shape="points"), on="k", rows=3, step=2, suffixes=("", "_r"))
        .select(n=sq.count(), most=sq.max("v_r"))
    ),
    "distinct_ids": lambda: events(shape="points").distinct_ids(4, id="k"),
    "chop": lambda: events().chop(5, 1),
    "edges": lambda: events(shape="edges"),
    "physical": lambda: events(shape="physical"),
    "intervals": lambda: events(shape="intervals").snapshot_window().select(n=sq.count()),
    "sessions at once": lambda: (
        events()
        .group_by("k")
        .session_window(3, stamp="align")
        .select(n=sq.count())
        .snapshot_window()
        .select(sessions=sq.count(), events=sq.sum("n"))
    ),
    "filtered sum": lambda: (
        events(shape="points").group_by("k").tumbling_window(4).select(v=sq.sum("v")).where(col("v") > 1)
    ),
    "shared windows": lambda: shared_windows(
        whole_numbers().with_columns(w=col("v") * 3).group_by("k").hopping_window(6, 2)
    ),
    "union": lambda: events().union(events()).select("k", twice=col("v") * 2),
    "filtered": lambda: (
        events().with_columns(v=col("v") * 2).where(col("v") > 3).group_by("k").tumbling_window(4).select(n=sq.count())
    ),
    "swapped": lambda: two_numbers().select("k", v=col("w"), w=col("v")),
    "inverse of the rising": lambda: two_numbers().where(col("v") * col("w") > 0).where(1 / col("v") > 0.1),
    "total where most is high": lambda: (
        totals(events().group_by("k").tumbling_window(4)).where(col("most") > 2).select("k", "total")
    ),
    "long when extended": lambda: events().extend(2).where(sq.duration() > 4),
    "filtered union": lambda: events().union(events()).where(col("v") > 2),
    "except of greatest values": lambda: (
        events().snapshot_window().select(most=sq.max("v")).except_(events().select(most=col("v")))
    ),
    "cast": lambda: events().select("k", n=col("v").cast("int")),
    "filtered keys": lambda: totals(events().group_by("k").hopping_window(4, 2)).where(col("k") == "a"),
    "sequence": lambda: pattern("SEQUENCE(A, B, 6) WHERE A.k = B.k"),
    "sequence by key": lambda: pattern("SEQUENCE(A, B, 8) WHERE CorrelationKey(k, EQUAL)"),
    "sequence that chooses": lambda: pattern("SEQUENCE(A FIRST CONSUME, B, 8)"),
    "at most": lambda: pattern("ATMOST(1, A, B, 4)"),
    "unless": lambda: pattern("UNLESS(A, B, 5) WHERE A.k = B.k"),
    "slice": lambda: pattern("SEQUENCE(A, B, 9) OUTPUT A.k AS k @ [2, 6)"),
    "cancel_when": lambda: pattern("CANCEL_WHEN(SEQUENCE(SEQUENCE(A, A AS b, 6), A AS d, 9), B AS c)"),
    **FIRST_QUERIES,
}
"""By name; made while a mistake is in place, so that it has its part in making them."""
