"""A batch translates to little: it scans its sources as often as the plan reads them, and shuffles little."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import streamq as sq
from streamq.compiler.rewriter import rewrite
from streamq.operators import Join
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.plan.footprint import NO_RATES
from streamq.plan.node import Node, nodes

pytestmark = pytest.mark.spark

Over = Callable[[Any, Any], Any]

V = sq.col("v")


def less(a: Any, b: Any) -> Any:
    return a.v < b.v


OVER: dict[str, Over] = {
    "where": lambda s, o: s.where(V > 0),
    "select": lambda s, o: s.select("k", v=V + 1),
    "shift": lambda s, o: s.shift(3),
    "set_duration": lambda s, o: s.set_duration(4),
    "without an end": lambda s, o: s.set_duration(None),
    "to_points": lambda s, o: s.to_points(),
    "union": lambda s, o: s.union(o),
    "clip": lambda s, o: s.clip(o, on="k"),
    "chop": lambda s, o: s.chop(4),
    "to_signal": lambda s, o: s.to_signal("k"),
    "except_": lambda s, o: s.except_(o),
    "join": lambda s, o: s.join(o, on="k", suffixes=("", "_r")).select("k", "v"),
    "left join": lambda s, o: s.join(o, on="k", how="left", suffixes=("", "_r")).select("k", "v"),
    "semi join": lambda s, o: s.join(o, on="k", how="semi"),
    "anti join": lambda s, o: s.left_anti_join(o, on="k"),
    "join without keys": lambda s, o: s.join(o, where=less, suffixes=("", "_r")).select("k", "v"),
    "left join without keys": lambda s, o: s.join(o, where=less, how="left", suffixes=("", "_r")).select("k", "v"),
    "semi join without keys": lambda s, o: s.join(o, where=less, how="semi"),
    "anti join without keys": lambda s, o: s.left_anti_join(o, where=less),
    "clip without keys": lambda s, o: s.clip(o),
    "last_rows": lambda s, o: s.last_rows(2, order_by=["k", "v"]),
    "distinct_ids": lambda s, o: s.distinct_ids(3, id="k"),
    "windowed_join": lambda s, o: s.windowed_join(o, on="k", size=6, suffixes=("", "_r")).select("k", "v"),
    "tumbling": lambda s, o: s.group_by("k").tumbling_window(6).select(v=sq.sum("v")),
    "hopping": lambda s, o: s.group_by("k").hopping_window(8, 2).select(v=sq.max("v")),
    "best of a window": lambda s, o: s.group_by("k").tumbling_window(6).top_k(1, by="v").select("k", "v"),
    "snapshot": lambda s, o: s.group_by("k").snapshot_window().select(v=sq.max("v")),
    "sums of snapshots": lambda s, o: s.group_by("k").snapshot_window().select(v=sq.sum("v")),
    "best of a snapshot": lambda s, o: s.group_by("k").snapshot_window().top_k(1, by="v").select("k", "v"),
    "count": lambda s, o: s.group_by("k").count_window(2).select(v=sq.sum("v")),
    "rows": lambda s, o: s.group_by("k").rows_window(4, 2).select(v=sq.sum("v")),
    "session": lambda s, o: s.group_by("k").session_window(3).select(v=sq.sum("v")),
    "landmark": lambda s, o: s.group_by("k").landmark_window(5, period=20).select(v=sq.sum("v")),
}

KINDS: dict[str, Callable[[DataFrame, str], Any]] = {
    "intervals": lambda df, name: sq.intervals(df, "start", "end", name=name),
    "points": lambda df, name: sq.points(df.drop("end"), "start", name=name),
    "endless": lambda df, name: sq.points(df.drop("end"), "start", name=name).set_duration(None),
    "of one length": lambda df, name: sq.points(df.drop("end"), "start", name=name).set_duration(7),
}

SHUFFLES = 3
"""The most exchanges an operator, on average."""


def reads(plan: Node) -> int:
    """The number of times that a rewritten plan reads its sources.

    Where lifetimes may never end, an operator reads its inputs once more, for their last instant, and each source, for how far
    it has come: the later of these bounds its windows. A join without keys over operators without state reads its inputs once
    more, for the lengths of their lifetimes, unless the plan knows these; one by keys of points and others so reads the others.
    """
    read: dict[str, int] = {}
    for node in nodes(plan):
        own = sum(read[child.digest] for child in node.children) or 1
        measured = node.measured if isinstance(node, Join) and node.batch_forms(NO_RATES) is None else ()
        is_bounded = isinstance(node, EvaluatedOperator) and node.hears_endpoints
        sources = [below for below in nodes(node) if not below.children]
        again = own + len(sources) if is_bounded else sum(read[side.digest] for side in measured)
        read[node.digest] = own + again
    return read[plan.digest]


def computed(lines: list[str], seen: set[str]) -> Iterator[str]:
    """The names of the operators of a plan of Spark's; equal subqueries and exchanges are computed once, and count once."""
    place = 0
    while place < len(lines):
        indent, name = indent_and_name(lines[place])
        place += 1
        if not (name == "Subquery" or "Exchange" in name):
            yield name
            continue
        first = place
        while place < len(lines) and len(indent_and_name(lines[place])[0]) > len(indent):
            place += 1
        whole = "\n".join(line[len(indent) :] for line in lines[first - 1 : place])
        whole = re.sub(r"(plan_id=|id=#|#)\d+", "", whole)
        if whole not in seen:
            seen.add(whole)
            yield name
            yield from computed(lines[first:place], seen)


def indent_and_name(line: str) -> tuple[str, str]:
    """Matches the beginning of a line of a plan, as long as the operator is deep, and the operator's name."""
    match = re.fullmatch(r"([\s:+\-]*)[*()\d\s]*([A-Z]\w*).*", line)
    assert match is not None, line
    return match[1], match[2]


def size(df: Any) -> tuple[int, int]:
    """The number of scans of files, and of exchanges, in the plan that Spark executes."""
    text = df._jdf.queryExecution().executedPlan().toString().strip()
    # an expression may hold a line feed
    names = list(computed(re.sub(r"\n(?![ :+])", "", text).splitlines(), set()))
    return sum("Scan" in name and name != "Scan" for name in names), sum("Exchange" in name for name in names)


@pytest.fixture(scope="module")
def frames(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[DataFrame]:
    folder = tmp_path_factory.mktemp("frames")
    rows = pa.table({"start": pa.array([1, 2]), "end": pa.array([5, 9]), "k": ["x", "y"], "v": pa.array([1, 2])})
    for name in "ab":
        pq.write_table(rows, folder / f"{name}.parquet")
    return [spark.read.parquet(str(folder / f"{name}.parquet")) for name in "ab"]


def check(frames: list[DataFrame], kind: str, names: list[str]) -> None:
    stream, other = (KINDS[kind](df, name) for df, name in zip(frames, "ab", strict=True))
    for name in names:
        stream = OVER[name](stream, other)
    plan = rewrite(stream.plan).plan
    scans, exchanges = size(stream.to_df())
    operators = len([node for node in nodes(plan) if node.children])
    assert scans <= reads(plan), (kind, names, scans, reads(plan))
    assert exchanges <= SHUFFLES * operators + 2, (kind, names, exchanges, operators)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OVER)
def test_an_operator_scans_no_more_than_its_plan_reads(frames: list[DataFrame], name: str, kind: str) -> None:
    check(frames, kind, [name])


@pytest.mark.parametrize("seed", range(40))
def test_operators_on_each_other_scan_no_more_than_their_plan_reads(frames: list[DataFrame], seed: int) -> None:
    drawn = random.Random(seed)
    check(frames, drawn.choice(list(KINDS)), [drawn.choice(list(OVER)) for _ in range(4)])
