"""The driver: a fixpoint, checked after every firing, without recursion, each shared node once; and what fired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamq.aggregates.basic import AVG, COUNT
from streamq.aggregates.variances import STDDEV
from streamq.choices import JoinKind, LengthKind
from streamq.compiler.rewriter import rewrite
from streamq.compiler.rules import RULES, Rule
from streamq.errors import RewriteError
from streamq.functions.catalogue import function_of
from streamq.operators import (
    AlterLifetime,
    Join,
    MergePartials,
    Select,
    Source,
    Union,
    Where,
    WindowAggregate,
)
from streamq.operators.alter_lifetime import Length, Start
from streamq.plan import passes
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Call, Col, Expr, Lit
from streamq.plan.node import Node, nodes
from streamq.testing.history import assert_same_history
from tests.compiler.rules.law import HOPPING, MORE, STAYS, TRIPS, drawn, history

K, V, W = Col("k"), Col("v"), Col("w")
NARROW = (("k", K), ("v", Lit(1).cast("bigint")), ("w", W))
N, MEAN = ("n", Aggregate(COUNT, ())), ("mean", Aggregate(AVG, (W,)))


def window(source: Node, *aggregates: tuple[str, Aggregate]) -> WindowAggregate:
    return WindowAggregate(source, ("k",), HOPPING, aggregates or (N, MEAN))


def fired(plan: Node, rules: Any = RULES) -> list[str]:
    return [f.rule.name for f in rewrite(plan, rules).firings]


def test_columns_that_nobody_reads_stay_at_the_source() -> None:
    """They go through no join and no alter_lifetime, unless what makes them is read twice, and would then be computed twice."""
    pairs = Join(STAYS, MORE, (("k", "k"),), W > V, JoinKind.INNER, (("k", "k"), ("w", "w")), (("v", "v"), ("w", "w2")))
    lasting = AlterLifetime(pairs, Start(), Length(by=3))
    done = rewrite(window(lasting, N)).plan
    (join,) = [n for n in nodes(done) if isinstance(n, Join)]
    assert [side.schema.names for side in join.children] == [("k", "w"), ("k", "v")]
    both = rewrite(Union((Select(lasting, (("k", K),)), Select(lasting, (("k", Col("w2").cast("string")),))))).plan
    assert len([n for n in nodes(both) if isinstance(n, Join)]) == 1


def test_a_query_is_filtered_early_pruned_and_split() -> None:
    query = Where(Select(window(Union((TRIPS, MORE))), (("k", K), ("twice", Col("n") * 2))), K == "a")
    made = rewrite(query).plan
    branches = [Where(Select(source, (("k", K),)), K == "a") for source in (TRIPS, MORE)]
    merged = MergePartials(Union(tuple(branches)), ("k",), HOPPING, (), ())
    assert drawn(made) == drawn(Select(merged, (("k", K), ("twice", Col("__n") * 2))))
    assert made.schema == query.schema


def test_a_firing_shows_what_it_did() -> None:
    first = rewrite(Select(Union((TRIPS, MORE)), (("k", K),))).firings[0]
    assert first.rule.name == "push_select_below_union"
    assert first.sketches == ("union(trips; more) | select k", "union(trips | select k; more | select k)")


def test_what_did_not_fire_says_why() -> None:
    plan = Where(window(STAYS), K == "a")
    (skipped,) = rewrite(plan).skipped
    assert (skipped.rule.name, drawn(skipped.node)[:6]) == ("push_where_below_state", "where[")
    assert "may never end" in skipped.reason


def test_a_window_that_is_read_twice_is_computed_once() -> None:
    below = window(TRIPS)
    plan = Union((Select(Where(below, K == "a"), (("k", K),)), Select(Where(below, K == "b"), (("k", K),))))
    done = rewrite(plan)
    assert len([n for n in nodes(done.plan) if isinstance(n, MergePartials)]) == 1
    reasons = [s.reason for s in done.skipped if s.rule.name == "push_where_below_state"]
    assert reasons == ["what is below is read elsewhere too, and would be computed twice"] * 2


def test_a_shared_filter_goes_below_its_window_all_the_same() -> None:
    shared = Where(window(TRIPS), K == "a")
    plan = Union((Select(shared, (("x", Col("n")),)), Select(shared, (("x", Col("n") + 1),))))
    assert "push_where_below_state" in fired(plan)


# what breaks its promise is named


def drop_column(node: Node) -> Node | None:
    """``a => select(a, some)``: wrong."""
    return Select(node, (("k", K),)) if isinstance(node, Source) else None


def again(node: Node) -> Node | None:
    """``a => a``: wrong."""
    return node


def grow(node: Node) -> Node | None:
    """``where(a, p) => where(a, p and true)``: without end."""
    return Where(node.input, node.predicate & True) if isinstance(node, Where) else None


def misread(node: Node) -> Node | None:
    """``where(a, p) => where(a, nothing there)``: wrong."""
    return Where(node.input, Col("nowhere") > 0) if isinstance(node, Where) else None


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (drop_column, "rewrite: rule drop_column changes the schema; k string, v bigint, w double; point on integer"),
        (again, "rewrite: rule again fires and changes nothing"),
        (misread, "rewrite: rule misread makes an illegal plan; where: no column 'nowhere'"),
        (grow, "rewrite: no end after 50 firings; the last were grow"),
    ],
)
def test_the_guilty_rule_is_named(rule: Any, message: str) -> None:
    plan = Union((Where(TRIPS, V > 0), Select(STAYS, (("k", K), ("v", V), ("w", W)))))
    with pytest.raises(RewriteError) as raised:
        rewrite(plan, [Rule(rule)], budget=50)
    assert str(raised.value).startswith(message)


def test_traits_must_survive_too() -> None:
    def forget(node: Node) -> Node | None:
        return Where(window(TRIPS), K == "a") if isinstance(node, Where) and node.traits.infinite else None

    plan = Where(Union((window(TRIPS), Select(STAYS, (("k", K), ("n", V), ("mean", W))))), K == "a")
    with pytest.raises(RewriteError, match="rule forget changes the traits"):
        rewrite(plan, [Rule(forget)])


# size


def deep(kind: str, levels: int) -> Node:
    plan: Node = TRIPS
    for i in range(levels):
        if kind == "wheres" or (kind == "both" and i % 2):
            plan = Where(plan, Lit(i) <= V)
        else:
            plan = Select(plan, (("k", K), ("v", V + 1 if kind == "selects" else V), ("w", W)))
    return plan


def counted() -> tuple[list[Rule], list[Node]]:
    """The rules, and a list that gets the node of every try of one of them."""
    tries: list[Node] = []

    def counting(rule: Rule) -> Rule:
        @wraps(rule.function)
        def function(node: Node) -> Node | None:
            tries.append(node)
            return rule.function(node)

        return replace(rule, function=function)

    return [counting(rule) for rule in RULES], tries


@pytest.mark.slow
@pytest.mark.parametrize("levels", [300, 1_200])
@pytest.mark.parametrize("kind", ["wheres", "selects", "both"])
def test_the_work_grows_with_the_depth_and_no_faster(kind: str, levels: int) -> None:
    """Each rule is tried about once a level, whatever the depth: also beyond Python's recursion limit."""
    rules, tries = counted()
    made = rewrite(deep(kind, levels), rules).plan
    assert levels < len(tries) < 1.3 * len(RULES) * levels
    assert len(nodes(made)) < 250


def test_an_operator_is_passed_once_by_all_filters_above_it() -> None:
    plan: Node = TRIPS
    for level in range(30):
        plan = AlterLifetime(Where(plan, level < V), Start(by=3), Length(by=2))
    names = [firing.rule.name for firing in rewrite(Where(plan, K == "a")).firings]
    assert names.count("push_where_below_alter_lifetime") == 30
    assert names.count("merge_wheres") == 30
    assert len(names) < 70


OVER_FILTERS: dict[str, Callable[[Node], Node]] = {
    "alter_lifetime": lambda plan: AlterLifetime(plan, Start(by=3), Length(by=2)),
    "semi join": lambda plan: Join(
        plan,
        MORE,
        on=(("k", "k"),),
        where=None,
        how=JoinKind.SEMI,
        left_names=tuple((name, name) for name in "kvw"),
        right_names=(("v", "v_r"), ("w", "w_r")),
    ),
}


@pytest.mark.parametrize("operator", OVER_FILTERS)
def test_what_filters_ask_of_expressions_grows_with_their_number(operator: str) -> None:
    """Different filters above each operator pass all below it together, and are typed once, not at each operator."""

    def typed(levels: int) -> int:
        plan: Node = TRIPS
        for level in range(levels):
            plan = OVER_FILTERS[operator](Where(plan, level < V))
        with patch.object(passes, "_type", wraps=passes._type) as types:
            rewrite(plan)
        return types.call_count

    few, many = typed(40), typed(160)
    assert many < 5 * few


def test_an_equal_filter_above_each_operator_is_one_at_the_source() -> None:
    plan: Node = TRIPS
    for _ in range(40):
        plan = AlterLifetime(Where(plan, V > 3), Start(by=3), Length(by=2))
    filters = [node for node in nodes(rewrite(plan).plan) if isinstance(node, Where)]
    assert drawn(*filters) == "where[v > 3](trips)"


def test_forty_levels_of_sharing() -> None:
    plan: Node = TRIPS
    for _ in range(40):
        plan = Union((plan, plan))
    rules, tries = counted()
    done = rewrite(Select(Where(plan, V > 1), (("k", K),)), rules)
    assert len(tries) < 200 * len(RULES)
    assert len(nodes(done.plan)) == 43
    # one in each phase: what is read twice is not written out for each of its readers
    assert [f.rule.name for f in done.firings].count("push_where_below_union") == 3


def test_an_expression_that_would_double_at_every_level_does_not() -> None:
    plan: Node = Select(TRIPS, (("v", V + 1),))
    for _ in range(40):
        plan = Select(plan, (("v", V + V),))
    assert rewrite(plan).firings == ()


# the meaning stays


def predicates() -> st.SearchStrategy[Expr]:
    plain = st.sampled_from([V > 0, W < 2.0, K == "a", K.is_null(), V % 2 == 0, Call(function_of("length"), (K,)) > 0])
    return st.one_of(plain, st.builds(lambda a, b: a & b, plain, plain), st.builds(lambda a, b: a | b, plain, plain))


def wrap(below: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    """Operators over streams of columns k, v, w."""
    columns = st.tuples(
        st.sampled_from([K, Call(function_of("upper"), (K,))]),
        st.sampled_from([V, V + 1, V % 3]),
        st.sampled_from([W, W * 2, V * 1.5]),
    ).map(lambda e: tuple(zip(("k", "v", "w"), e, strict=True)))
    aggregates = (("v", Aggregate(COUNT, (V,))), ("w", Aggregate(AVG, (W,))), ("d", Aggregate(STDDEV, (V,))))
    return st.one_of(
        st.builds(Where, below, predicates()),
        st.builds(Select, below, columns),
        st.builds(lambda a, b: Union((a, b)), below, below),
        below.map(lambda a: Union((Where(a, V > 0), a))),
        below.map(lambda a: Select(AlterLifetime(a, Start(), Length(LengthKind.GIVEN, expr=V)), NARROW)),
        st.builds(
            lambda a, b, how: Select(
                Join(a, b, (("k", "k"),), None, how, tuple(zip("kvw", "kvw", strict=True)), ()), NARROW
            ),
            below,
            below,
            st.sampled_from(JoinKind),
        ),
        below.map(lambda a: Select(WindowAggregate(a, ("k",), HOPPING, aggregates), (("k", K), ("v", V), ("w", W)))),
    )


plans = st.recursive(st.sampled_from([TRIPS, MORE, STAYS]), wrap, max_leaves=6)
subsets = st.lists(st.sampled_from(RULES), unique=True)


@given(plan=plans, rules=subsets)
def test_any_rules_in_any_order_come_to_an_end_with_a_legal_plan(plan: Node, rules: list[Rule]) -> None:
    done = rewrite(plan, rules)
    assert done.plan.schema == plan.schema
    assert rewrite(done.plan, [r for r in rules if r.phase == 0]).firings == () or any(r.phase for r in rules)


@pytest.mark.slow
@given(plan=plans, rules=subsets)
def test_any_rules_in_any_order_keep_the_history(plan: Node, rules: list[Rule]) -> None:
    assert_same_history(history(plan, rules), history(plan, ()))
