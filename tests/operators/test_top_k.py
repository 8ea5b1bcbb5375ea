"""top_k: the members with the greatest (or least) values, by SQL's RANK; ties kept, or cut by the payload."""

from __future__ import annotations

from typing import Any

import pytest

import streamq as sq
from streamq.compiler.estimates import expected_rates
from streamq.compiler.results import Results
from streamq.errors import PlanError, TypeMismatch, UnknownColumn
from streamq.operators.top_k import TopK
from streamq.plan.node import nodes
from streamq.testing.table import table
from tests.judged import answer


def points(*rows: tuple[Any, ...], names: tuple[str, ...] = ("k", "v")) -> sq.Stream:
    return sq.events([(at, at + 1, dict(zip(names, values, strict=True))) for at, *values in rows])


S = points((1, "a", 5), (2, "b", 9), (3, "c", 5), (4, "d", 1))


def ranked(s: sq.Stream) -> list[tuple[Any, int]]:
    """The first column and the rank."""
    return sorted((row[2], row[-1]) for row in answer(s))


def test_estimates_do_not_count_ties() -> None:
    """10 groups, 1,000 events in 10 ticks: 30 best in a hop; 60 of windows of 2.5 hops, as a hop has two ranges of windows."""
    expected = sq.Expected(rows=1_000, every=10, distinct={"k": 10})
    s = sq.points(table("at bigint, k string, v bigint", []), time="at")
    for size, best in ((20, 30), (25, 60)):
        for ties, note in (("keep", ", but for ties"), ("break", "")):
            top = s.group_by("k").hopping_window(size, 10).top_k(3, by="v", ties=ties)
            text = top.explanation(expected=expected)
            assert f"at most 30 rows in 10{note}\n" in text
            assert f", at most {best} rows in 10 in micro-batches of a hop or longer{note};" in text
            (node,) = (node for node in nodes(top.plan) if isinstance(node, TopK))
            choice = node.batch_forms(expected_rates(Results((top.plan,)), expected)).cheapest
            assert f"; {best / 1_000:.2g} of the best an event, " in choice.reason


def test_errors() -> None:
    windowed = S.tumbling_window(5)
    for k in (0, -1, 1.5, True):
        with pytest.raises(PlanError, match="top_k: k is a whole number of at least 1; found"):
            windowed.top_k(k, by="v")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="top_k: ties is 'keep' or 'break'; found 'drop'"):
        windowed.top_k(1, by="v", ties="drop")
    with pytest.raises(UnknownColumn, match="top_k: no column 'w'; there are: k, v"):
        windowed.top_k(1, by="w")
    with pytest.raises(PlanError, match="an aggregate outside a window's select"):
        windowed.top_k(1, by=sq.sum("v"))
    for name in ("rank", "RANK"):
        with pytest.raises(PlanError, match="top_k: a column called 'rank'; the result has one. Rename it first"):
            S.rename(v=name).tumbling_window(5).top_k(1, by="k")
    arrays = sq.points(
        table("at bigint, v bigint, xs map<string,bigint>", [(1, 1, {"a": 1})]), time="at"
    ).tumbling_window(5)
    with pytest.raises(PlanError, match="top_k: no order on map<string,bigint>; found xs"):
        arrays.top_k(1, by="xs")
    with pytest.raises(TypeMismatch, match="top_k: cannot order by column 'xs'; found map<string,bigint>"):
        arrays.top_k(1, by="v", ties="break")
    assert ranked(arrays.top_k(1, by="v").select("v", "rank")) == [(1, 1)]
