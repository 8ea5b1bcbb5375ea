"""Filter before the elements of an array become rows, if the filter does not read the elements."""

from __future__ import annotations

from streamq.compiler.rules.substitution import expression_facts
from streamq.compiler.rules.totality import can_fail
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import Explode, Where
from streamq.plan.expr import Expr
from streamq.plan.node import Node
from streamq.plan.passes import columns
from streamq.plan.tree import show


def push_where_below_explode(node: Node) -> Node | None:
    """``where(explode(a, c), p) => explode(where(a, p), c)``, if p reads nothing of c, is deterministic and cannot fail.

    Rows keep the lifetime of their event, so p may read it. Below, p also sees events whose array is empty or NULL, so it must
    not raise an error. Of a conjunction, the parts that satisfy the conditions are pushed.
    """
    match node:
        case Where(Explode(input=source, column=column, flatten=flatten) as explode, p):
            parts = conjuncts(p)
            pushed = [part for part in parts if _obstacle(explode, part) is None]
            if pushed:
                below = Explode(Where(source, conjunction(pushed)), column, flatten)
                rest = [part for part in parts if _obstacle(explode, part) is not None]
                return Where(below, conjunction(rest)) if rest else below
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at a filter that reads no element; None if there is none."""
    match node:
        case Where(Explode() as explode, p):
            for part in conjuncts(p):
                if not columns(part) & set(explode.element_columns) and (reason := _obstacle(explode, part)):
                    return reason
    return None


def _obstacle(explode: Explode, part: Expr) -> str | None:
    """Return the reason why a part of the filter cannot be pushed; None if it can."""
    if not expression_facts(part).deterministic:
        return f"{show(part)} is not known to be deterministic"
    if elements := sorted(columns(part) & set(explode.element_columns)):
        return f"{elements[0]} is of the elements"
    if can_fail(part, explode.schema):
        return f"{show(part)} may fail, and would see events without elements"
    return None
