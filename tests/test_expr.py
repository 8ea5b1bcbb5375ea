"""The tree itself: building, showing, comparing and passing over it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from streamq import functions as f
from streamq.aggregates.basic import COUNT, SUM
from streamq.compiler.rules.rule import expression_facts
from streamq.errors import PlanError, TypeMismatch
from streamq.expressions import col, duration, end, lit, start, when
from streamq.functions.catalogue import function_of
from streamq.functions.logic import conjunction, conjuncts
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Call, Col, Expr, as_expr, fold, show
from streamq.plan.passes import (
    aggregates,
    columns,
    expression_nodes,
    functions,
    reads_end,
    reads_lifetime,
    rewrite_expression,
    substitute,
)

a, b, c = col("a"), col("b"), col("c")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (a + b * c, "a + b * c"),
        ((a + b) * c, "(a + b) * c"),
        (a - (b - c), "a - (b - c)"),
        (a - b - c, "a - b - c"),
        (1 - a / 2, "1 - a / 2"),
        (-a % 3, "-a % 3"),
        ((a > 1) & ((b == "x") | ~(c < 2)), "a > 1 and (b == 'x' or not (c < 2))"),
        (~((a > 1) & (b > 1)), "not (a > 1 and b > 1)"),
        (a.is_null() | a.is_not_null(), "a is null or not (a is null)"),
        (a.isin(1, None), "a in (1, NULL)"),
        (a.between(1, 2), "a >= 1 and a <= 2"),
        (a["k"], "a['k']"),
        (a.cast("decimal(5,2)"), "cast(a as decimal(5,2))"),
        (a.alias("x"), "a as x"),
        (
            when(a > 1, "big").when(a > 0, "small").otherwise(None),
            "case when a > 1 then 'big' when a > 0 then 'small' else NULL end",
        ),
        (end() - start(), "end() - start()"),
        (duration(), "duration()"),
        (f.upper("a").startswith("X"), "startswith(upper(a), 'X')"),
        (lit(True), "true"),
        (Aggregate(COUNT, ()), "count(*)"),
        (Aggregate(SUM, (a,)), "sum(a)"),
        (a.eq_null_safe(None), "a <=> NULL"),
        (a.like("x%"), "like(a, 'x%')"),
    ],
)
def test_show(expr: Expr, text: str) -> None:
    assert show(expr) == repr(expr) == text


def test_digests_tell_trees_apart_and_equal_trees_together() -> None:
    different: list[Expr] = [
        lit(1), lit(True), lit(1.0), lit("1"), lit(Decimal("1")), lit(Decimal("1.0")), lit(None), lit(0.0), lit(-0.0),
        lit(float("nan")),
        lit(b"1"), lit(dt.date(2000, 1, 1)), lit(dt.datetime(2000, 1, 1)), a, Col("a", "origin"), a + b, b + a, a - b,
        a.cast("int"),
        a.cast("long"), a.alias("x"),
        Call(function_of("x"), ("a",)), Call(function_of("x"), (a,)), Call(function_of("x"), (None,)),
        Aggregate(SUM, (a,)), start(), end(),
    ]  # fmt: skip
    assert len({e.digest for e in different}) == len(different)
    assert (col("a") + 1).digest == (col("a") + lit(1)).digest
    assert lit(float("nan")).digest == lit(float("nan")).digest
    assert hash(a + 1) == hash(col("a") + 1)


@pytest.mark.parametrize("value", [a == 1, a & b, a])
def test_an_expression_has_no_truth_value(value: Expr) -> None:
    with pytest.raises(TypeMismatch, match="Use & | ~"):
        bool(value)
    with pytest.raises(TypeMismatch):
        1 < value < 3  # noqa: B015


def test_an_expression_is_not_iterable() -> None:
    with pytest.raises(TypeMismatch, match="not iterable"):
        list(a)


@pytest.mark.parametrize("value", [object(), [1], {"x": 1}, slice(1)])
def test_only_values_become_literals(value: Any) -> None:
    with pytest.raises(TypeMismatch, match="found"):
        as_expr(value)


def test_a_column_name_is_a_string() -> None:
    with pytest.raises(PlanError, match="col: a column name is a string; found 3"):
        col(3)  # type: ignore[arg-type]


def test_passes_do_not_recurse() -> None:
    deep: Expr = a
    for k in range(5_000):
        deep = deep + k if k % 2 else Call(function_of("abs"), (deep,))
    assert fold(deep, lambda node, parts: 1 + max(parts, default=0)) == 5_001
    assert len(expression_nodes(deep)) == 5_000 + 1 + 2_500
    assert len(show(deep)) > 5_000
    assert columns(substitute(deep, {"a": b})) == {"b"}


def test_shared_parts_are_visited_once() -> None:
    shared = a
    for _ in range(60):
        shared = shared + shared
    seen: list[Expr] = []
    fold(shared, lambda node, _: seen.append(node))
    assert len(seen) == 61


def test_substitute_replaces_columns_and_keeps_the_rest() -> None:
    assert show(substitute(a + b, {"a": c * 2})) == "c * 2 + b"
    assert show(substitute(a + b, {"a": b, "b": a})) == "b + a"
    assert substitute(c, {"a": b}) is c


def test_rewrite_sees_rewritten_operands() -> None:
    found = rewrite_expression(
        Call(function_of("f"), (Call(function_of("g"), (a,)), 3)),
        lambda n: n.children[0] if isinstance(n, Call) and n.function == function_of("g") else None,
    )
    assert show(found) == "f(a, 3)"


def test_conjuncts_and_back() -> None:
    predicate = (a > 1) & ((b > 1) & (c > 1)) & ((a > 2) | (b > 2))
    assert [show(p) for p in conjuncts(predicate)] == ["a > 1", "b > 1", "c > 1", "a > 2 or b > 2"]
    assert show(conjunction(conjuncts(predicate))) == "a > 1 and b > 1 and c > 1 and (a > 2 or b > 2)"
    assert show(conjunction([])) == "true"
    many: Expr = a > 0
    for k in range(5_000):
        many = many & (a > k)
    assert len(conjuncts(many)) == 5_001


def test_what_an_expression_reads() -> None:
    expr = when(a > 1, start()).otherwise(b)
    assert columns(expr) == {"a", "b"}
    assert reads_lifetime(expr)
    assert not reads_end(expr)
    assert reads_end(duration() + 1)
    assert expression_facts(expr).deterministic
    assert not expression_facts(f.rand() + a).deterministic
    assert [x.name for x in aggregates(Aggregate(SUM, (a,)) / Aggregate(COUNT, ()))] == ["sum", "count"]
    assert functions(Aggregate(SUM, (f.abs(a),)) + 1) == [function_of("abs"), SUM, function_of("+")]
