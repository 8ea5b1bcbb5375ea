"""Passes over expressions: questions about a whole tree, and rewriting of trees."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from streamq.plan.aggregate import Aggregate, AggregateFunction
from streamq.plan.expr import Call, Col, Expr, Opaque
from streamq.plan.folding import fold
from streamq.plan.function import Function
from streamq.plan.lifetime import Lifetime
from streamq.plan.own_names import carried_key
from streamq.plan.tree import show


def expression_nodes(root: Expr) -> list[Expr]:
    """Return every distinct node, children first."""
    in_order: list[Expr] = []
    fold(root, lambda node, _: in_order.append(node))
    return in_order


def columns(root: Expr) -> frozenset[str]:
    """Return the names of the payload columns that an expression reads."""
    return frozenset(n.name for n in expression_nodes(root) if isinstance(n, Col))


def rewrite_expression(root: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Rewrite bottom-up: ``change`` is called with each node over its rewritten operands, and returns None to keep it."""

    def visit(node: Expr, parts: list[Expr]) -> Expr:
        old = node.children
        again = node if all(a is b for a, b in zip(old, parts, strict=True)) else node.with_children(parts)
        changed = change(again)
        return again if changed is None else changed

    return fold(root, visit)


def substitute(root: Expr, by: Mapping[str, Expr]) -> Expr:
    """Replace payload columns by the expressions ``by`` has for them."""
    return rewrite_expression(root, lambda n: by.get(n.name) if isinstance(n, Col) else None)


def reads_lifetime(root: Expr, *parts: str) -> bool:
    """True if the tree reads one of these parts of the lifetime (any part, if none is named)."""
    wanted = parts or ("start", "end", "duration")
    return any(isinstance(n, Lifetime) and n.part in wanted for n in expression_nodes(root))


def reads_end(root: Expr) -> bool:
    """True if the tree reads RE, which a retraction may still move, or may read it in a pyspark Column."""
    return reads_lifetime(root, "end", "duration") or is_opaque(root)


def is_opaque(root: Expr) -> bool:
    """True if the tree contains a pyspark Column, so that the columns it reads are unknown."""
    return any(isinstance(n, Opaque) for n in expression_nodes(root))


def calls_python(root: Expr) -> bool:
    """True if Spark calls Python for a part of the expression."""
    return any(isinstance(n, Call) and n.function.in_python for n in expression_nodes(root))


def set_aside_by(root: Expr) -> tuple[Call, ...]:
    """Return the calls in an expression over events that set aside the events they fail for."""
    return tuple(n for n in expression_nodes(root) if isinstance(n, Call) and n.function.sets_aside)


def functions(root: Expr) -> list[Function | AggregateFunction]:
    """Return the functions and aggregate functions that a tree calls, children first."""
    return [n.function for n in expression_nodes(root) if isinstance(n, Call | Aggregate)]


def aggregates(root: Expr) -> list[Aggregate]:
    """Return the aggregates in a tree, children first."""
    return [n for n in expression_nodes(root) if isinstance(n, Aggregate)]


def show_to_user(root: Expr) -> str:
    """Show an expression like :func:`show`, but a column of a partial result as ``sum(...)``, one of a group's key as the key."""

    def described(node: Expr) -> Expr | None:
        if not isinstance(node, Col) or not node.name.startswith("__"):
            return None
        if (key := carried_key(node.name)) is not None:
            return Col(key)
        own = _OWN.fullmatch(node.name)
        kind, part = own.groups() if own else ("value", None)
        return Col({None: kind or "count", "n": "count", "mean": "avg"}.get(part, "var") + "(...)")

    return show(rewrite_expression(root, described))


_OWN = re.compile(r"__(?:n|([a-z_]+?)\d+(?:__([a-z0-9]+))?)")
"""Names of internal aggregates: ``__n``, ``__sum0``, ``__sum0__n``."""
