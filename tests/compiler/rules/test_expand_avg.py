from streamq.compiler.rules.expand_avg import expand_avg
from streamq.expressions import when
from streamq.operators import Select, WindowAggregate
from streamq.plan.expr import Aggregate, Col
from tests.compiler.rules.law import HOPPING, TRIPS, holds

V, W = Col("v"), Col("w")


def test_a_mean_is_a_sum_and_a_count() -> None:
    total, n = Aggregate("sum", (W,)), Aggregate("count", (W,))
    left = WindowAggregate(TRIPS, ("k",), HOPPING, (("m", Aggregate("avg", (W,))), ("top", Aggregate("max", (V,)))))
    below = WindowAggregate(
        TRIPS, ("k",), HOPPING, (("top", Aggregate("max", (V,))), ("__count0", n), ("__sum0", total))
    )
    mean = when(Col("__count0") > 0, Col("__sum0") / Col("__count0").cast("double"))
    holds(expand_avg, left, Select(below, (("k", Col("k")), ("m", mean), ("top", Col("top")))))


def test_a_sum_that_is_there_is_used() -> None:
    total = ("total", Aggregate("sum", (W,)))
    left = WindowAggregate(TRIPS, (), HOPPING, (total, ("m", Aggregate("avg", (W,)))))
    below = WindowAggregate(TRIPS, (), HOPPING, (total, ("__count0", Aggregate("count", (W,)))))
    mean = when(Col("__count0") > 0, Col("total") / Col("__count0").cast("double"))
    holds(expand_avg, left, Select(below, (("total", Col("total")), ("m", mean))))


def test_integers_are_added_as_doubles() -> None:
    as_double = V.cast("double")
    left = WindowAggregate(TRIPS, (), HOPPING, (("m", Aggregate("avg", (V,))),))
    parts = (("__count0", Aggregate("count", (as_double,))), ("__sum0", Aggregate("sum", (as_double,))))
    mean = when(Col("__count0") > 0, Col("__sum0") / Col("__count0").cast("double"))
    holds(expand_avg, left, Select(WindowAggregate(TRIPS, (), HOPPING, parts), (("m", mean),)))


def test_without_a_mean_nothing_is_done() -> None:
    assert expand_avg(WindowAggregate(TRIPS, (), HOPPING, (("n", Aggregate("count", ())),))) is None
