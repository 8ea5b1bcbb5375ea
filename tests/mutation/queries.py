"""Queries with which faults of ``faults.toml`` are verified: what a user of a feature writes first, with its modules.

Data are left open, and no query is made for a fault to be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

import streamq as sq
from streamq import col
from streamq import testing as t


@sq.uda("double", name="change")
def change(values: Any) -> float | None:
    """Return the last value of a window minus the first; None if one is missing."""
    return None if values.isna().any() else float(values.iloc[-1] - values.iloc[0])


@sq.udo("k string, rise double", name="rises_of_keys", properties=[sq.filters_on("k")], time_sensitive=True)
def rises(events: Any, window: Any) -> Iterator[Any]:
    """Each event that has more than the one before it of its key."""
    for key, of_key in events.groupby("k"):
        for before, now in zip(of_key[:-1].itertuples(), of_key[1:].itertuples(), strict=True):
            if now.v > before.v:
                yield now.start, now.end, key, now.v - before.v


@sq.udso("delta double", name="delta", initial=None)
def delta(last: float | None, value: float | None) -> tuple[float | None, list[float] | None]:
    """Return a value minus the one before it; no row if one of them is missing."""
    return value, None if last is None or value is None else [value - last]


@sq.uda("bigint", name="running_total")
class Total:
    """The sum of the values, which changes by what comes and goes."""

    def initial(self) -> int:
        return 0

    def add(self, state: int, values: Any) -> int:
        return state + int(values.sum())

    def remove(self, state: int, values: Any) -> int:
        return state - int(values.sum())

    def result(self, state: int) -> int:
        return state


@sq.udso("n bigint", name="numbered_from_a_list", initial=[0])
def numbered(count: list[int], value: float | None) -> tuple[list[int], list[int]]:
    """The number of an event in its group."""
    count[0] += 1
    return count, [count[0]]


@sq.udf("string", name="size_of_a_double")
def size(value: float | None, limit: float = 10) -> str | None:
    """Return "large" for a value above the limit, else "small"."""
    return None if value is None else "large" if value > limit else "small"


@sq.uda("bigint", name="above")
class Above:
    """Counts the values above a limit."""

    def __init__(self, limit: int = 0):
        self.limit = limit

    def initial(self) -> int:
        return 0

    def add(self, state: int, values: Any) -> int:
        return state + int((values > self.limit).sum())

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, state: int) -> int:
        return state


@sq.uda("double", name="load_above", time_sensitive=True, columns=["payload"])
def load_above(events: Any, window: Any, limit: float = 0.0) -> float:
    """Return the time that payloads above a limit live, added up, as a part of the window."""
    high = events[events.payload > limit]
    return float((high.end - high.start).sum() / window.duration)


@sq.udso("ratio double", name="ratio", initial=None, on_error="quarantine")
def ratio(last: float | None, value: float) -> tuple[float | None, list[float] | None]:
    """Return a value divided by the one before it; fails where the value is NULL or the divisor zero."""
    return value, None if last is None else [value / last]


@sq.udf("string", takes="series", name="city_of")
def city_of(k: Any) -> Any:
    """The city of a key, missing for other keys."""
    return k.map({"a": "Ulm", "b": "Bonn"})


@sq.udf("double", name="part_of_ten")
def part_of_ten(value: float | None) -> float | None:
    """Return ten divided by a value; fails where that is zero."""
    return None if value is None else 10 / value


def readings(**given_as: Any) -> t.Scenario:
    """A stream of numbers by key, from any kind of source."""
    return t.stream(columns="k string, v double", axis="integer", **given_as)


def totals(windows: t.Scenario) -> t.Scenario:
    return windows.select(n=sq.count(), total=sq.sum("v"))


def seconds_and_minutes(spans: t.Scenario) -> t.Scenario:
    return spans.select("k", lasts=col("lasts") * 60).union(spans)


def text(pattern: str, *types: str) -> t.Scenario:
    """The matches of a pattern over streams of readings."""
    matches: Any = sq.cedr(f"EVENT E WHEN {pattern}", **{name: readings() for name in types})  # type: ignore[arg-type]
    return matches


def parts(*names: str) -> list[Any]:
    return [readings().alias(name) for name in names]


def totals_and_most(windows: t.Scenario) -> t.Scenario:
    return windows.select(n=sq.count(), total=sq.sum("v"), most=sq.max("v"))


def whole_numbers(shape: str = "intervals") -> t.Scenario:
    """A stream of integers by key, whose sums are exact."""
    return t.stream(columns="k string, v bigint", axis="integer", shape=shape)


def two_numbers() -> t.Scenario:
    """A stream of pairs of numbers by key."""
    return t.stream(columns="k string, v double, w double", axis="integer")


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


S, WIDE = readings(), t.stream(columns="k string, v double, w double", axis="integer")
INTEGERS = t.stream(columns="k string, v bigint", axis="integer")
x, y, z = parts("x", "y", "z")
CITIES = pa.table({"k": ["a", "b", None], "city": ["Ulm", "Bonn", "nowhere"]})
PRICES = t.stream(columns="k string, v decimal(8,2)", axis="integer")

QUERIES: dict[str, Callable[[], t.Scenario]] = {
    "hopping": lambda: totals_and_most(readings().group_by("k").hopping_window(6, 2, 1)),
    "hopping over many": lambda: totals_and_most(whole_numbers("points").group_by("k").hopping_window(16, 1)),
    "hopping in blocks": lambda: totals_and_most(whole_numbers("points").group_by("k").hopping_window(4, 1)),
    "windows of two sizes": lambda: windows_of_two_sizes(whole_numbers("points").group_by("k")),
    "rows in steps": lambda: totals_and_most(readings().group_by("k").rows_window(5, 3, order_by="v")),
    "members of rows": lambda: totals_and_most(
        readings(shape="points").rows_window(5, 3, order_by="v").where(col("v") > 0).group_by("k")
    ).where(col("k") != "a"),
    "landmark of points": lambda: totals_and_most(readings(shape="points").landmark_window(4, period=10)),
    "anti join": lambda: readings().left_anti_join(readings(), on="k"),
    "windowed_join": lambda: readings().windowed_join(readings(), on="k", size=4, hop=2),
    "pairs by window": lambda: (
        readings(shape="points")
        .windowed_join(readings(shape="points"), on="k", size=5, hop=2, suffixes=("", "_r"))
        .select(n=sq.count(), most=sq.max("v_r"))
    ),
    "except_": lambda: readings().except_(readings()),
    "last_rows": lambda: readings(shape="points").last_rows(3, 2, key="k", order_by="v"),
    "shared windows": lambda: shared_windows(
        whole_numbers().with_columns(w=col("v") * 3).group_by("k").hopping_window(6, 2)
    ),
    "swapped": lambda: two_numbers().select("k", v=col("w"), w=col("v")),
    "inverse of the rising": lambda: two_numbers().where(col("v") * col("w") > 0).where(1 / col("v") > 0.1),
    "total where most is high": lambda: (
        totals_and_most(readings().group_by("k").tumbling_window(4)).where(col("most") > 2).select("k", "total")
    ),
    "long when extended": lambda: readings().extend(2).where(sq.duration() > 4),
    "filtered union": lambda: readings().union(readings()).where(col("v") > 2),
    "windows of a changelog": lambda: totals(readings(shape="physical").tumbling_window(5)),
    "no restart after a pair": lambda: (
        sq.sequence(x, y, within=8).unless(z, 5).where(lambda x, y, z: (x.k == y.k) & (x.k == z.k))
    ),  # type: ignore[attr-defined]
    "long events": lambda: S.where(sq.duration() > 3),
    "changes of some by key": lambda: (
        readings(shape="points").group_by("k").scan(delta("v", where=col("v") > 1))  # type: ignore[arg-type]
    ),
    "tumbling by key": lambda: totals(S.group_by("k").tumbling_window(5)),
    "hopping by key": lambda: totals(S.group_by("k").hopping_window(6, 2)),
    "last rows": lambda: S.group_by("k").rows_window(2).select(total=sq.sum("v")),
    "a band": lambda: S.select("k", low=col("v") * 0.9, high=col("v") * 1.1),
    "physical": lambda: readings(shape="physical"),
    "change in a window": lambda: S.group_by("k").tumbling_window(5).select(change=change("v")),
    "percentile": lambda: S.group_by("k").tumbling_window(6).select(p=sq.percentile("v", 0.9)),
    "rises in sessions": lambda: S.session_window(4).select(rises("k", "v")).where(col("k") == "a"),
    "rises of one key": lambda: (
        S.tumbling_window(5).select(rises("k", "v")).where((col("k") == "a") & (col("rise") > 1))
    ),
    "outside a range": lambda: text("SEQUENCE(A, B, 8) WHERE A.k = B.k AND A.v NOT BETWEEN 1 AND 3", "A", "B"),
    "negated of one key": lambda: text("UNLESS(A, B, 6) WHERE A.k = B.k AND B.k = 'a'", "A", "B"),
    "the first before": lambda: text("SEQUENCE(A FIRST, B, 8) WHERE A.k = B.k", "A", "B"),
    "sum of signals": lambda: (
        readings(shape="points").to_signal(key="k").snapshot_window().select(n=sq.count(), total=sq.sum("v"))
    ),
    "both, doubled": lambda: S.union(readings()).select("k", twice=col("v") * 2),
    "points and intervals": lambda: totals(
        readings(shape="points").union(readings(shape="intervals")).tumbling_window(4)
    ),
    "all different": lambda: text("SEQUENCE(A, B, C, 10) WHERE CorrelationKey(k, UNIQUE)", "A", "B", "C"),
    "running total": lambda: INTEGERS.group_by("k").hopping_window(6, 2).select(total=Total("v")),
    "triples": lambda: totals(S.group_by("k").count_window(3)),
    "in the morning": lambda: text("SEQUENCE(A, B, 9) WHERE A.k = B.k # [2, 9)", "A", "B"),
    "load": lambda: S.group_by("k").tumbling_window(5).select(load=sq.time_weighted_avg("v")),
    "numbered": lambda: S.to_points().group_by("k").scan(numbered("v")),  # type: ignore[arg-type]
    "windows with an offset": lambda: totals(S.group_by("k").hopping_window(6, 4, 1)),
    "sizes": lambda: S.select("k", size=size("v", limit=3)),
    "different values": lambda: S.tumbling_window(5).select(n=sq.count_distinct("v")),
    "a tax": lambda: (
        t.stream(columns="k string, v decimal(8,2)", axis="integer")
        .with_columns(rate=sq.lit(2))
        .select("k", tax=col("v") * col("rate"))
    ),
    "sessions by key": lambda: totals(S.group_by("k").session_window(4)),
    "mean price": lambda: PRICES.group_by("k").tumbling_window(5).select(mean=sq.avg("v")),
    "weights": lambda: S.select("k", weight=sq.when(col("v") > 3, 1).otherwise(0.5)),
    "all values": lambda: S.group_by("k").tumbling_window(5).select(all=sq.collect("v")),
    "none before": lambda: text("UNLESS_BEFORE(A, B, 5) WHERE A.k = B.k", "A", "B"),
    "runs of three": lambda: text(
        "REPEAT(A AS f, 3, 9) WHERE CorrelationKey(k, EQUAL) OUTPUT first(f.k) AS k, count(f) AS n, max(f.v) AS most",
        "A",
    ),
    "pairs that are cancelled": lambda: sq.cedr(
        "EVENT P WHEN SEQUENCE(A, B, 5) WHERE A.k = B.k OUTPUT A.k AS k "
        "EVENT E WHEN CANCEL_WHEN(SEQUENCE(P, C, 8), D) WHERE P.k = C.k AND P.k = D.k",
        A=readings(),
        B=readings(),
        C=readings(),
        D=readings(),
    ),
    "ratios by key": lambda: S.to_points().group_by("k").scan(ratio("v")),  # type: ignore[arg-type]
    "seconds and minutes": lambda: seconds_and_minutes(
        S.group_by("k").tumbling_window(5).select(lasts=sq.sum("v"))  # type: ignore[arg-type]
    ),
    "snapshots by key": lambda: totals(S.group_by("k").snapshot_window()),
    "sizes by two limits": lambda: S.select("k", low=size("v", limit=1), high=size("v", limit=3)),
    "cities or nothing": lambda: S.join_table(CITIES, on="k", how="left"),
    "the first and another": lambda: text("ATLEAST(2, A FIRST, B, 9) WHERE A.k = B.k", "A", "B"),
    "cities by a function": lambda: S.select("k", city=city_of("k")),
    "who took part": lambda: text(
        "ATLEAST(2, A, B, C, 9) AS m WHERE A.k = B.k AND B.k = C.k OUTPUT m.id AS id, m.contributors AS events",
        "A",
        "B",
        "C",
    ),
    "counts by place": lambda: (
        t.stream(columns="k string, at struct<x:double,y:double>", axis="integer")
        .group_by("at")
        .tumbling_window(5)
        .select(n=sq.count())
    ),
    "windows of edges": lambda: totals(readings(shape="edges").tumbling_window(5)),
    "above one where there is a weight": lambda: (
        t.stream(columns="k string, v bigint, w double", axis="integer")
        .group_by("k")
        .hopping_window(6, 2)
        .select(n=Above("v", limit=1, where=col("w") > 0))
    ),
    "high ratios of pairs": lambda: WIDE.join(readings(), on="k", suffixes=("", "_other")).where(
        col("v") / col("w") > 1
    ),
    "loads above two limits": lambda: S.tumbling_window(5).select(
        one=load_above("v", limit=1.0), three=load_above("v", limit=3.0)
    ),
    "rises of whole events, cut": lambda: S.tumbling_window(5, clip_input="none", stamp="clip").select(rises("k", "v")),
    "windows of shorter events": lambda: totals(S.extend(-2).tumbling_window(5)),
    "two of each key": lambda: S.group_by("k").tumbling_window(4).top_k(2, by="v"),
    "lists of some hops": lambda: S.hopping_window(6, 2).select(all=sq.collect("k"), n=sq.count_distinct("v")),
    "best of five rows": lambda: S.rows_window(5, 3, order_by="k").top_k(1, by="v"),
    "medians of five rows": lambda: INTEGERS.rows_window(5, 3, order_by="k").select(m=sq.median("v"), n=sq.count()),
    "greatest of five hops": lambda: S.hopping_window(10, 2).top_k(1, by="v"),
    "long events of a changelog": lambda: totals(
        readings(shape="physical").where(sq.duration() > 3).group_by("k").tumbling_window(5)
    ),
    "join of changelogs": lambda: readings(shape="physical").join(
        readings(shape="physical"), on="k", suffixes=("", "_other")
    ),
    "interval sessions by key": lambda: totals(readings(shape="intervals").group_by("k").session_window(4)),
    "variance of a changelog": lambda: (
        readings(shape="physical").group_by("k").hopping_window(6, 2).select(spread=sq.var("v"))
    ),
    "elements where a share is high": lambda: (
        t.stream(columns="k string, v double, xs array<double>", axis="integer")
        .explode("xs")
        .where(part_of_ten("v") > 1)
    ),
    "high parts of one key": lambda: (
        t.stream(columns="k string, xs array<struct<a:double,b:string>>", axis="integer")
        .explode("xs", flatten=True)
        .where((col("k") == "a") & (col("a") > 1))
    ),
    "all of two that are cancelled": lambda: sq.cedr(
        "EVENT P WHEN ALL(A, B, 5) WHERE A.k = B.k OUTPUT A.k AS k "
        "EVENT E WHEN CANCEL_WHEN(SEQUENCE(P, C, 8), D) WHERE P.k = C.k AND P.k = D.k",
        A=readings(),
        B=readings(),
        C=readings(),
        D=readings(),
    ),
    "beside the highest of another": lambda: S.join(
        readings().tumbling_window(6).top_k(1, by="v"), on="k", suffixes=("", "_highest")
    ),
}
"""By name; made while a mistake is in place, so that it has its part in making them."""
