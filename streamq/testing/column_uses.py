"""Find which source columns a query computes with or sums, and the constants that it compares with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as t

from streamq.operators import Source, WindowAggregate
from streamq.plan.aggregate import Aggregate, Computation
from streamq.plan.expr import Alias, Call, Case, Cast, Col, Expr, Lit
from streamq.plan.node import Node, expanded, nodes
from streamq.plan.passes import columns, is_opaque
from streamq.plan.passes import expression_nodes as parts_of
from streamq.runtime.arrow_types import BITS
from streamq.testing.query_scale import expressions, literals
from streamq.testing.telling_values import telling_values
from streamq.user_code.repository import called_modules

MOST_LITERALS = 6
"""The greatest number of values of one type that are taken from a query's literals."""


@dataclass(frozen=True)
class Uses:
    """The source columns that a plan computes with, and those that it only sums.

    The generators avoid the extreme values of a type in such columns: computing with them overflows or rounds, so that several
    answers are right. ``sees_bits``: the plan may give different results for equal values, such as 0.0 and -0.0.
    ``may_overflow``: a sum may be one that does not fit.
    """

    computed: frozenset[str]
    summed: frozenset[str]
    sees_bits: bool = False
    may_overflow: bool = False


def uses(plan: Node) -> Uses:
    """Return the source columns that a plan computes with or sums.

    If one of the two sets has a name that no source has, its origin is unknown, and all source columns are in that set.
    """
    there = frozenset(f.name for n in nodes(plan) if isinstance(n, Source) for f in n.payload)
    computed: set[str] = set()
    summed: set[str] = set()
    sees_bits = bool(called_modules(plan))
    for node in nodes(expanded(plan)):
        for expr in expressions(node):
            computed |= _computing(expr)
            sees_bits |= _sees_bits(expr)
        for _, a in node.aggregates if isinstance(node, WindowAggregate) else ():
            names = frozenset[str]().union(*(columns(arg) for arg in a.args))
            computes = a.function.drawing.computes
            if computes != Computation.NOTHING:
                (summed if computes == Computation.A_SUM else computed).update(names)

    def lineage(names: set[str]) -> frozenset[str]:
        return frozenset(names) if names <= there else there

    return Uses(lineage(computed), lineage(summed), sees_bits)


def _sees_bits(expr: Expr) -> bool:
    """True if an expression may tell equal values apart: a pyspark Column, a cast to text, a function of the sign of zeros."""
    return is_opaque(expr) or any(
        isinstance(part.type, t.StringType)
        if isinstance(part, Cast)
        else isinstance(part, Call) and part.function.identity in SIGN_OF_ZERO
        for part in parts_of(expr)
    )


SIGN_OF_ZERO = frozenset({"atan2", "concat", "concat_ws", "format_string", "pow", "power", "to_json"})
"""Functions whose result may differ between -0.0 and 0.0, or the orders of a map."""


def _computing(expr: Expr) -> set[str]:
    """Return the columns that an expression computes with; a pyspark Column, which cannot be inspected, adds the name "".

    CASE, functions that only select among values, and aggregates do not compute with their operands.
    """
    names: set[str] = {""} if is_opaque(expr) else set()
    for part in parts_of(expr):
        plain = isinstance(part, Col | Lit | Case | Alias | Aggregate)
        if not plain and not (isinstance(part, Call) and part.function.selects):
            names |= columns(part)
    return names


NO_USES = Uses(frozenset(), frozenset())


def near(plan: Node) -> list[Any]:
    """Return constants near which a plan's expressions change: its literals and, for casts to integers, the type's bounds.

    At most MOST_LITERALS of each Python type are returned, without repetitions. Behind them come, as many, the values that tell
    the plan's functions and casts from others.
    """
    every = nodes(expanded(plan))
    constants = _some(value for node in every for value in (*_bounds_of_casts(node), *literals(node)))
    telling = _some(value for node in every for expr in expressions(node) for value in telling_values(expr))
    return list({repr(value): value for value in (*constants, *telling)}.values())


def _some(values: Iterable[Any]) -> list[Any]:
    """Return at most MOST_LITERALS values of each Python type, the first ones, without repetitions."""
    by_kind: dict[type, dict[str, Any]] = {}
    for value in values:
        by_kind.setdefault(type(value), {}).setdefault(repr(value), value)
    return [v for kind in by_kind.values() for v in list(kind.values())[:MOST_LITERALS]]


def _bounds_of_casts(node: Node) -> Iterator[float]:
    """Yield, for each cast to an integral type, a float at the upper end and one at the lower end of the values it accepts.

    The type that is cast does not count.
    """
    for expr in expressions(node):
        for part in parts_of(expr):
            if isinstance(part, Cast) and type(part.type) in BITS:
                bound = 2.0 ** (BITS[type(part.type)] - 1)
                # a cast truncates, so the greatest integer plus a fraction still fits; for bigint the sum rounds to the bound
                yield from (bound - 0.5, -bound - 0.5)


__all__ = ["NO_USES", "Uses", "near", "uses"]
