from __future__ import annotations

from dataclasses import replace

import pytest

from streamq.choices import JoinKind
from streamq.compiler.rules.filters_below_state import push_condition_below_join
from streamq.functions.catalogue import function_of
from streamq.operators import Join, Where, WindowedJoin
from streamq.plan.expr import Call, Col, Expr
from streamq.plan.node import Node
from tests.compiler.rules.law import HOPPING, MORE, STAYS, TRIPS, holds, why_not

K, V, V2 = Col("k"), Col("v"), Col("v2")


def join(left: Node, right: Node, where: Expr | None, how: JoinKind = JoinKind.INNER) -> Join:
    return Join(left, right, (("k", "k"),), where, how, (("k", "k"), ("v", "v"), ("w", "w")), (("v", "v2"),))


@pytest.mark.parametrize("how", [JoinKind.INNER, JoinKind.SEMI])
def test_a_condition_on_one_side_filters_it(how: JoinKind) -> None:
    plan = join(STAYS, TRIPS, (V > 0) & (V2 < 5) & (V < V2), how)
    made = join(Where(STAYS, V > 0), Where(TRIPS, V < 5), V < V2, how)
    holds(push_condition_below_join, plan, made)


@pytest.mark.parametrize("how", [JoinKind.LEFT, JoinKind.ANTI])
def test_a_left_event_that_meets_nobody_stays(how: JoinKind) -> None:
    plan = join(STAYS, TRIPS, (V > 0) & (V2 < 5), how)
    holds(push_condition_below_join, plan, join(STAYS, Where(TRIPS, V < 5), V > 0, how))
    assert (
        why_not(push_condition_below_join, plan)
        == "v > 0 decides which partners a left event has, and not whether it stays"
    )


def test_pairs_in_windows_lose_their_whole_condition() -> None:
    plan = WindowedJoin(TRIPS, MORE, HOPPING, (("k", "k"),), V2 > 0, (("k", "k"), ("v", "v")), (("v", "v2"),))
    holds(push_condition_below_join, plan, replace(plan, right=Where(MORE, V > 0), where=None))
    endless = replace(plan, left=STAYS)
    assert push_condition_below_join(endless) is None
    assert "events may never end" in (why_not(push_condition_below_join, endless) or "")


@pytest.mark.parametrize(
    ("p", "reason"),
    [
        (V < V2, None),
        (Call(function_of("uuid"), ()) > K, "uuid() > k is not known to be deterministic"),
        (1 / V2 > 0.5, "1 / v2 > 0.5 may fail, and would see events that meet nobody"),
    ],
)
def test_it_stays(p: Expr, reason: str | None) -> None:
    plan = join(STAYS, TRIPS, p)
    assert push_condition_below_join(plan) is None
    assert why_not(push_condition_below_join, plan) == reason
