from __future__ import annotations

import pytest

from streamq.choices import LengthKind
from streamq.compiler.rules.filters_down import push_where_below_alter_lifetime
from streamq.expressions import duration, start
from streamq.functions.catalogue import function_of
from streamq.operators import AlterLifetime, Where
from streamq.operators.lifetime_change import Length, Start
from streamq.plan.expr import Call, Col, Expr
from streamq.plan.node import Node
from tests.compiler.rules.law import STAYS, holds, why_not

K, V = Col("k"), Col("v")


def shifted(source: Node) -> Node:
    return AlterLifetime(source, Start(by=3), Length(by=2))


def lasting(source: Node) -> Node:
    """As long as v says: events whose v is not positive are gone."""
    return AlterLifetime(source, Start(), Length(LengthKind.GIVEN, expr=V))


def test_a_filter_on_the_payload_goes_below() -> None:
    for change in (shifted, lasting):
        for p in (K == "a", K.is_null() | (V > 1)):
            holds(push_where_below_alter_lifetime, Where(change(STAYS), p), change(Where(STAYS, p)))


def test_the_rest_stays_above() -> None:
    left = Where(shifted(STAYS), (start() > 5) & (K == "a"))
    holds(push_where_below_alter_lifetime, left, Where(shifted(Where(STAYS, K == "a")), start() > 5))


@pytest.mark.parametrize(
    ("p", "reason"),
    [
        (start() > 3, None),
        ((K == "a") | (duration() > 3), None),
        (Call(function_of("uuid"), ()) > K, "uuid() > k is not known to be deterministic"),
        (1 / V > 0.5, "1 / v > 0.5 may fail, and would see events that get no lifetime"),
    ],
)
def test_it_stays_above(p: Expr, reason: str | None) -> None:
    plan = Where(lasting(STAYS), p)
    assert push_where_below_alter_lifetime(plan) is None
    assert why_not(push_where_below_alter_lifetime, plan) == reason
