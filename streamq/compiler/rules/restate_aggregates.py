"""Replace a window's aggregates by expressions over simpler ones, which can be merged (DataCell's expanding replication)."""

from __future__ import annotations

from dataclasses import replace

from streamq.operators import Select, WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.aggregation import is_restated, restate
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node
from streamq.plan.passes import rewrite_expression


def restate_aggregates(node: Node) -> Node | None:
    """``window(a, f(x)) => select(window(a, g(x), h(x)), f of g and h)``, where g and h restate f; each is computed once.

    An average is a sum divided by a count, NULL if no value is counted; a standard deviation is the root of a variance.
    """
    if not isinstance(node, WindowAggregate):
        return None
    source = node.input.schema
    again = {name for name, a in node.aggregates if is_restated(a, source)}
    if not again:
        return None
    columns: dict[str, tuple[str, Aggregate]] = {}
    for name, a in node.aggregates:
        if name not in again:
            columns.setdefault(a.digest, (name, a))
    names = {name for name, _ in node.aggregates}

    def column(expr: Expr) -> Expr | None:
        """Return the column of an aggregate, which is added under an unused name if it is new; None for other expressions."""
        if not isinstance(expr, Aggregate):
            return None
        if expr.digest not in columns:
            number = next(i for i in range(len(names) + 1) if f"__{expr.name}{i}" not in names)
            columns[expr.digest] = (f"__{expr.name}{number}", expr)
            names.add(f"__{expr.name}{number}")
        return Col(columns[expr.digest][0])

    outputs = [(n, rewrite_expression(restate(a, source) if n in again else a, column)) for n, a in node.aggregates]
    below = replace(node, aggregates=tuple(columns.values()))
    return Select(below, (*((k, Col(k)) for k in node.keys), *outputs))
