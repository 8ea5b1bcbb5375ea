"""A query is checked, rewritten, compiled and explained by as much work as it is long: calls are counted, at two lengths.

A stream that is read twice is one part of the plan, however many streams are read twice on the way to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import nodes
from streamq.testing.history import assert_same_history
from streamq.testing.oracle import oracle
from tests.programs import compiled

Step = Callable[[Any, Any, int], Any]

value = sq.col("v")


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return t.table("start bigint, end bigint, k string, v int", rows)


def stream(name: str, rows: list[tuple[Any, ...]] | None = None) -> sq.Stream:
    return sq.intervals(table(rows or []), start="start", end="end", name=name)


def windows(s: Any) -> Any:
    return s.group_by("k").tumbling_window(6).select(v=sq.max("v"))


CHAINS: dict[str, Step] = {
    "filters": lambda s, o, i: s.where(value > i),
    "selects": lambda s, o, i: s.select("k", v=value + i),
    "shifts": lambda s, o, i: s.shift(1),
    "shifts and filters": lambda s, o, i: s.shift(1).where(sq.start() > i),
    "altered lifetimes": lambda s, o, i: s.alter_lifetime(start=sq.start() + 1),
    "cases": lambda s, o, i: s.select("k", v=sq.when(value > i, value).otherwise(value * 2)),
    "windows": lambda s, o, i: windows(s),
    "windows and filters": lambda s, o, i: windows(s).where(value > i),
    "snapshots": lambda s, o, i: s.group_by("k").snapshot_window().select(v=sq.max("v")),
    "sessions": lambda s, o, i: s.group_by("k").session_window(3).select(v=sq.max("v")),
    "joins": lambda s, o, i: s.join(o.where(value > i), on="k", suffixes=("", "_r")).select("k", "v"),
    "joins and filters": lambda s, o, i: s.join(o, on="k", suffixes=("", "_r")).where(value > i).select("k", "v"),
    "semi joins": lambda s, o, i: s.join(o.where(value > i), on="k", how="semi"),
    "unions": lambda s, o, i: s.union(o.where(value > i)),
    "unions and filters": lambda s, o, i: s.union(o).where(value > i),
    "differences": lambda s, o, i: s.except_(o.where(value > i)),
    "a union with itself": lambda s, o, i: s.union(s),
    "a union with itself, filtered": lambda s, o, i: s.union(s.where(value > i)),
    "a union with itself, moved": lambda s, o, i: s.union(s.shift(i + 1)),
    "a union of two filters": lambda s, o, i: s.where(value > i).union(s.where(value < i)),
    "a union with its windows": lambda s, o, i: s.union(windows(s)).where(value > i),
    "a join with itself": lambda s, o, i: s.join(s.where(value > i), on="k", suffixes=("", "_r")).select("k", "v"),
}

SHORT, TIMES = 80, 2


def chain(name: str, length: int, *rows: list[tuple[Any, ...]]) -> sq.Stream:
    s, o = stream("s", *rows), stream("o", *rows)
    for i in range(length):
        s = CHAINS[name](s, o, i)
    return s


def calls_of_explain(name: str, length: int, function: Callable[..., Any] | None = None) -> int:
    """The number of calls of Python functions that explain makes, or of one; the first explanation fills what is kept for all."""
    chain(name, 2).explanation()
    query = chain(name, length)
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call" and (function is None or frame.f_code is function.__code__)

    sys.setprofile(count)
    try:
        query.explanation()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_explain_works_as_much_as_the_query_is_long(name: str) -> None:
    judge(name)


MORE = {"joins and filters": 4 / 3}
"""The factor by which a chain that is longer may take more work for its length: forty filters go down together."""


def judge(name: str) -> None:
    short, long = calls_of_explain(name, SHORT), calls_of_explain(name, TIMES * SHORT)
    # a sixth more than twice as many: some texts, such as those of nested unions, are as long as they are deep
    assert long <= TIMES * short * MORE.get(name, 7 / 6), (name, long / short)


@pytest.mark.parametrize("name", CHAINS)
def test_a_longer_query_is_not_walked_more_often(name: str) -> None:
    judge_walks(name)


def judge_walks(name: str) -> None:
    assert calls_of_explain(name, 40, nodes) == calls_of_explain(name, 20, nodes), name


@pytest.mark.parametrize("name", CHAINS)
def test_a_plan_and_its_stages_are_as_large_as_the_query(name: str) -> None:
    """At most three nodes for each of the query, and of what is read twice few paths more."""
    judge_size(name)


def judge_size(name: str) -> None:
    # what doubles at each level is seen soon
    size(name, 7)
    size(name, 12)
    size(name, SHORT)


def size(name: str, length: int) -> None:
    query = chain(name, length)
    plan = rewrite(query.plan).plan
    assert len(nodes(plan)) <= 3 * len(nodes(query.plan)), name
    assert len(compiled(plan).feeds) <= 8 * len(nodes(plan)), name


@pytest.mark.parametrize("name", [name for name in CHAINS if name.startswith("a union")])
def test_what_is_handed_on_is_what_came(name: str) -> None:
    """Seven levels of a stream that is read twice: where paths are handed on, the answer is that of the oracle."""
    rows = [(1, 4, "x", 3), (2, 9, "x", 5), (6, 8, "y", 4)]
    query = chain(name, 6, rows)
    assert_same_history(query.to_arrow(), oracle(query.plan, query.tables))
