"""Filter in each branch of a union, so that the filter can move on towards the branch's source."""

from __future__ import annotations

from streamq.compiler.rules.substitution import expression_facts
from streamq.operators import Union, Where
from streamq.plan.node import Node
from streamq.plan.tree import show


def push_where_below_union(node: Node) -> Node | None:
    """``where(union(a, b), p) => union(where(a, p), where(b, p))``, if p is deterministic."""
    match node:
        case Where(Union(inputs), p) if expression_facts(p).deterministic:
            return Union(tuple(Where(source, p) for source in inputs))
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at a where over a union; None if there is none."""
    match node:
        case Where(Union(), p) if not expression_facts(p).deterministic:
            return f"{show(p)} is not known to be deterministic"
    return None
