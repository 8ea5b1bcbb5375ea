"""Filter before a select, so that it computes fewer rows and the filter moves on towards the sources."""

from __future__ import annotations

from streamq.compiler.rules.substitution import expression_facts, inline, is_cheap, is_plain, stays_small
from streamq.compiler.rules.totality import can_fail
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import Select, Source, Where
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node
from streamq.plan.schema import shown_name
from streamq.plan.tree import show


def push_where_below_select(node: Node) -> Node | None:
    """``where(select(a, x), p) => select(where(a, p[x]), x)``, if what p reads of x is cheap and all is deterministic.

    ``p[x]`` is p with the columns that x defines replaced by their expressions. A select does not change lifetimes, so p may read
    them. Of a conjunction, the parts that satisfy the conditions are pushed; a part that may raise an error stays if a part
    before it stays, because it must not see rows that the other removes. A select that only removes columns stays below the
    filter, because ``prune_columns`` has put it there. A part that would become too large stays, too (``stays_small``).
    """
    match node:
        case Where(Select(source, x) as select, p) if not _prunes(select):
            pushed, rest = _split(select, p)
            if pushed:
                below = Select(Where(source, conjunction(inline(part, dict(x)) for part in pushed)), x)
                return Where(below, conjunction(rest)) if rest else below
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at a where over a select; None if there is none."""
    match node:
        case Where(Select() as select, p) if not _prunes(select):
            rest = _split(select, p)[1]
            return _obstacle(select, rest[0]) if rest else None
    return None


def _prunes(select: Select) -> bool:
    """Return True if a select only removes columns of a source or a select."""
    return isinstance(select.input, Source | Select) and all(
        isinstance(e, Col) and e.name == n for n, e in select.columns
    )


def _split(select: Select, p: Expr) -> tuple[list[Expr], list[Expr]]:
    """Return the parts of a conjunction that can be pushed below a select, and those that stay, both in their order."""
    pushed: list[Expr] = []
    rest: list[Expr] = []
    for part in conjuncts(p):
        stays = _obstacle(select, part) is not None or (rest and can_fail(part, select.schema))
        (rest if stays else pushed).append(part)
    return pushed, rest


def _obstacle(select: Select, part: Expr) -> str | None:
    """Return the reason why a part of the filter, taken by itself, cannot be pushed; None if it can."""
    x = select.exprs
    for name, e in x.items():
        if not expression_facts(e).deterministic:
            return f"{shown_name(name)} = {show(e)} is not known to be deterministic"
    if not expression_facts(part).deterministic:
        return f"{show(part)} is not known to be deterministic"
    for name in sorted(expression_facts(part).uses):
        if not is_plain(x[name]) and not is_cheap(x[name]):
            return f"{shown_name(name)} = {show(x[name])} would be evaluated twice"
    if not stays_small(part, x):
        return "the predicate would become too large"
    return None
