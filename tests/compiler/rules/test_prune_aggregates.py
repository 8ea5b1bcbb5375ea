from streamq.aggregates.basic import COUNT, MAX, SUM
from streamq.compiler.rules.projections import prune_aggregates
from streamq.operators import Select, Where, WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col
from streamq.windows import Hopping
from tests.compiler.rules.law import HOPPING, TRIPS, holds

N, S, M = ("n", Aggregate(COUNT, ())), ("s", Aggregate(SUM, (Col("v"),))), ("m", Aggregate(MAX, (Col("w"),)))


def window(*aggregates: tuple[str, Aggregate]) -> WindowAggregate:
    return WindowAggregate(TRIPS, ("k",), HOPPING, aggregates)


def test_unread_aggregates_go() -> None:
    x = (("k", Col("k")), ("n", Col("n")))
    holds(prune_aggregates, Select(window(N, S, M), x), Select(window(N), x))


def test_a_filter_between_reads_too() -> None:
    x = (("k", Col("k")),)
    holds(prune_aggregates, Select(Where(window(N, S, M), Col("s") > 0), x), Select(Where(window(S), Col("s") > 0), x))


def test_of_a_window_over_a_window_only_what_is_aggregated_stays() -> None:
    def above(below: WindowAggregate) -> WindowAggregate:
        return WindowAggregate(below, (), Hopping(8, 8), (("most", Aggregate(MAX, (Col("n"),))),))

    holds(prune_aggregates, above(window(N, S)), above(window(N)))


def test_the_keys_alone_are_a_result() -> None:
    holds(prune_aggregates, Select(window(N), (("k", Col("k")),)), Select(window(), (("k", Col("k")),)))


def test_nothing_unread_nothing_done() -> None:
    assert prune_aggregates(Select(window(N, S), (("x", Col("n") + Col("s")),))) is None
    assert prune_aggregates(window(N)) is None
