"""Evaluate a select in each branch of a union, where it can meet the branch's own selects."""

from __future__ import annotations

from streamq.compiler.rules.substitution import expression_facts
from streamq.operators import Select, Union
from streamq.plan.node import Node
from streamq.plan.schema import shown_name
from streamq.plan.tree import show


def push_select_below_union(node: Node) -> Node | None:
    """``select(union(a, b), x) => union(select(a, x), select(b, x))``, if x is deterministic."""
    match node:
        case Select(Union(inputs), columns) if why_not(node) is None:
            return Union(tuple(Select(source, columns) for source in inputs))
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at a select over a union; None if there is none."""
    match node:
        case Select(Union(), columns):
            for name, e in columns:
                if not expression_facts(e).deterministic:
                    return f"{shown_name(name)} = {show(e)} is not known to be deterministic"
    return None
