"""Uses: what a query does with the columns of its sources, and the values that it compares with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streamq.operators import Source, WindowAggregate
from streamq.plan.aggregate import Aggregate, Computes
from streamq.plan.case import Case
from streamq.plan.expr import Alias, Call, Cast, Col, Expr, Lit
from streamq.plan.node import Node, expanded, nodes
from streamq.plan.passes import columns, is_opaque
from streamq.plan.passes import nodes as parts_of
from streamq.runtime.arrow_types import BITS
from streamq.testing.scale import expressions, literals

MOST_LITERALS = 6
"""How many values of a type come from a query's own literals."""


@dataclass(frozen=True)
class Uses:
    """The source columns that a plan computes with, and those that it only adds up.

    What computes with the ends of a type fails, or is rounded: one answer is as good as another.
    """

    computed: frozenset[str]
    summed: frozenset[str]


def uses(plan: Node) -> Uses:
    """What a plan does with the columns of its sources.

    An expression that computes with a column under a name that no source has may compute with any.
    """
    there = frozenset(f.name for n in nodes(plan) if isinstance(n, Source) for f in n.payload)
    computed: set[str] = set()
    summed: set[str] = set()
    for node in nodes(expanded(plan)):
        for expr in expressions(node):
            computed |= _computing(expr)
        for _, a in node.aggregates if isinstance(node, WindowAggregate) else ():
            names = frozenset[str]().union(*(columns(arg) for arg in a.args))
            computes = a.function.drawing.computes
            if computes != Computes.NOTHING:
                (summed if computes == Computes.A_SUM else computed).update(names)

    def lineage(names: set[str]) -> frozenset[str]:
        return frozenset(names) if names <= there else there

    return Uses(lineage(computed), lineage(summed))


def _computing(expr: Expr) -> set[str]:
    """The columns that an expression computes with; what a pyspark Column reads is not known: a name that no column has."""
    names: set[str] = {""} if is_opaque(expr) else set()
    for part in parts_of(expr):
        plain = isinstance(part, Col | Lit | Case | Alias | Aggregate)
        if not plain and not (isinstance(part, Call) and part.function.selects):
            names |= columns(part)
    return names


NO_USES = Uses(frozenset(), frozenset())


def near(plan: Node) -> list[Any]:
    """Values that a plan's expressions compare with, some of each type; of casts to integers, the greatest floats that fit."""
    by_kind: dict[type, dict[str, Any]] = {}
    for node in nodes(expanded(plan)):
        for value in (*_bounds_of_casts(node), *literals(node)):
            by_kind.setdefault(type(value), {}).setdefault(repr(value), value)
    return [v for values in by_kind.values() for v in list(values.values())[:MOST_LITERALS]]


def _bounds_of_casts(node: Node) -> Iterator[float]:
    """The least and the greatest floats that casts to integral types take."""
    for expr in expressions(node):
        for part in parts_of(expr):
            if isinstance(part, Cast) and type(part.type) in BITS:
                bound = 2.0 ** (BITS[type(part.type)] - 1)
                # a cast truncates, so that fractions beyond the greatest integer fit; of bigint the bound itself does
                yield from (bound - 0.5, -bound - 0.5)


__all__ = ["NO_USES", "Uses", "near", "uses"]
