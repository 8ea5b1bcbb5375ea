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

NAN = float("nan")


def points(*rows: tuple[Any, ...], names: tuple[str, ...] = ("k", "v")) -> sq.Stream:
    return sq.events([(at, at + 1, dict(zip(names, values, strict=True))) for at, *values in rows])


S = points((1, "a", 5), (2, "b", 9), (3, "c", 5), (4, "d", 1))


def ranked(s: sq.Stream) -> list[tuple[Any, int]]:
    """The first column and the rank."""
    return sorted((row[2], row[-1]) for row in answer(s))


def test_ties_at_the_last_rank_are_all_kept_and_leave_a_gap() -> None:
    assert ranked(S.tumbling_window(5).top_k(2, by="v")) == [("a", 2), ("b", 1), ("c", 2)]
    assert ranked(S.tumbling_window(5).top_k(3, by="v")) == [("a", 2), ("b", 1), ("c", 2)]
    assert ranked(S.tumbling_window(5).top_k(4, by="v")) == [("a", 2), ("b", 1), ("c", 2), ("d", 4)]


def test_broken_ties_go_by_the_payload_and_keep_their_rank() -> None:
    assert ranked(S.tumbling_window(5).top_k(2, by="v", ties="break")) == [("a", 2), ("b", 1)]
    assert ranked(S.tumbling_window(5).top_k(2, by="v", desc=False, ties="break")) == [("a", 2), ("d", 1)]
    equal = sq.events([(at, at + 1, {"v": 1}) for at in (1, 2, 3)])
    assert [r[2:] for r in answer(equal.tumbling_window(5).top_k(2, by="v", ties="break"))] == [(1, 1), (1, 1)]


def test_null_is_least_and_nan_greatest_and_the_zeros_tie() -> None:
    s = points((1, "null", None), (1, "nan", NAN), (1, "inf", float("inf")), (1, "zero", 0.0), (1, "minus", -0.0))
    assert ranked(s.tumbling_window(5).top_k(2, by="v")) == [("inf", 2), ("nan", 1)]
    assert ranked(s.tumbling_window(5).top_k(2, by="v", desc=False)) == [("minus", 2), ("null", 1), ("zero", 2)]
    assert ranked(s.tumbling_window(5).top_k(9, by="v"))[-1] == ("zero", 3)


def test_rows_carry_the_payload_and_live_on_the_window() -> None:
    top = S.hopping_window(4, 2).top_k(1, by="v")
    assert top.columns == ["k", "v", "rank"]
    assert answer(top) == [(-2, 2, "a", 5, 1), (0, 4, "b", 9, 1), (2, 6, "b", 9, 1), (4, 8, "d", 1, 1)]
    at_end = S.hopping_window(4, 2, stamp="point_at_end").top_k(1, by="v")
    assert [r[:2] for r in answer(at_end)] == [(2, 3), (4, 5), (6, 7), (8, 9)]
    assert at_end.schema.shape == "point"


def test_in_every_kind_of_window() -> None:
    s = sq.events([(1, 5, {"v": 1}), (3, 8, {"v": 2}), (20, 21, {"v": 0})])
    assert answer(s.snapshot_window().top_k(1, by="v")) == [(1, 3, 1, 1), (3, 5, 2, 1), (5, 8, 2, 1), (20, 21, 0, 1)]
    assert answer(s.session_window(6).top_k(1, by="v")) == [(1, 13, 2, 1), (20, 26, 0, 1)]
    assert answer(s.count_window(2).top_k(1, by="v")) == [(4, 5, 2, 1), (21, 22, 2, 1)]
    assert answer(s.rows_window(2, 2).top_k(1, by="v", desc=False)) == [(4, 5, 1, 1)]
    assert answer(s.landmark_window(10, start=0).top_k(1, by="v")) == [(10, 11, 2, 1), (20, 21, 2, 1), (30, 31, 2, 1)]


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
