from __future__ import annotations

import pytest

from streamq.aggregates.basic import apply_aggregate
from streamq.aggregates.holistic import COLLECT
from streamq.compiler.rules.filters_down import push_where_below_explode
from streamq.expressions import start
from streamq.functions.catalogue import function_of
from streamq.operators import Explode, Where, WindowAggregate
from streamq.plan.expr import Call, Col, Expr
from streamq.plan.node import Node
from tests.compiler.rules.law import HOPPING, TRIPS, holds, why_not

K = Col("k")
LISTS = WindowAggregate(TRIPS, ("k", "v"), HOPPING, (("all", apply_aggregate(COLLECT, "w")),))


def elements(source: Node) -> Node:
    return Explode(source, "all")


def test_a_filter_on_other_columns_and_lifetimes_goes_below() -> None:
    for p in (K == "a", K.is_null() | (start() > 2)):
        holds(push_where_below_explode, Where(elements(LISTS), p), elements(Where(LISTS, p)))


def test_the_rest_stays_above() -> None:
    left = Where(elements(LISTS), (Col("all") > 1) & (K == "a"))
    holds(push_where_below_explode, left, Where(elements(Where(LISTS, K == "a")), Col("all") > 1))


@pytest.mark.parametrize(
    ("p", "reason"),
    [
        (Col("all") > 1, None),
        ((K == "a") | (Col("all") > 1), None),
        (Call(function_of("uuid"), ()) > K, "uuid() > k is not known to be deterministic"),
        (1 / Col("v") > 0.5, "1 / v > 0.5 may fail, and would see events without elements"),
    ],
)
def test_it_stays_above(p: Expr, reason: str | None) -> None:
    plan = Where(elements(LISTS), p)
    assert push_where_below_explode(plan) is None
    assert why_not(push_where_below_explode, plan) == reason
