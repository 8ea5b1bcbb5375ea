"""Merge two selects in a row into one, so that one step evaluates both."""

from __future__ import annotations

from streamq.compiler.rules.substitution import count_uses, expression_facts, inline, is_plain, stays_small
from streamq.operators import Select
from streamq.plan.expr import Col
from streamq.plan.node import Node
from streamq.plan.schema import shown_name
from streamq.plan.tree import show


def merge_selects(node: Node) -> Node | None:
    """``select(select(a, x), y) => select(a, y[x])``, if no computed expression of x is then evaluated more than once.

    ``y[x]`` is y with the columns that x defines replaced by their expressions. y may only rename a nondeterministic expression
    of x. A pyspark Column in x or y forbids the rule, because only Spark knows the columns that it reads. An expression of y must
    not become too large (``stays_small``).
    """
    match node:
        case Select(Select(source, inner), outer) if why_not(node) is None:
            by = dict(inner)
            return Select(source, tuple((name, inline(e, by)) for name, e in outer))
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at a select over a select; None if there is none."""
    match node:
        case Select(Select(_, inner), outer):
            for name, e in (*inner, *outer):
                if expression_facts(e).opaque:
                    return f"column {name} hides what it reads: {show(e)}"
            count = count_uses(e for _, e in outer)
            renamed = {e.name for _, e in outer if isinstance(e, Col)}
            for name, e in inner:
                if count[name] > 1 and not is_plain(e):
                    return f"{shown_name(name)} = {show(e)} would be evaluated {count[name]} times"
                if count[name] and name not in renamed and not expression_facts(e).deterministic:
                    return f"{shown_name(name)} = {show(e)} is not deterministic"
            for name, e in outer:
                if not stays_small(e, dict(inner)):
                    return f"{name} would become too large"
    return None
