"""Filter a join's input by what the join's condition asks of it alone, so that what no pair can have keeps no state."""

from __future__ import annotations

from dataclasses import replace

from streamq.choices import JoinKind
from streamq.compiler.rules.push_where_below_state import reason_against_fewer_events
from streamq.compiler.rules.substitution import expression_facts
from streamq.compiler.rules.totality import can_fail
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import Join, Where, WindowedJoin
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node
from streamq.plan.passes import columns, reads_lifetime, substitute
from streamq.plan.tree import show


def push_condition_below_join(node: Node) -> Node | None:
    """``join(a, b, q and r) => join(a, where(b, q), r)``, if q reads columns of b alone.

    If the join is inner or semi, what reads a alone filters a as well. A left event without a partner stays in a left or an anti
    join, so conditions on it decide there whom it meets, and stay. q must be deterministic, and must not read a lifetime, nor
    fail, because below it sees events that meet nobody. The windows of a ``windowed_join`` must not depend on how long the events
    that q removes live.
    """
    match node:
        case Join(where=p) | WindowedJoin(where=p) if p is not None and not _reason_against(node):
            sides = _sides(node)
            parts = conjuncts(p)
            chosen = [_side_of(node, sides, part) for part in parts]
            if all(number is None for number in chosen):
                return None
            inputs = []
            for number, (source, names) in enumerate(zip(node.children, sides, strict=True)):
                own = [_renamed(part, names) for part, of in zip(parts, chosen, strict=True) if of == number]
                inputs.append(Where(source, conjunction(own)) if own else source)
            rest = [part for part, of in zip(parts, chosen, strict=True) if of is None]
            return replace(node, left=inputs[0], right=inputs[1], where=conjunction(rest) if rest else None)
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that keeps a condition on one input in a join; None if there is none."""
    match node:
        case Join(where=p) | WindowedJoin(where=p) if p is not None:
            for part in conjuncts(p):
                number = next((n for n, names in enumerate(_sides(node)) if columns(part) <= names.keys()), None)
                if number is not None and (reason := _reason_against(node) or _obstacle(node, number, part)):
                    return reason
    return None


def _sides(node: Join | WindowedJoin) -> list[dict[str, str]]:
    """Return each input's columns by their names in a pair."""
    return [{to: n for n, to in names} for names in (node.left_names, node.right_names)]


def _side_of(node: Join | WindowedJoin, sides: list[dict[str, str]], part: Expr) -> int | None:
    """Return the number of the input that a part of the condition filters; None if it stays."""
    fitting = (n for n, names in enumerate(sides) if columns(part) <= names.keys() and not _obstacle(node, n, part))
    return next(fitting, None) if columns(part) else None


def _renamed(part: Expr, names: dict[str, str]) -> Expr:
    return substitute(part, {to: Col(n) for to, n in names.items()})


def _reason_against(node: Join | WindowedJoin) -> str:
    """Return why no event may be left out before a join: windows that depend on the ends of all; "" if any may."""
    if isinstance(node, Join):
        return ""
    return reason_against_fewer_events(node.window, node.children)


def _obstacle(node: Join | WindowedJoin, number: int, part: Expr) -> str | None:
    """Return the reason why a part that reads one input alone stays in the join; None if it filters that input."""
    if number == 0 and isinstance(node, Join) and node.how in (JoinKind.LEFT, JoinKind.ANTI):
        return f"{show(part)} decides which partners a left event has, and not whether it stays"
    if not expression_facts(part).deterministic:
        return f"{show(part)} is not known to be deterministic"
    if reads_lifetime(part):
        return f"{show(part)} reads a lifetime"
    pair = node.both if isinstance(node, Join) else node.schema
    if can_fail(part, pair):
        return f"{show(part)} may fail, and would see events that meet nobody"
    return None
