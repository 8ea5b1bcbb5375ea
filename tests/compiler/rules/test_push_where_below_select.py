from streamq.compiler.rules.filters_down import push_where_below_select
from streamq.expressions import end
from streamq.functions.catalogue import function_of
from streamq.operators import Select, Where
from streamq.plan.expr import Call, Col, Opaque
from tests.compiler.rules.law import STAYS, TRIPS, holds, why_not

K, V, W = Col("k"), Col("v"), Col("w")
X = (("key", K), ("x", V + 1), ("long", Call(function_of("upper"), (K,))))


def test_the_filter_goes_below() -> None:
    left = Where(Select(TRIPS, X), (Col("key") == "a") & (Col("x") > 1))
    holds(push_where_below_select, left, Select(Where(TRIPS, (K == "a") & (V + 1 > 1)), X))


def test_lifetimes_are_the_same_below() -> None:
    left = Where(Select(STAYS, X), end().is_not_null() | (Col("key") == "a"))
    holds(push_where_below_select, left, Select(Where(STAYS, end().is_not_null() | (K == "a")), X))


def test_parts_that_read_something_dear_stay() -> None:
    left = Where(Select(TRIPS, X), (Col("long") == "A") & (Col("x") > 1))
    holds(push_where_below_select, left, Where(Select(Where(TRIPS, V + 1 > 1), X), Col("long") == "A"))
    plan = Where(Select(TRIPS, X), Col("long") == "A")
    assert why_not(push_where_below_select, plan) == "long = upper(k) would be evaluated twice"


def test_a_part_that_may_fail_does_not_overtake_one_that_stays() -> None:
    assert push_where_below_select(Where(Select(TRIPS, X), (Col("long") == "A") & (1 / Col("x") > 1))) is None


def test_nothing_goes_below_what_is_not_deterministic() -> None:
    for e in (Call(function_of("uuid"), ()).cast("string"), Opaque(None, "upper(k)").cast("string")):
        plan = Where(Select(TRIPS, (("k", K), ("id", e))), K == "a")
        assert push_where_below_select(plan) is None
        assert "not known to be deterministic" in (why_not(push_where_below_select, plan) or "")


def test_pruning_right_above_a_source_stays_below() -> None:
    assert push_where_below_select(Where(Select(TRIPS, (("k", K),)), K == "a")) is None
