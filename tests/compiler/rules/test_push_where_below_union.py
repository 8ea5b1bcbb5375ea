from streamq.compiler.rules.filters_down import push_where_below_union
from streamq.expressions import duration
from streamq.functions.catalogue import function_of
from streamq.operators import Union, Where
from streamq.plan.expr import Call, Col
from tests.compiler.rules.law import MORE, STAYS, TRIPS, holds, why_not


def test_the_filter_goes_into_every_branch() -> None:
    p = (Col("v") > 0) & (duration() < 5)
    left = Where(Union((TRIPS, STAYS, MORE)), p)
    holds(push_where_below_union, left, Union((Where(TRIPS, p), Where(STAYS, p), Where(MORE, p))))


def test_a_random_one_stays() -> None:
    plan = Where(Union((TRIPS, MORE)), Call(function_of("rand"), ()) > 0.5)
    assert push_where_below_union(plan) is None
    assert why_not(push_where_below_union, plan) == "rand() > 0.5 is not known to be deterministic"
