"""Merge two filters in a row into one."""

from __future__ import annotations

from streamq.compiler.rules.substitution import LARGEST, expression_facts
from streamq.compiler.rules.totality import can_fail
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import Where
from streamq.plan.node import Node
from streamq.plan.tree import show


def merge_wheres(node: Node) -> Node | None:
    """``where(where(a, p), q) => where(a, p and q)``, if p and q are deterministic and q cannot fail.

    Before, q sees only rows for which p is true. In ``p and q`` it is also evaluated where p is NULL, and must not raise there. p
    and q together have fewer than LARGEST nodes.
    """
    match node:
        case Where(Where(source, p), q) if why_not(node) is None:
            return Where(source, conjunction([p, *conjuncts(q)]))
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at a where over a where; None if there is none."""
    match node:
        case Where(Where(source, p), q):
            for predicate in (p, q):
                if not expression_facts(predicate).deterministic:
                    return f"{show(predicate)} is not known to be deterministic"
            if expression_facts(p).size + expression_facts(q).size >= LARGEST:
                return "the predicate would become too large"
            if can_fail(q, source.schema):
                return f"{show(q)} may fail on rows where {show(p)} is NULL"
    return None
