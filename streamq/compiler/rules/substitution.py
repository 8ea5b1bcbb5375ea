"""Substitution of columns by the expressions that define them, and the facts by which rules decide if it is worth the work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamq.plan.expr import Call, Cast, Col, Expr, Lifetime, Lit, Opaque
from streamq.plan.passes import substitute
from streamq.plan.spark_types import literal_type

LARGEST = 128
"""The most nodes of an expression that a rule may build; larger expressions stay in two operators."""

CHEAP = 4
"""The most operators that a rule may let be evaluated twice to move a filter before them."""

REMEMBERED = 50_000
"""The number of expressions whose facts are cached; beyond that the cache is cleared."""


@dataclass(frozen=True)
class ExpressionFacts:
    """Facts about an expression, counted as a tree: a part that occurs twice counts twice.

    ``size``: the number of nodes. ``operators``: the number of nodes that compute something. ``simple``: all of those are casts
    or cheap operators. ``deterministic``: equal columns always give equal values. ``opaque``: it contains a pyspark Column.
    ``uses``: the number of times that it reads each column.
    """

    size: int
    operators: int
    simple: bool
    deterministic: bool
    opaque: bool
    uses: Mapping[str, int]


_remembered: dict[str, ExpressionFacts] = {}


def expression_facts(expr: Expr) -> ExpressionFacts:
    """Return the facts about an expression; facts about its parts are cached across calls."""
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
    """Return the facts about an expression from the facts about its children."""
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
    """Return True for a column, a constant and a part of the lifetime, which compute nothing."""
    return isinstance(expr, Col | Lit | Lifetime)


def is_cheap(expr: Expr) -> bool:
    """Return True if evaluating an expression twice costs next to nothing: at most CHEAP casts or cheap operators."""
    facts = expression_facts(expr)
    return facts.operators <= CHEAP and facts.simple


def substituted_size(expr: Expr, by: Mapping[str, Expr]) -> int:
    """Return the size of an expression after its columns are replaced by the expressions ``by``."""
    facts = expression_facts(expr)
    return facts.size + sum(n * (expression_facts(by[name]).size - 1) for name, n in facts.uses.items())


def stays_small(expr: Expr, by: Mapping[str, Expr]) -> bool:
    """Return True if the substituted size is at most LARGEST, or no larger than one of the expressions involved."""
    parts = (expression_facts(by[name]).size for name in expression_facts(expr).uses)
    return substituted_size(expr, by) <= max(LARGEST, expression_facts(expr).size, *parts)


def count_uses(exprs: Iterable[Expr]) -> Counter[str]:
    """Return the number of times that some expressions together read each column."""
    counts: Counter[str] = Counter()
    for expr in exprs:
        counts.update(expression_facts(expr).uses)
    return counts


def inline(expr: Expr, by: Mapping[str, Expr]) -> Expr:
    """Return an expression with its columns replaced by the expressions ``by``; its type stays the same.

    A constant gets the type that it had as a column, explicitly, because Spark types a bare literal beside a decimal by its
    digits.
    """
    return substitute(expr, {name: _typed(e) for name, e in by.items()})


def _typed(expr: Expr) -> Expr:
    """Return a constant without a type with the type of its value; any other expression unchanged."""
    return Lit(expr.value, literal_type(expr.value)) if isinstance(expr, Lit) and expr.type is None else expr
