"""When rules may put an expression in the place of the column that it defines: same value, same type, little more work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamq.plan.expr import Call, Cast, Col, Expr, Lit, Opaque
from streamq.plan.lifetime import Lifetime
from streamq.plan.passes import substitute
from streamq.plan.spark_types import literal_type

LARGEST = 128
"""Nodes of the largest expression that rules put together: what is larger stays in two operators."""

CHEAP = 4
"""The most operators that rules let be evaluated twice where a filter then comes first."""

REMEMBERED = 50_000
"""How many expressions' facts are kept; beyond that all are forgotten."""


@dataclass(frozen=True)
class ExpressionFacts:
    """What rules ask of an expression. It is counted as a tree: a part that stands in two places counts twice.

    ``size``: its nodes; ``operators``: the nodes that compute something; ``simple``: True if all of those are casts and cheap
    operators; ``deterministic``: True if equal columns always give equal values; ``opaque``: True if it holds a pyspark Column;
    ``count_uses``: how often it reads each column.
    """

    size: int
    operators: int
    simple: bool
    deterministic: bool
    opaque: bool
    uses: Mapping[str, int]


_remembered: dict[str, ExpressionFacts] = {}


def expression_facts(expr: Expr) -> ExpressionFacts:
    """Return the facts of an expression; those of parts that earlier calls have met are not computed again."""
    if len(_remembered) > REMEMBERED:
        _remembered.clear()
    todo = [expr]
    while todo:
        node = todo[-1]
        missing = [c for c in node.children if c.digest not in _remembered]
        if missing:
            todo += missing
        else:
            todo.pop()
            if node.digest not in _remembered:
                _remembered[node.digest] = _combine_facts(node, [_remembered[c.digest] for c in node.children])
    return _remembered[expr.digest]


def _combine_facts(node: Expr, parts: list[ExpressionFacts]) -> ExpressionFacts:
    uses: Counter[str] = Counter({node.name: 1}) if isinstance(node, Col) else Counter()
    for part in parts:
        uses.update(part.uses)
    opaque = isinstance(node, Opaque)
    steady = not opaque and not (isinstance(node, Call) and not node.function.deterministic)
    simple = is_plain(node) or isinstance(node, Cast) or (isinstance(node, Call) and node.function.cheap)
    return ExpressionFacts(
        1 + sum(p.size for p in parts),
        (0 if is_plain(node) else 1) + sum(p.operators for p in parts),
        simple and all(p.simple for p in parts),
        steady and all(p.deterministic for p in parts),
        opaque or any(p.opaque for p in parts),
        uses,
    )


def is_plain(expr: Expr) -> bool:
    """True for a column, a constant and a part of the lifetime, which compute nothing."""
    return isinstance(expr, Col | Lit | Lifetime)


def is_cheap(expr: Expr) -> bool:
    """True if evaluating it twice costs next to nothing: at most CHEAP plain operators, no function."""
    of_expr = expression_facts(expr)
    return of_expr.operators <= CHEAP and of_expr.simple


def substituted_size(expr: Expr, by: Mapping[str, Expr]) -> int:
    """Return the size of an expression once ``by`` has taken the place of its columns."""
    of_expr = expression_facts(expr)
    return of_expr.size + sum(n * (expression_facts(by[name]).size - 1) for name, n in of_expr.uses.items())


def stays_small(expr: Expr, by: Mapping[str, Expr]) -> bool:
    """True if that is at most LARGEST, or no larger than one of the expressions involved already is."""
    parts = (expression_facts(by[name]).size for name in expression_facts(expr).uses)
    return substituted_size(expr, by) <= max(LARGEST, expression_facts(expr).size, *parts)


def count_uses(exprs: Iterable[Expr]) -> Counter[str]:
    """Return how often some expressions together read each column."""
    counts: Counter[str] = Counter()
    for expr in exprs:
        counts.update(expression_facts(expr).uses)
    return counts


def inline(expr: Expr, by: Mapping[str, Expr]) -> Expr:
    """Return an expression with ``by`` in the place of its columns; its type stays the same.

    A constant gets the type that it had as a column, explicitly: beside a decimal, Spark gives a bare literal the type that
    its digits need.
    """
    return substitute(expr, {name: _typed(e) for name, e in by.items()})


def _typed(expr: Expr) -> Expr:
    return Lit(expr.value, literal_type(expr.value)) if isinstance(expr, Lit) and expr.type is None else expr
