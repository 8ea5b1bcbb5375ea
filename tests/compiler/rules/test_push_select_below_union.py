from streamq.compiler.rules.projections import push_select_below_union
from streamq.expressions import start
from streamq.functions.catalogue import function_of
from streamq.operators import Select, Union
from streamq.plan.expr import Call, Col
from tests.compiler.rules.law import MORE, STAYS, TRIPS, holds, why_not


def test_the_projection_goes_into_every_branch() -> None:
    x = (("x", Col("v") + 1), ("since", start()))
    left = Select(Union((TRIPS, STAYS, MORE)), x)
    holds(push_select_below_union, left, Union((Select(TRIPS, x), Select(STAYS, x), Select(MORE, x))))


def test_a_random_one_stays() -> None:
    plan = Select(Union((TRIPS, MORE)), (("x", Call(function_of("rand"), ()).cast("double")),))
    assert push_select_below_union(plan) is None
    assert why_not(push_select_below_union, plan) == "x = cast(rand() as double) is not known to be deterministic"
