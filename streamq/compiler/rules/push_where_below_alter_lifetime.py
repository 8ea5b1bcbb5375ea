"""Filter on the payload before lifetimes change, where the filter can go on towards the source."""

from __future__ import annotations

from streamq.compiler.rules.substitution import expression_facts
from streamq.compiler.rules.totality import can_fail
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import AlterLifetime, Where
from streamq.plan.expr import Expr
from streamq.plan.node import Node
from streamq.plan.passes import reads_lifetime
from streamq.plan.tree import show


def push_where_below_alter_lifetime(node: Node) -> Node | None:
    """``where(alter_lifetime(a, s, d), p) => alter_lifetime(where(a, p), s, d)``, if p reads no lifetime and cannot fail.

    All must be deterministic. Below, p sees events too that get no lifetime, and are no more above: it must not raise an error.
    Where p is a conjunction, each part goes below that may.
    """
    match node:
        case Where(AlterLifetime(input=source, start=start, length=length) as changed, p):
            parts = conjuncts(p)
            going = [part for part in parts if _obstacle(changed, part) is None]
            if going:
                below = AlterLifetime(Where(source, conjunction(going)), start, length)
                staying = [part for part in parts if _obstacle(changed, part) is not None]
                return Where(below, conjunction(staying)) if staying else below
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, what forbids the rule at a filter on the payload; None if nothing does."""
    match node:
        case Where(AlterLifetime() as changed, p):
            for part in conjuncts(p):
                if not reads_lifetime(part) and (reason := _obstacle(changed, part)):
                    return reason
    return None


def _obstacle(changed: AlterLifetime, part: Expr) -> str | None:
    for expr in (changed.start.expr, changed.length.expr, part):
        if expr is not None and not expression_facts(expr).deterministic:
            return f"{show(expr)} is not known to be deterministic"
    if reads_lifetime(part):
        return f"{show(part)} reads the new lifetime"
    if can_fail(part, changed.schema):
        return f"{show(part)} may fail, and would see events that get no lifetime"
    return None
