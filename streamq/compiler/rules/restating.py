"""Aggregates of a window stated by simpler ones: what DataCell calls expanding replication."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from streamq.operators import Select, WindowAggregate
from streamq.operators.partial_aggregate import restated
from streamq.operators.window_aggregate import splits
from streamq.plan.expr import Aggregate, Col, Expr
from streamq.plan.node import Node
from streamq.plan.passes import rewrite


def restate(node: WindowAggregate, names: Collection[str]) -> Node | None:
    """The aggregates called ``names`` as expressions over simpler ones, each computed once; None without any that splits."""
    source = node.input.schema
    again = {name for name, a in node.aggregates if a.name in names and splits(a, source)}
    if not again:
        return None
    made: dict[str, tuple[str, Aggregate]] = {}
    for name, a in node.aggregates:
        if name not in again:
            made.setdefault(a.digest, (name, a))
    taken = {name for name, _ in node.aggregates}

    def part(found: Expr) -> Expr | None:
        if not isinstance(found, Aggregate):
            return None
        if found.digest not in made:
            number = next(i for i in range(len(taken) + 1) if f"__{found.name}{i}" not in taken)
            made[found.digest] = (f"__{found.name}{number}", found)
            taken.add(f"__{found.name}{number}")
        return Col(made[found.digest][0])

    outputs = [(n, rewrite(restated(a, source) if n in again else a, part)) for n, a in node.aggregates]
    below = replace(node, aggregates=tuple(made.values()))
    return Select(below, (*((k, Col(k)) for k in node.keys), *outputs))
