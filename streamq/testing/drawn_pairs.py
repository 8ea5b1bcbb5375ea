"""Hypothesis strategies for the column names of a pair of events and a condition on the pair, as joins need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from streamq.choices import JoinKind
from streamq.operators import Join, WindowedJoin
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node
from streamq.plan.schema import Schema
from streamq.testing.drawn_expressions import Draw, evaluable, exact
from streamq.testing.drawn_operators import Pairs


@dataclass(frozen=True)
class PairOfEvents:
    """The columns of both events, as (input name, output name), and the condition on the pair, if any."""

    left_names: Pairs
    right_names: Pairs
    where: Expr | None


@st.composite
def drawn_pairs(draw: Draw, one: Node, two: Node, on: Pairs) -> PairOfEvents:
    """Draw names and a condition for pairs of two streams of equal columns; columns ``on`` come from the first stream only."""
    names, shared = one.schema.names, {a for a, _ in on}
    suffix = "_r"
    while any(f"{n}{suffix}" in names for n in names):
        suffix += "r"
    ours = tuple((n, n) for n in names)
    theirs = tuple((n, f"{n}{suffix}") for n in names if n not in shared)
    bare = Join(one, two, on, where=None, how=JoinKind.INNER, left_names=ours, right_names=theirs)
    where = draw(st.one_of(st.none(), _conditions(bare.both, exact(bare), suffix)))
    return PairOfEvents(ours, theirs, where)


@st.composite
def _conditions(draw: Draw, schema: Schema, among: frozenset[str], suffix: str) -> Expr | None:
    """Draw a condition on one column of a pair, or on the same column of both events; None if none is legal.

    The second event's columns are named with ``suffix``.
    """
    conditions: list[Expr] = []
    for name in sorted(among):
        kind = schema.type_of(name)
        conditions.append(Col(name).is_not_null())
        other = f"{name}{suffix}"
        if other in among and schema.type_of(other) == kind:
            conditions += [Col(name) == Col(other), Col(name) != Col(other), Col(name) < Col(other)]
            conditions += [Col(name).eq_null_safe(Col(other))]
    conditions = [expr for expr in conditions if evaluable(expr, schema)]
    return draw(st.sampled_from(conditions)) if conditions else None


def exact_of_pairs(node: Join | WindowedJoin, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the exact columns of a join: those that are exact in the input they come from."""
    sides = zip((node.left_names, node.right_names), inputs, strict=True)
    exact_names = {to for names, side in sides for name, to in names if name in side}
    return frozenset(exact_names & set(node.schema.names))


__all__ = ["PairOfEvents", "drawn_pairs", "exact_of_pairs"]
