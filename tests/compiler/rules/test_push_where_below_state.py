from __future__ import annotations

import pytest

from streamq.aggregates.basic import COUNT, SUM
from streamq.choices import ClipInput, JoinKind, LengthKind, Stamp
from streamq.compiler.rules.filters_below_state import push_where_below_state
from streamq.expressions import start
from streamq.functions.catalogue import function_of
from streamq.operators import (
    AlterLifetime,
    Clip,
    DistinctIds,
    Except,
    Join,
    LastRows,
    TopK,
    ToSignal,
    Where,
    WindowAggregate,
    WindowedJoin,
)
from streamq.operators.lifetime_change import Length, Start
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Call, Col, Expr
from streamq.plan.node import Node
from streamq.windows import Rows
from tests.compiler.rules.law import HOPPING, MORE, STAYS, TRIPS, holds, why_not

MORE_STAYS = AlterLifetime(MORE, Start(), Length(LengthKind.FIXED, 3))

K = Col("k")


def window(source: Node, *keys: str) -> WindowAggregate:
    return WindowAggregate(source, keys, HOPPING, (("n", Aggregate(COUNT, ())), ("s", Aggregate(SUM, (Col("v"),)))))


def test_a_filter_on_keys_goes_below() -> None:
    for p in (K == "a", K.is_null(), K.isin("a", "c") & (K > "a")):
        holds(push_where_below_state, Where(window(TRIPS, "k"), p), window(Where(TRIPS, p), "k"))


def test_the_rest_stays_above() -> None:
    left = Where(window(TRIPS, "k"), (Col("n") > 1) & (K == "a"))
    holds(push_where_below_state, left, Where(window(Where(TRIPS, K == "a"), "k"), Col("n") > 1))


def test_endless_lifetimes_keep_every_group() -> None:
    """Stay ``a`` from 7 on has no end, so its windows are reported up to the last endpoint, which is of group ``b``."""
    plan = Where(window(STAYS, "k"), K == "a")
    assert push_where_below_state(plan) is None
    assert "events may never end" in (why_not(push_where_below_state, plan) or "")


@pytest.mark.parametrize(
    ("keys", "p", "reason"),
    [
        (("k",), start() > 3, None),
        (("k",), Col("n") > 3, None),
        (("k",), (K == "a") | (start() > 3), "k == 'a' or start() > 3 reads the lifetime"),
        (("k",), Call(function_of("uuid"), ()) > K, "uuid() > k is not known to be deterministic"),
        (("w",), Col("w") > 1, "key w is floating: -0.0 and 0.0 are one group"),
        (("v",), 1 / Col("v") > 0.5, "1 / v > 0.5 may fail, and would see events of no row"),
    ],
)
def test_it_stays_above(keys: tuple[str, ...], p: Expr, reason: str | None) -> None:
    plan = Where(window(TRIPS, *keys), p)
    assert push_where_below_state(plan) is None
    assert why_not(push_where_below_state, plan) == reason


def inner(left: Node, right: Node, how: JoinKind = JoinKind.INNER) -> Join:
    return Join(left, right, (("k", "k"),), None, how, (("k", "k"), ("v", "v"), ("w", "w")), (("v", "v2"),))


V, V2 = Col("v"), Col("v2")


def test_a_condition_on_a_side_of_a_join_filters_it_and_one_on_the_key_both() -> None:
    plan = Where(inner(STAYS, TRIPS), (V > 0) & (V2 < 5) & (K == "a") & (V < V2))
    ours, theirs = Where(STAYS, (V > 0) & (K == "a")), Where(TRIPS, (V < 5) & (K == "a"))
    holds(push_where_below_state, plan, Where(inner(ours, theirs), V < V2))
    assert why_not(push_where_below_state, plan) == "v < v2 reads both inputs"


@pytest.mark.parametrize("how", [JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI])
def test_of_other_joins_the_left_side_and_the_key_decide(how: JoinKind) -> None:
    plan = Where(inner(STAYS, TRIPS, how), (V > 0) & (K == "a"))
    made = inner(Where(STAYS, (V > 0) & (K == "a")), Where(TRIPS, K == "a"), how)
    holds(push_where_below_state, plan, made)


def test_a_condition_on_the_right_side_of_a_left_join_stays() -> None:
    plan = Where(inner(STAYS, TRIPS, JoinKind.LEFT), V2 > 0)
    assert push_where_below_state(plan) is None
    assert why_not(push_where_below_state, plan) == "v2 is NULL where a left event has no partner"


def test_a_clipped_event_is_judged_before_and_its_key_on_both_sides() -> None:
    plan = Where(Clip(STAYS, TRIPS, (("k", "k"),)), (V > 0) & (K == "a"))
    made = Clip(Where(STAYS, (V > 0) & (K == "a")), Where(TRIPS, K == "a"), (("k", "k"),))
    holds(push_where_below_state, plan, made)


def test_equal_payloads_satisfy_one_condition() -> None:
    plan = Where(Except(STAYS, MORE_STAYS), V > 0)
    holds(push_where_below_state, plan, Except(Where(STAYS, V > 0), Where(MORE_STAYS, V > 0)))
    plan = Where(Except(STAYS, MORE_STAYS), Col("w") > 0)
    assert why_not(push_where_below_state, plan) == "key w is floating: -0.0 and 0.0 are one group"


KEPT = {
    "to_signal": lambda a: ToSignal(a, ("k",)),
    "last_rows": lambda a: LastRows(a, ("k",), Rows(2, 1, ())),
    "distinct_ids": lambda a: DistinctIds(a, ("k",), 5),
    "top_k": lambda a: TopK(a, ("k",), HOPPING, 1, V, True, "keep", ClipInput.FULL, Stamp.ALIGN),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_condition_on_the_groups_goes_below(name: str) -> None:
    over = KEPT[name]
    holds(push_where_below_state, Where(over(TRIPS), (K == "a") & (V > 0)), Where(over(Where(TRIPS, K == "a")), V > 0))


def in_windows(left: Node, right: Node) -> WindowedJoin:
    return WindowedJoin(left, right, HOPPING, (("k", "k"),), None, (("k", "k"), ("v", "v")), (("v", "v2"),))


def test_pairs_in_windows_are_filtered_before() -> None:
    made = in_windows(Where(TRIPS, K == "a"), Where(MORE, (V > 0) & (K == "a")))
    holds(push_where_below_state, Where(in_windows(TRIPS, MORE), (V2 > 0) & (K == "a")), made)
    assert "events may never end" in (why_not(push_where_below_state, Where(in_windows(STAYS, MORE), V > 0)) or "")
