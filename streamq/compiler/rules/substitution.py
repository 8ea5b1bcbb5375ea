"""When an expression may take the place of the column it defines: same value, same type, and not much dearer."""

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
"""Operators that may be evaluated twice, if that lets a filter come first."""

REMEMBERED = 50_000
"""Expressions whose facts are kept."""


@dataclass(frozen=True)
class Facts:
    """What rules ask of an expression, as a tree: shared parts are counted wherever they stand.

    size: nodes; operators: those that compute; simple: no function among them; uses: how often each column is read.
    """

    size: int
    operators: int
    simple: bool
    deterministic: bool
    opaque: bool
    uses: Mapping[str, int]


_remembered: dict[str, Facts] = {}


def facts(expr: Expr) -> Facts:
    """The facts of an expression; those of its parts are known from before, however often a rule extends it."""
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
                _remembered[node.digest] = _of(node, [_remembered[c.digest] for c in node.children])
    return _remembered[expr.digest]


def _of(node: Expr, parts: list[Facts]) -> Facts:
    uses: Counter[str] = Counter({node.name: 1}) if isinstance(node, Col) else Counter()
    for part in parts:
        uses.update(part.uses)
    opaque = isinstance(node, Opaque)
    steady = not opaque and not (isinstance(node, Call) and not node.function.deterministic)
    simple = is_plain(node) or isinstance(node, Cast) or (isinstance(node, Call) and node.function.cheap)
    return Facts(
        1 + sum(p.size for p in parts),
        (0 if is_plain(node) else 1) + sum(p.operators for p in parts),
        simple and all(p.simple for p in parts),
        steady and all(p.deterministic for p in parts),
        opaque or any(p.opaque for p in parts),
        uses,
    )


def is_plain(expr: Expr) -> bool:
    """Whether there is nothing to compute."""
    return isinstance(expr, Col | Lit | Lifetime)


def is_cheap(expr: Expr) -> bool:
    """Whether evaluating it twice costs next to nothing: a few plain operators, no function."""
    of_expr = facts(expr)
    return of_expr.operators <= CHEAP and of_expr.simple


def grown(expr: Expr, by: Mapping[str, Expr]) -> int:
    """The nodes of an expression over what its columns stand for."""
    of_expr = facts(expr)
    return of_expr.size + sum(n * (facts(by[name]).size - 1) for name, n in of_expr.uses.items())


def fits(expr: Expr, by: Mapping[str, Expr]) -> bool:
    """Whether that is not too large, or no larger than what is there anyway."""
    parts = (facts(by[name]).size for name in facts(expr).uses)
    return grown(expr, by) <= max(LARGEST, facts(expr).size, *parts)


def uses(exprs: Iterable[Expr]) -> Counter[str]:
    """How often each column is read."""
    counts: Counter[str] = Counter()
    for expr in exprs:
        counts.update(facts(expr).uses)
    return counts


def inlined(expr: Expr, by: Mapping[str, Expr]) -> Expr:
    """The expression over what the columns stand for, of the same type.

    A constant keeps the type it had as a column: beside a decimal, Spark takes a bare literal for what its digits need.
    """
    return substitute(expr, {name: _typed(e) for name, e in by.items()})


def _typed(expr: Expr) -> Expr:
    return Lit(expr.value, literal_type(expr.value)) if isinstance(expr, Lit) and expr.type is None else expr
