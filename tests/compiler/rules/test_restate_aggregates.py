from __future__ import annotations

from streamq.aggregates.basic import AVG, COUNT, MAX, SUM
from streamq.aggregates.variances import STDDEV, STDDEV_POP, VAR, VAR_POP
from streamq.compiler.rules.window_aggregates import restate_aggregates
from streamq.expressions import when
from streamq.functions.catalogue import function_of
from streamq.operators import Select, WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Call, Col
from tests.compiler.rules.law import HOPPING, TRIPS, holds

V, W = Col("v"), Col("w")


def test_a_mean_is_a_sum_and_a_count() -> None:
    total, n = Aggregate(SUM, (W,)), Aggregate(COUNT, (W,))
    left = WindowAggregate(TRIPS, ("k",), HOPPING, (("m", Aggregate(AVG, (W,))), ("top", Aggregate(MAX, (V,)))))
    below = WindowAggregate(TRIPS, ("k",), HOPPING, (("top", Aggregate(MAX, (V,))), ("__count0", n), ("__sum0", total)))
    mean = when(Col("__count0") > 0, Col("__sum0") / Col("__count0").cast("double"))
    holds(restate_aggregates, left, Select(below, (("k", Col("k")), ("m", mean), ("top", Col("top")))))


def test_a_sum_that_is_there_is_used() -> None:
    total = ("total", Aggregate(SUM, (W,)))
    left = WindowAggregate(TRIPS, (), HOPPING, (total, ("m", Aggregate(AVG, (W,)))))
    below = WindowAggregate(TRIPS, (), HOPPING, (total, ("__count0", Aggregate(COUNT, (W,)))))
    mean = when(Col("__count0") > 0, Col("total") / Col("__count0").cast("double"))
    holds(restate_aggregates, left, Select(below, (("total", Col("total")), ("m", mean))))


def test_integers_are_added_as_doubles() -> None:
    as_double = V.cast("double")
    left = WindowAggregate(TRIPS, (), HOPPING, (("m", Aggregate(AVG, (V,))),))
    parts = (("__count0", Aggregate(COUNT, (as_double,))), ("__sum0", Aggregate(SUM, (as_double,))))
    mean = when(Col("__count0") > 0, Col("__sum0") / Col("__count0").cast("double"))
    holds(restate_aggregates, left, Select(WindowAggregate(TRIPS, (), HOPPING, parts), (("m", mean),)))


def test_a_deviation_is_the_root_of_a_variance() -> None:
    left = WindowAggregate(TRIPS, ("k",), HOPPING, (("d", Aggregate(STDDEV, (W,))), ("p", Aggregate(STDDEV_POP, (W,)))))
    parts = (("__var0", Aggregate(VAR, (W,))), ("__var_pop0", Aggregate(VAR_POP, (W,))))
    roots = (("d", Call(function_of("sqrt"), (Col("__var0"),))), ("p", Call(function_of("sqrt"), (Col("__var_pop0"),))))
    holds(restate_aggregates, left, Select(WindowAggregate(TRIPS, ("k",), HOPPING, parts), (("k", Col("k")), *roots)))


def test_a_variance_that_is_there_is_used() -> None:
    variance = ("v", Aggregate(VAR, (W,)))
    left = WindowAggregate(TRIPS, (), HOPPING, (variance, ("d", Aggregate(STDDEV, (W,)))))
    right = Select(
        WindowAggregate(TRIPS, (), HOPPING, (variance,)),
        (("v", Col("v")), ("d", Call(function_of("sqrt"), (Col("v"),)))),
    )
    holds(restate_aggregates, left, right)
