"""Filter before a select computes: fewer rows are computed, and the filter comes nearer to the sources."""

from __future__ import annotations

from streamq.compiler.rules.substitution import expression_facts, inline, is_cheap, is_plain, stays_small
from streamq.compiler.rules.totality import can_fail
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import Select, Source, Where
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node
from streamq.plan.own_names import shown_name
from streamq.plan.tree import show


def push_where_below_select(node: Node) -> Node | None:
    """``where(select(a, x), p) => select(where(a, p[x]), x)``, if what p reads of x is cheap and all is deterministic.

    ``p[x]`` is p with the expressions of x in the place of the columns that they define. A select does not change lifetimes, so
    p may read them. Where p is a conjunction, each part goes below that may; a part that may raise an error stays if one before
    it stays, for it must not see rows that the other removes. A select that only leaves out columns stays below the filter:
    ``prune_columns`` has put it there.
    """
    match node:
        case Where(Select(source, x) as select, p) if not _prunes(select):
            going, staying = _split(select, p)
            if going:
                below = Select(Where(source, conjunction(inline(part, dict(x)) for part in going)), x)
                return Where(below, conjunction(staying)) if staying else below
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, what forbids the rule at a where over a select; None if nothing does."""
    match node:
        case Where(Select() as select, p) if not _prunes(select):
            staying = _split(select, p)[1]
            return _obstacle(select, staying[0]) if staying else None
    return None


def _prunes(select: Select) -> bool:
    """True if a select only leaves out columns of a source or a select."""
    return isinstance(select.input, Source | Select) and all(
        isinstance(e, Col) and e.name == n for n, e in select.columns
    )


def _split(select: Select, p: Expr) -> tuple[list[Expr], list[Expr]]:
    going: list[Expr] = []
    staying: list[Expr] = []
    for part in conjuncts(p):
        stays = _obstacle(select, part) is not None or (staying and can_fail(part, select.schema))
        (staying if stays else going).append(part)
    return going, staying


def _obstacle(select: Select, part: Expr) -> str | None:
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
