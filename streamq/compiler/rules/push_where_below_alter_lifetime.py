"""Filter on the payload before lifetimes change, so that the filter can move on towards the source."""

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

    p, s and d must be deterministic. Below, p also sees events that alter_lifetime drops, so it must not raise an error. Of a
    conjunction, the parts that satisfy the conditions are pushed.
    """
    match node:
        case Where(AlterLifetime(input=source, start=start, length=length) as changed, p):
            pushed: list[Expr] = []
            rest: list[Expr] = []
            for part in conjuncts(p):
                (pushed if _obstacle(changed, part) is None else rest).append(part)
            if pushed:
                below = AlterLifetime(Where(source, conjunction(pushed)), start, length)
                return Where(below, conjunction(rest)) if rest else below
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at a filter on the payload; None if there is none."""
    match node:
        case Where(AlterLifetime() as changed, p):
            for part in conjuncts(p):
                if not reads_lifetime(part) and (reason := _obstacle(changed, part)):
                    return reason
    return None


def _obstacle(changed: AlterLifetime, part: Expr) -> str | None:
    """Return the reason why a part of the filter cannot be pushed; None if it can."""
    for expr in (changed.start.expr, changed.length.expr, part):
        if expr is not None and not expression_facts(expr).deterministic:
            return f"{show(expr)} is not known to be deterministic"
    if reads_lifetime(part):
        return f"{show(part)} reads the new lifetime"
    if can_fail(part, changed.schema):
        return f"{show(part)} may fail, and would see events that get no lifetime"
    return None
