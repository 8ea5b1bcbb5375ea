"""First queries: what a user of a feature writes first, as it stands in tutorial, language, patterns and modules of docs/.

Faults in rooms drawn at random are verified with them. Data are left open, and no query is made for a fault to be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa

import streamq as sq
from streamq import col
from streamq import testing as t
from tests.mutation.first_modules import (
    Above,
    Summed,
    Total,
    change,
    change_of_all,
    city_of,
    delta,
    inverse,
    load_above,
    median,
    numbered,
    part_of_ten,
    ratio,
    rise_of,
    rises,
    rises_at_once,
    share,
    size,
    weighted,
)


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


S, WIDE = readings(), t.stream(columns="k string, v double, w double", axis="integer")
INTEGERS = t.stream(columns="k string, v bigint", axis="integer")
x, y, z, w = parts("x", "y", "z", "w")
CITIES = pa.table({"k": ["a", "b", None], "city": ["Ulm", "Bonn", "nowhere"]})
SHIFTS = pa.table(
    {
        "k": ["a", "b"],
        "since": pa.array(pd.to_datetime(["2026-01-05 06:00:00.250125", "2026-01-05 14:00:00.000750"]).as_unit("ns")),
    }
)
PRICES = t.stream(columns="k string, v decimal(8,2)", axis="integer")

FIRST_QUERIES: dict[str, Callable[[], t.Scenario]] = {
    "an hour every minute": lambda: totals(readings(shape="points").group_by("k").hopping_window(60, 1)),
    "windows of a changelog": lambda: totals(readings(shape="physical").tumbling_window(5)),
    "windows of a moved changelog": lambda: totals(readings(shape="physical").shift(3).tumbling_window(5)),
    "no restart after a pair": lambda: (
        sq.sequence(x, y, within=8).unless(z, 5).where(lambda x, y, z: (x.k == y.k) & (x.k == z.k))
    ),  # type: ignore[attr-defined]
    "long events": lambda: S.where(sq.duration() > 3),
    "changes by key": lambda: readings(shape="points").group_by("k").scan(delta("v")),  # type: ignore[arg-type]
    "changes of some by key": lambda: (
        readings(shape="points").group_by("k").scan(delta("v", where=col("v") > 1))  # type: ignore[arg-type]
    ),
    "day so far": lambda: totals(S.group_by("k").landmark_window(5, period=20)),
    "tumbling by key": lambda: totals(S.group_by("k").tumbling_window(5)),
    "hopping by key": lambda: totals(S.group_by("k").hopping_window(6, 2)),
    "beside the mean of the window": lambda: S.join(
        S.group_by("k").tumbling_window(6).select(mean=sq.avg("v")), on="k", suffixes=("", "_mean")
    ),
    "since the third last": lambda: S.count_window(3).select(n=sq.count(), since=sq.window_start()),
    "last rows": lambda: S.group_by("k").rows_window(2).select(total=sq.sum("v")),
    "clip": lambda: S.clip(readings(), on="k"),
    "correlation": lambda: WIDE.group_by("k").tumbling_window(5).select(r=sq.corr("v", "w")),
    "a band": lambda: S.select("k", low=col("v") * 0.9, high=col("v") * 1.1),
    "join": lambda: S.join(readings(), on="k"),
    "between integers": lambda: S.select("k", low=sq.functions.floor("v"), high=sq.functions.ceil("v")),
    "physical with ids": lambda: readings(shape="physical_ids"),
    "physical": lambda: readings(shape="physical"),
    "change in a window": lambda: S.group_by("k").tumbling_window(5).select(change=change("v")),
    "percentile": lambda: S.group_by("k").tumbling_window(6).select(p=sq.percentile("v", 0.9)),
    "median": lambda: S.group_by("k").hopping_window(6, 2).select(m=sq.median("v")),
    "sum of integers": lambda: INTEGERS.group_by("k").hopping_window(6, 2).select(total=sq.sum("v")),
    "classes": lambda: S.select("k", level=sq.when(col("v") > 3, "high").when(col("v") > 1, "middle").otherwise("low")),
    "rises in sessions": lambda: S.session_window(4).select(rises("k", "v")).where(col("k") == "a"),
    "rises of one key": lambda: (
        S.tumbling_window(5).select(rises("k", "v")).where((col("k") == "a") & (col("rise") > 1))
    ),
    "how long": lambda: S.select("k", lasts=sq.duration()),
    "outside a range": lambda: text("SEQUENCE(A, B, 8) WHERE A.k = B.k AND A.v NOT BETWEEN 1 AND 3", "A", "B"),
    "the first before": lambda: text("SEQUENCE(A FIRST, B, 8) WHERE A.k = B.k", "A", "B"),
    "at most two": lambda: text("ATMOST(2, A, B, 5)", "A", "B"),
    "sum of signals": lambda: (
        readings(shape="points").to_signal(key="k").snapshot_window().select(n=sq.count(), total=sq.sum("v"))
    ),
    "spread": lambda: S.group_by("k").hopping_window(6, 2).select(spread=sq.stddev("v")),
    "spread of all": lambda: S.group_by("k").tumbling_window(5).select(spread=sq.stddev_pop("v")),
    "edges": lambda: readings(shape="edges"),
    "both, doubled": lambda: S.union(readings()).select("k", twice=col("v") * 2),
    "counts of counts": lambda: (
        S.group_by("k").tumbling_window(4).select(n=sq.count()).tumbling_window(8).select(most=sq.max("n"))
    ),
    "count of some": lambda: S.group_by("k").tumbling_window(5).select(n=sq.count(), high=sq.count(where=col("v") > 1)),
    "sessions in tens": lambda: (
        S.group_by("k").session_window(4).select(n=sq.count()).tumbling_window(10).select(most=sq.max("n"))
    ),
    "points and intervals": lambda: totals(
        readings(shape="points").union(readings(shape="intervals")).tumbling_window(4)
    ),
    "two greatest": lambda: S.tumbling_window(4).top_k(2, by="v"),
    "elements": lambda: (
        t.stream(columns="k string, xs array<double>", axis="integer")
        .explode("xs")
        .where((col("k") == "a") & (col("xs") > 1))
    ),
    "all different": lambda: text("SEQUENCE(A, B, C, 10) WHERE CorrelationKey(k, UNIQUE)", "A", "B", "C"),
    "running total": lambda: INTEGERS.group_by("k").hopping_window(6, 2).select(total=Total("v")),
    "triples": lambda: totals(S.group_by("k").count_window(3)),
    "whole numbers": lambda: S.select("k", n=col("v").cast("int")),
    "longest of a window": lambda: S.tumbling_window(5).select(longest=sq.max(sq.duration())),
    "an Aggregator": lambda: INTEGERS.group_by("k").hopping_window(6, 2).select(total=Summed("v")),
    "two least": lambda: S.tumbling_window(4).top_k(2, by="v", desc=False),
    "weighted by hand": lambda: S.tumbling_window(5).select(load=weighted("v")),
    "in the morning": lambda: text("SEQUENCE(A, B, 9) WHERE A.k = B.k # [2, 9)", "A", "B"),
    "the last five": lambda: totals(readings(shape="points").group_by("k").sliding_window(5)),
    "load": lambda: S.group_by("k").tumbling_window(5).select(load=sq.time_weighted_avg("v")),
    "numbered": lambda: S.to_points().group_by("k").scan(numbered("v")),  # type: ignore[arg-type]
    "windows with an offset": lambda: totals(S.group_by("k").hopping_window(6, 4, 1)),
    "landmarks of endless ones": lambda: totals(S.landmark_window(5, period=20)),
    "a ratio of series": lambda: WIDE.select("k", share=share("v", "w")),
    "sizes": lambda: S.select("k", size=size("v", limit=3)),
    "different values": lambda: S.tumbling_window(5).select(n=sq.count_distinct("v")),
    "a tax": lambda: (
        t.stream(columns="k string, v decimal(8,2)", axis="integer")
        .with_columns(rate=sq.lit(2))
        .select("k", tax=col("v") * col("rate"))
    ),
    "six of minutes": lambda: totals(readings(shape="points").group_by("k").hopping_window(6, 1)),
    "a ratio": lambda: WIDE.select("k", ratio=sq.when(col("w") != 0, col("v") / col("w"))),
    "first and last": lambda: S.group_by("k").tumbling_window(4).select(first=sq.first("v"), last=sq.last("v")),
    "median by numpy": lambda: S.group_by("k").hopping_window(6, 2).select(m=median("v")),
    "ten every three": lambda: totals(readings(shape="points").group_by("k").hopping_window(10, 3)),
    "inverse or set aside": lambda: readings(shape="physical").select("k", x=inverse("v")),
    "the last before": lambda: sq.sequence(x.last(), y, within=8).where(lambda x, y: x.k == y.k),  # type: ignore[attr-defined]
    "a pair without a third": lambda: (
        sq.sequence(x, y, within=8).where(lambda x, y: x.k == y.k).unless(z, 5)  # type: ignore[attr-defined]
    ),
    "samples with ids": lambda: (
        sq.points(
            t.table("at bigint, device string, v double", [(0, "a", 1.0)]), time="at", id="device", name="samples"
        )
        .tumbling_window(5)
        .select(n=sq.count(), total=sq.sum("v"))
    ),
    "windows of long events": lambda: totals(readings(shape="physical").where(sq.duration() > 6).tumbling_window(4)),
    "windows of long events, doubled": lambda: totals(
        readings(shape="physical").where(sq.duration() > 6).with_columns(v=col("v") * 2).tumbling_window(4)
    ),
    "sessions by key": lambda: totals(S.group_by("k").session_window(4)),
    "above two limits": lambda: (
        INTEGERS.group_by("k").hopping_window(6, 2).select(some=Above("v", limit=1), few=Above("v", limit=3))
    ),
    "cities": lambda: S.join_table(CITIES, on="k"),
    "two means": lambda: WIDE.group_by("k").tumbling_window(5).select(v=sq.avg("v"), w=sq.avg("w")),
    "two and no more": lambda: S.tumbling_window(4).top_k(2, by="v", ties="break"),
    "higher ones beside": lambda: S.join(
        readings(), on="k", where=lambda one, other: one.v < other.v, suffixes=("", "_other")
    ),
    "three ends": lambda: totals(S.group_by("k").count_window(3, by="end")),
    "two of three of a key": lambda: text("ATLEAST(2, A, B, C, 9) WHERE A.k = B.k AND B.k = C.k", "A", "B", "C"),
    "without a partner": lambda: S.left_anti_join(readings(), on="k"),
    "remainders": lambda: S.select("k", rest=col("v") % 3),
    "windows of a left join": lambda: totals(
        S.join(readings(shape="points"), on="k", how="left", suffixes=("", "_now")).tumbling_window(5)
    ),
    "mean price": lambda: PRICES.group_by("k").tumbling_window(5).select(mean=sq.avg("v")),
    "prices above three": lambda: PRICES.where(col("v") > 3),
    "names that begin so": lambda: S.where(col("k").like("a%")),
    "an hour every five minutes": lambda: totals(readings(shape="points").group_by("k").hopping_window(60, 5)),
    "day so far in sixes": lambda: totals(S.group_by("k").landmark_window(6, period=20)),
    "key of another name": lambda: S.join(t.stream(columns="id string, w double", axis="integer"), on=[("k", "id")]),
    "each start once": lambda: text("SEQUENCE(A CONSUME, B, 8) WHERE A.k = B.k", "A", "B"),
    "by two keys": lambda: (
        t.stream(columns="k string, g string, v double", axis="integer")
        .group_by("k", "g")
        .tumbling_window(5)
        .select(n=sq.count(), total=sq.sum("v"))
    ),
    "change of some": lambda: S.group_by("k").tumbling_window(5).select(change=change("v", where=col("v") > 1)),
    "change of ratios": lambda: (
        WIDE.group_by("k").tumbling_window(5).select(change=change(col("v") / col("w"), where=col("w") != 0))
    ),
    "windows of elements": lambda: (
        t.stream(columns="k string, xs array<double>", shape="points", axis="integer")
        .explode("xs")
        .group_by("k")
        .tumbling_window(5)
        .select(n=sq.count(), total=sq.sum("xs"))
    ),
    "values and their sum": lambda: S.group_by("k").hopping_window(6, 2).select(n=sq.count("v"), total=sq.sum("v")),
    "points by key": lambda: totals(readings(shape="points").group_by("k").tumbling_window(5)),
    "windows that end late": lambda: totals(S.tumbling_window(5)).where(sq.window_end() > 10),
    "weights": lambda: S.select("k", weight=sq.when(col("v") > 3, 1).otherwise(0.5)),
    "logarithms": lambda: S.select("k", level=sq.functions.ln("v")),
    "every element": lambda: t.stream(columns="k string, xs array<double>", axis="integer").explode("xs"),
    "a ratio or nothing": lambda: WIDE.select("k", ratio=sq.when(col("w") == 0, 0.0).otherwise(col("v") / col("w"))),
    "signals that last": lambda: readings(shape="points").to_signal(key="k").where(sq.duration() > 3),
    "change or set aside": lambda: S.group_by("k").tumbling_window(5).select(change=change_of_all("v")),
    "change of points": lambda: readings(shape="points").group_by("k").tumbling_window(5).select(change=change("v")),
    "columns that change places": lambda: WIDE.rename({"v": "w", "w": "v"}).select("k", rest=col("v") - col("w")),
    "keys of two widths": lambda: t.stream(columns="k int, v double", axis="integer").join(
        t.stream(columns="k bigint, w double", axis="integer"), on="k"
    ),
    "one or the other is high": lambda: text("SEQUENCE(A, B, 8) WHERE A.k = B.k AND (A.v > 1 OR B.v > 1)", "A", "B"),
    "mean of some": lambda: S.group_by("k").tumbling_window(5).select(mean=sq.avg("v", where=col("v") > 1)),
    "rounded": lambda: S.select("k", v=sq.functions.round("v", 1)),
    "three different ones and no fourth": lambda: (
        sq.sequence(x, y, z, within=10).where("CorrelationKey(k, UNIQUE)").unless(w, 5)
    ),
    "all values": lambda: S.group_by("k").tumbling_window(5).select(all=sq.collect("v")),
    "weeks": lambda: t.stream(columns="k string, at timestamp", axis="integer").select(
        "k", week=sq.functions.weekofyear("at")
    ),
    "first of a key": lambda: text("SEQUENCE(A FIRST, B, 8) WHERE CorrelationKey(k, EQUAL)", "A", "B"),
    "after the first pair": lambda: sq.sequence(
        sq.sequence(x, y, within=5).where(lambda x, y: x.k == y.k).alias("p").first(),
        z,
        within=9,
    ),
    "until noon": lambda: text("SEQUENCE(A, B, 9) WHERE A.k = B.k @ [2, 9)", "A", "B"),
    "sizes of pairs": lambda: text(
        "SEQUENCE(A, B, 8) WHERE A.k = B.k OUTPUT A.k AS k, "
        "CASE WHEN A.v > 3 THEN 'high' WHEN A.v > 1 THEN 'middle' ELSE 'low' END AS size",
        "A",
        "B",
    ),
    "events in decimals": lambda: text("ANY(A) OUTPUT A.k AS k, CAST(A.v AS decimal(8, 2)) AS v", "A"),
    "none before": lambda: text("UNLESS_BEFORE(A, B, 5) WHERE A.k = B.k", "A", "B"),
    "runs of three": lambda: text(
        "REPEAT(A AS f, 3, 9) WHERE CorrelationKey(k, EQUAL) OUTPUT first(f.k) AS k, count(f) AS n, max(f.v) AS most",
        "A",
    ),
    "three that are used up": lambda: sq.repeat(x, 3, within=9).where("CorrelationKey(k, EQUAL)").consume(),
    "either, then another": lambda: text(
        "SEQUENCE(ANY(A, B) AS s, C, 8) WHERE s.k = C.k OUTPUT s.k AS k, s.v AS v", "A", "B", "C"
    ),
    "rises of pairs": lambda: text(
        "SEQUENCE(A, B, 8) WHERE A.k = B.k OUTPUT A.k AS k, CASE WHEN B.v > A.v THEN B.v - A.v END AS rise", "A", "B"
    ),
    "either, by what one has": lambda: sq.cedr(
        "EVENT E WHEN SEQUENCE(ANY(A, B) AS s, C, 8) WHERE s.k = C.k AND s.w > 1", A=readings(), B=WIDE, C=readings()
    ),
    "three in any order": lambda: text("ALL(A, B, C, 9) WHERE A.k = B.k AND B.k = C.k", "A", "B", "C"),
    "since when": lambda: (
        t.stream(columns="k string, v double", axis="timestamp")
        .count_window(3)
        .select(n=sq.count(), since=sq.window_start())
    ),
    "days between": lambda: t.stream(columns="k string, a timestamp, b timestamp", axis="integer").select(
        "k", days=sq.functions.datediff("b", "a")
    ),
    "ratios": lambda: WIDE.select("k", ratio=col("v") / col("w")),
    "rises of some in sessions": lambda: (
        S.session_window(4).select(rises("k", "v", where=col("v") > 1)).where(col("k") == "a")
    ),
    "most at once": lambda: S.snapshot_window().select(n=sq.count()).tumbling_window(8).select(most=sq.max("n")),
    "elements of low ones": lambda: (
        t.stream(columns="k string, v double, xs array<double>", axis="integer").explode("xs").where(10 / col("v") > 1)
    ),
    "whole prices": lambda: PRICES.select("k", v=col("v").cast("int")),
    "values in a range": lambda: S.where(col("v").between(1, 3)),
    "whole names": lambda: t.stream(columns="k string, first string, last string", axis="integer").select(
        "k", name=sq.functions.concat_ws(" ", "first", "last")
    ),
    "load to their ends": lambda: S.tumbling_window(5, clip_input="left").select(load=weighted("v")),
    "pairs that are cancelled": lambda: sq.cedr(
        "EVENT P WHEN SEQUENCE(A, B, 5) WHERE A.k = B.k OUTPUT A.k AS k "
        "EVENT E WHEN CANCEL_WHEN(SEQUENCE(P, C, 8), D) WHERE P.k = C.k AND P.k = D.k",
        A=readings(),
        B=readings(),
        C=readings(),
        D=readings(),
    ),
    "counts by duration": lambda: (
        S.with_columns(lasts=sq.duration()).group_by("lasts").tumbling_window(5).select(n=sq.count())
    ),
    "parts that are high": lambda: (
        t.stream(columns="k string, xs array<struct<a:double,b:string>>", axis="integer")
        .explode("xs", flatten=True)
        .where(col("a") > 1)
    ),
    "none between": lambda: text("NOT(B, SEQUENCE(A, C, 8)) WHERE A.k = B.k AND A.k = C.k", "A", "B", "C"),
    "none after": lambda: text("UNLESS(A, B, 5) WHERE A.k = B.k", "A", "B"),
    "until when": lambda: S.select("k", until=sq.end()),
    "runs of two to four": lambda: text(
        "REPEAT(A AS f, 2, 4, 9) WHERE CorrelationKey(k, EQUAL) OUTPUT first(f.k) AS k, count(f) AS n", "A"
    ),
    "first of some": lambda: S.group_by("k").tumbling_window(5).select(first=sq.first("v", where=col("v") > 1)),
    "rises at once": lambda: S.tumbling_window(5).select(rises_at_once("k", "v")),
    "of two keys": lambda: sq.cedr(
        "EVENT E WHEN SEQUENCE(A, B, 8) WHERE CorrelationKey(k, g, EQUAL)",
        A=t.stream(columns="k string, g string, v double", axis="integer"),
        B=t.stream(columns="k string, g string, v double", axis="integer"),
    ),
    "load above a limit": lambda: S.tumbling_window(5).select(load=load_above("v", limit=1.0)),
    "doubled": lambda: S.with_columns(v=col("v") * 2),
    "ratios of large ones": lambda: WIDE.with_columns(size=size("w")).where(
        (col("size") == "large") & (col("v") / col("w") > 1)
    ),
    "windows of long intervals": lambda: totals(
        readings(shape="intervals").where(sq.duration() > 3).tumbling_window(4)
    ),
    "highest of a changelog": lambda: (
        readings(shape="physical").group_by("k").tumbling_window(5).select(most=sq.max("v"))
    ),
    "first of a key, once": lambda: sq.sequence(x.first().consume(), y, within=8).where(lambda x, y: x.k == y.k),  # type: ignore[attr-defined]
    "ratios by key": lambda: S.to_points().group_by("k").scan(ratio("v")),  # type: ignore[arg-type]
    "mean amount": lambda: (
        t.stream(columns="k string, v decimal(18,4)", axis="integer")
        .group_by("k")
        .tumbling_window(5)
        .select(mean=sq.avg("v"))
    ),
    "pairs and since when": lambda: text(
        "SEQUENCE(SEQUENCE(A, B, 5) AS s, C, 8) WHERE A.k = B.k AND B.k = C.k OUTPUT A.k AS k, s.root AS since",
        "A",
        "B",
        "C",
    ),
    "two minutes of five": lambda: totals(readings(shape="points").group_by("k").hopping_window(2, 5)),
    "days": lambda: totals(
        t.stream(columns="k string, v double", axis="timestamp")
        .group_by("k")
        .calendar_window("1 day", zone="Europe/Berlin")
    ),
    "seconds and minutes": lambda: seconds_and_minutes(
        S.group_by("k").tumbling_window(5).select(lasts=sq.sum("v"))  # type: ignore[arg-type]
    ),
    "snapshots by key": lambda: totals(S.group_by("k").snapshot_window()),
    "load of snapshots": lambda: S.group_by("k").snapshot_window().select(load=sq.time_weighted_avg("v")),
    "either, alike if it is the first": lambda: text("SEQUENCE(ANY(A, B), C, 8) WHERE A.k = C.k", "A", "B", "C"),
    "a pair that is cancelled": lambda: text(
        "CANCEL_WHEN(SEQUENCE(A, B, 8), C) WHERE A.k = B.k AND A.k = C.k", "A", "B", "C"
    ),
    "sessions of a changelog and intervals": lambda: totals(
        readings(shape="physical").union(readings(shape="intervals")).session_window(4)
    ),
    "sizes by two limits": lambda: S.select("k", low=size("v", limit=1), high=size("v", limit=3)),
    "cities or nothing": lambda: S.join_table(CITIES, on="k", how="left"),
    "the first and another": lambda: text("ATLEAST(2, A FIRST, B, 9) WHERE A.k = B.k", "A", "B"),
    "cities by a function": lambda: S.select("k", city=city_of("k")),
    "three different ones and no different fourth": lambda: (
        sq.sequence(x, y, z, within=10).unless(w, 5).where("CorrelationKey(k, UNIQUE)")
    ),
    "shifts": lambda: S.join_table(SHIFTS, on="k"),
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
    "rises of two and more": lambda: readings(shape="points").group_by("k").scan(rise_of("v", least=2.0)),  # type: ignore[arg-type]
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
    "counts of two streams": lambda: (
        S.group_by("k")
        .tumbling_window(4)
        .select(n=sq.count())
        .union(readings().group_by("k").tumbling_window(4).select(n=sq.count()))
        .tumbling_window(8)
        .select(most=sq.max("n"))
    ),
    "rises of whole events, cut": lambda: S.tumbling_window(5, clip_input="none", stamp="clip").select(rises("k", "v")),
    "windows of shorter events": lambda: totals(S.extend(-2).tumbling_window(5)),
    "two of each key": lambda: S.group_by("k").tumbling_window(4).top_k(2, by="v"),
    "lists of some hops": lambda: S.hopping_window(6, 2).select(all=sq.collect("k"), n=sq.count_distinct("v")),
    "best of five rows": lambda: S.rows_window(5, 3, order_by="k").top_k(1, by="v"),
    "medians of five rows": lambda: INTEGERS.rows_window(5, 3, order_by="k").select(m=sq.median("v"), n=sq.count()),
    "greatest of five hops": lambda: S.hopping_window(10, 2).top_k(1, by="v"),
    "growth": lambda: S.select("k", growth=sq.functions.exp("v")),
    "an hour and a half earlier": lambda: t.stream(columns="k string, v double", axis="timestamp").shift("-1.5 hours"),
    "windows of a fixed length": lambda: totals(S.set_duration(3).tumbling_window(5)),
    "left join by key": lambda: S.join(readings(), on="k", how="left", suffixes=("", "_other")),
    "long events of a changelog": lambda: totals(
        readings(shape="physical").where(sq.duration() > 3).group_by("k").tumbling_window(5)
    ),
    "counts by duration of a changelog": lambda: (
        readings(shape="physical")
        .with_columns(lasts=sq.duration())
        .group_by("lasts")
        .tumbling_window(5)
        .select(n=sq.count())
    ),
    "totals at the ends": lambda: totals(S.group_by("k").tumbling_window(5, stamp="point_at_end")),
    "totals of all": lambda: totals(S.tumbling_window(5)),
    "times as text": lambda: t.stream(columns="k string, at timestamp", axis="integer").select(
        "k", at=col("at").cast("string")
    ),
    "at least as high": lambda: WIDE.where(col("v") >= col("w")),
    "join of changelogs": lambda: readings(shape="physical").join(
        readings(shape="physical"), on="k", suffixes=("", "_other")
    ),
    "interval sessions by key": lambda: totals(readings(shape="intervals").group_by("k").session_window(4)),
    "windows of two changelogs": lambda: totals(
        readings(shape="physical").union(readings(shape="physical")).tumbling_window(5)
    ),
    "variance of a changelog": lambda: (
        readings(shape="physical").group_by("k").hopping_window(6, 2).select(spread=sq.var("v"))
    ),
    "price ratios": lambda: t.stream(columns="k string, v decimal(8,2), w decimal(8,2)", axis="integer").select(
        "k", ratio=col("v") / col("w")
    ),
    "runs of pairs": lambda: text("REPEAT(SEQUENCE(A, B, 5), 2, 9) WHERE A.k = B.k OUTPUT count(A) AS n", "A", "B"),
    "intervals by key": lambda: totals(readings(shape="intervals").group_by("k").tumbling_window(5)),
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
    "sessions at their ends": lambda: totals(S.group_by("k").session_window(4, stamp="point_at_end")),
    "all of two that are cancelled": lambda: sq.cedr(
        "EVENT P WHEN ALL(A, B, 5) WHERE A.k = B.k OUTPUT A.k AS k "
        "EVENT E WHEN CANCEL_WHEN(SEQUENCE(P, C, 8), D) WHERE P.k = C.k AND P.k = D.k",
        A=readings(),
        B=readings(),
        C=readings(),
        D=readings(),
    ),
    "variance": lambda: S.group_by("k").tumbling_window(5).select(spread=sq.var("v")),
    "beside the highest of another": lambda: S.join(
        readings().tumbling_window(6).top_k(1, by="v"), on="k", suffixes=("", "_highest")
    ),
}
