from streamq.compiler.rules.expand_stddev import expand_stddev
from streamq.operators import Select, WindowAggregate
from streamq.plan.expr import Aggregate, Call, Col
from tests.compiler.rules.law import HOPPING, TRIPS, holds

W = Col("w")


def test_a_deviation_is_the_root_of_a_variance() -> None:
    left = WindowAggregate(
        TRIPS, ("k",), HOPPING, (("d", Aggregate("stddev", (W,))), ("p", Aggregate("stddev_pop", (W,))))
    )
    parts = (("__var0", Aggregate("var", (W,))), ("__var_pop0", Aggregate("var_pop", (W,))))
    roots = (("d", Call("sqrt", (Col("__var0"),))), ("p", Call("sqrt", (Col("__var_pop0"),))))
    holds(expand_stddev, left, Select(WindowAggregate(TRIPS, ("k",), HOPPING, parts), (("k", Col("k")), *roots)))


def test_a_variance_that_is_there_is_used() -> None:
    variance = ("v", Aggregate("var", (W,)))
    left = WindowAggregate(TRIPS, (), HOPPING, (variance, ("d", Aggregate("stddev", (W,)))))
    right = Select(
        WindowAggregate(TRIPS, (), HOPPING, (variance,)), (("v", Col("v")), ("d", Call("sqrt", (Col("v"),))))
    )
    holds(expand_stddev, left, right)
