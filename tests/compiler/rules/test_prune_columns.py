from streamq.aggregates.basic import COUNT, SUM
from streamq.compiler.rules.projections import prune_columns
from streamq.operators import MergePartials, Select, Union, Where, WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col, Opaque
from streamq.runtime.partials.built_in_partials import PartialMax
from tests.compiler.rules.law import HOPPING, MORE, PAYLOAD, TRIPS, holds, why_not

K, V, W = Col("k"), Col("v"), Col("w")
COUNT, TOTAL = ("n", Aggregate(COUNT, ())), ("s", Aggregate(SUM, (V,)))


def test_a_window_reads_keys_and_arguments() -> None:
    left = WindowAggregate(TRIPS, ("k",), HOPPING, (COUNT, TOTAL))
    holds(prune_columns, left, WindowAggregate(Select(TRIPS, (("k", K), ("v", V))), ("k",), HOPPING, (COUNT, TOTAL)))


def test_a_mere_count_reads_nothing() -> None:
    left = WindowAggregate(TRIPS, (), HOPPING, (COUNT,))
    holds(prune_columns, left, WindowAggregate(Select(TRIPS, ()), (), HOPPING, (COUNT,)))


def test_filters_between_read_too() -> None:
    left = WindowAggregate(Where(Where(TRIPS, V > 0), V < 5), ("k",), HOPPING, (COUNT,))
    pruned = Where(Where(Select(TRIPS, (("k", K), ("v", V))), V > 0), V < 5)
    holds(prune_columns, left, WindowAggregate(pruned, ("k",), HOPPING, (COUNT,)))


def test_merged_partial_results_are_a_window() -> None:
    split = (("__arg0", V),), (PartialMax("__max0", "__arg0", PAYLOAD[1].type),)
    made = prune_columns(MergePartials(TRIPS, ("k",), HOPPING, *split))
    assert made == MergePartials(Select(TRIPS, (("k", K), ("v", V))), ("k",), HOPPING, *split)
    assert made is not None and made.schema.names == ("k", "__n", "__max0")


def test_a_select_above_filters_prunes_the_source() -> None:
    holds(
        prune_columns,
        Select(Where(TRIPS, V > 0), (("x", K),)),
        Select(Where(Select(TRIPS, (("k", K), ("v", V))), V > 0), (("x", K),)),
    )


def test_a_select_is_cut_down() -> None:
    inner = (("k", K), ("v", V), ("w", W * 2))
    left = Select(Select(TRIPS, inner), (("a", V + V),))
    holds(prune_columns, left, Select(Select(TRIPS, inner[1:2]), (("a", V + V),)))


def test_a_union_right_below_a_window_is_pruned() -> None:
    left = WindowAggregate(Union((TRIPS, MORE)), ("k",), HOPPING, (COUNT,))
    pruned = Select(Union((TRIPS, MORE)), (("k", K),))
    holds(prune_columns, left, WindowAggregate(pruned, ("k",), HOPPING, (COUNT,)))


def test_what_is_read_whole_and_a_select_on_a_source_stay() -> None:
    assert prune_columns(Select(TRIPS, (("k", K),))) is None
    assert prune_columns(Select(Where(TRIPS, V > 0), (("k", K), ("w", W)))) is None
    assert prune_columns(TRIPS) is None
    assert prune_columns(Where(TRIPS, V > 0)) is None


def test_an_opaque_expression_needs_all_columns() -> None:
    plan = Select(Where(TRIPS, Opaque(None, "v > 0").is_null()), (("k", K),))
    assert prune_columns(plan) is None
    assert why_not(prune_columns, plan) == "spark[v > 0] is null may read any column"
