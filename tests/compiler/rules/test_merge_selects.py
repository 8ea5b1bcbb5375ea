from decimal import Decimal

from pyspark.sql import types as t

from streamq.compiler.rules.projections import merge_selects
from streamq.expressions import start
from streamq.functions.catalogue import function_of
from streamq.operators import Select
from streamq.plan.expr import Call, Col, Lit, Opaque
from tests.compiler.rules.law import TRIPS, holds, why_not

K, V, W = Col("k"), Col("v"), Col("w")
RANDOM = Call(function_of("rand"), ()).cast("double")


def test_expressions_are_put_in_place_of_columns() -> None:
    left = Select(
        Select(TRIPS, (("x", V + 1), ("y", W), ("z", start()))),
        (("a", Col("x") * 2), ("b", Col("y") + Col("y")), ("c", Col("z"))),
    )
    holds(merge_selects, left, Select(TRIPS, (("a", (V + 1) * 2), ("b", W + W), ("c", start()))))


def test_nothing_is_computed_twice() -> None:
    plan = Select(Select(TRIPS, (("x", V + 1),)), (("a", Col("x") * Col("x")),))
    assert merge_selects(plan) is None
    assert why_not(merge_selects, plan) == "x = v + 1 would be evaluated 2 times"


def test_what_is_nondeterministic_is_renamed_or_dropped_but_not_computed_with() -> None:
    inner = Select(TRIPS, (("x", RANDOM), ("v", V)))
    assert merge_selects(Select(inner, (("y", Col("x")),))) == Select(TRIPS, (("y", RANDOM),))
    assert merge_selects(Select(inner, (("v", V),))) == Select(TRIPS, (("v", V),))
    assert merge_selects(Select(inner, (("y", Col("x") + 1),))) is None


def test_opaque_expressions_stay() -> None:
    hidden = Opaque(None, "upper(k)").cast("string")
    assert merge_selects(Select(Select(TRIPS, (("k", hidden),)), (("x", K),))) is None
    assert merge_selects(Select(Select(TRIPS, (("k", K),)), (("x", hidden),))) is None


def test_a_constant_keeps_the_type_it_had_as_a_column() -> None:
    inner = Select(TRIPS, (("n", Lit(5)), ("price", Lit(Decimal("1.50")))))
    plan = Select(inner, (("total", Col("n") * Col("price")),))
    made = merge_selects(plan)
    assert made is not None
    assert made.schema.type_of("total") == plan.schema.type_of("total") == t.DecimalType(14, 2)
