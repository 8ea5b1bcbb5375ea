from pyspark.sql import types as t

from streamq.compiler.rules.filters_down import merge_wheres
from streamq.expressions import end
from streamq.functions.catalogue import function_of
from streamq.functions.logic import conjunction
from streamq.operators import Where
from streamq.plan.expr import Call, Cast, Col, Opaque
from tests.compiler.rules.law import STAYS, TRIPS, holds, why_not

V, W = Col("v"), Col("w")


def test_filters_in_a_row_become_one() -> None:
    holds(merge_wheres, Where(Where(TRIPS, V > 0), W < 2.0), Where(TRIPS, (V > 0) & (W < 2.0)))


def test_the_lifetime_may_be_read() -> None:
    holds(merge_wheres, Where(Where(STAYS, V > 0), end().is_null()), Where(STAYS, (V > 0) & end().is_null()))


def test_a_predicate_that_may_fail_does_not_see_rows_on_which_the_other_is_null() -> None:
    for q in (V * 2 > 3, 1 / V > 0, Cast(Col("k"), t.LongType()) > 1):
        plan = Where(Where(TRIPS, W > 0), q)
        assert merge_wheres(plan) is None
        assert "may fail on rows where w > 0 is NULL" in (why_not(merge_wheres, plan) or "")


def test_a_remainder_by_a_constant_cannot_fail() -> None:
    holds(merge_wheres, Where(Where(TRIPS, W > 0), V % 2 == 1), Where(TRIPS, (W > 0) & (V % 2 == 1)))
    assert merge_wheres(Where(Where(TRIPS, W > 0), V % 0 == 1)) is None


def test_what_may_differ_from_call_to_call_stays() -> None:
    for p in (Call(function_of("rand"), ()) > 0.5, Opaque(None, "x > 1").is_null()):
        assert merge_wheres(Where(Where(TRIPS, p), V > 0)) is None


def test_a_predicate_does_not_grow_without_bound() -> None:
    many = conjunction([V + i > 0 for i in range(40)])
    assert merge_wheres(Where(Where(TRIPS, many), V > 0)) is None
