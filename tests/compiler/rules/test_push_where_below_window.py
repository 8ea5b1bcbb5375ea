from __future__ import annotations

import pytest

from streamq.aggregates.sums import COUNT, SUM
from streamq.compiler.rules.push_where_below_window import push_where_below_window, why_not
from streamq.expressions import start
from streamq.functions.catalogue import function_of
from streamq.operators import Where, WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Call, Col, Expr
from streamq.plan.node import Node
from tests.compiler.rules.law import HOPPING, STAYS, TRIPS, holds

K = Col("k")


def window(source: Node, *keys: str) -> WindowAggregate:
    return WindowAggregate(source, keys, HOPPING, (("n", Aggregate(COUNT, ())), ("s", Aggregate(SUM, (Col("v"),)))))


def test_a_filter_on_keys_goes_below() -> None:
    for p in (K == "a", K.is_null(), K.isin("a", "c") & (K > "a")):
        holds(push_where_below_window, Where(window(TRIPS, "k"), p), window(Where(TRIPS, p), "k"))


def test_the_rest_stays_above() -> None:
    left = Where(window(TRIPS, "k"), (Col("n") > 1) & (K == "a"))
    holds(push_where_below_window, left, Where(window(Where(TRIPS, K == "a"), "k"), Col("n") > 1))


def test_endless_lifetimes_keep_every_group() -> None:
    """Stay ``a`` from 7 on has no end, so its windows are reported up to the last endpoint, which is of group ``b``."""
    plan = Where(window(STAYS, "k"), K == "a")
    assert push_where_below_window(plan) is None
    assert "events may never end" in (why_not(plan) or "")


@pytest.mark.parametrize(
    ("keys", "p", "reason"),
    [
        (("k",), start() > 3, None),
        (("k",), Col("n") > 3, None),
        (("k",), (K == "a") | (start() > 3), "k == 'a' or start() > 3 reads the window's lifetime"),
        (("k",), Call(function_of("uuid"), ()) > K, "uuid() > k is not known to be deterministic"),
        (("w",), Col("w") > 1, "key w is floating: -0.0 and 0.0 are one group"),
        (("v",), 1 / Col("v") > 0.5, "1 / v > 0.5 may fail, and would see events of no reported window"),
    ],
)
def test_it_stays_above(keys: tuple[str, ...], p: Expr, reason: str | None) -> None:
    plan = Where(window(TRIPS, *keys), p)
    assert push_where_below_window(plan) is None
    assert why_not(plan) == reason
