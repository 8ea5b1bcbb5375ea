"""Random queries over streams of one payload ``k, v``, as Hypothesis strategies: every operator, window and aggregate.

Needs ``hypothesis``.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from streamq.operators import Select, Union, Where
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw, exact, is_plain_number, lifetime_parts, matched, numbers, predicates
from streamq.testing.drawn_operators import OVER_ONE, OVER_TWO
from streamq.testing.drawn_windows import aggregated
from streamq.testing.operators.join_table import looked_up

IN_TURN = (
    ("select", "where"),
    ("where", "select"),
    ("alter_lifetime", "where"),
    ("where", "alter_lifetime"),
    ("alter_lifetime", "alter_lifetime"),
)
"""Rooms of operators over one stream that are drawn one after another; every one is drawn alone."""


@st.composite
def spans(draw: Draw, plan: Node, reads_end: bool = True, most: int = 2) -> Node:
    """Up to ``most`` (two) operators over one stream that keep names and types."""
    rooms = [*((room,) for room in OVER_ONE), *(IN_TURN if most > 1 else [])]
    for room in draw(st.sampled_from([(), *rooms] if most > 1 else rooms)):
        plan = OVER_ONE[room](draw, plan, reads_end) or plan
    return plan


@st.composite
def paired(draw: Draw, one: Node, two: Node) -> Node:
    """Two streams of equal columns as one: joins of every kind, differences, cuts."""
    drawing = draw(st.sampled_from(OVER_TWO))
    common = matched(one.schema, exact(one) & exact(two))
    on = tuple((n, n) for n in draw(st.lists(st.sampled_from(common), max_size=1))) if common else ()
    return drawing(draw, one, two, on) or Union((one, two))


@st.composite
def finished(draw: Draw, plan: Node, label: str = "b", reads_end: bool = True) -> Node:
    """Maybe a where over a window's result, or a select that adds a column."""
    if draw(st.booleans()):
        return plan
    if draw(st.booleans()):
        return Where(plan, draw(predicates(plan.schema, exact(plan), reads_end)))
    name = draw(st.sampled_from(plan.schema.names))
    columns: list[tuple[str, Expr]] = [(n, Col(n)) for n in plan.schema.names]
    over = draw(numbers(plan.schema, name, reads_end)) / 4 if is_plain_number(plan.schema.type_of(name)) else Col(name)
    return Select(plan, (*columns, (label, draw(st.one_of(st.just(over), lifetime_parts(reads_end))))))


@st.composite
def queries(draw: Draw, inputs: Sequence[Node], depth: int = 2, reads_end: bool = True) -> Node:
    """A plan over inputs of one payload ``k, v``: operators over one and two streams, up to ``depth`` windows over one another.

    ``reads_end``: whether expressions may read ends of lifetimes.
    """
    parts = [draw(spans(plan, reads_end)) for plan in inputs]
    if draw(st.sampled_from([False, False, True])):
        parts.append(draw(spans(inputs[0], reads_end)))
    query = parts[0]
    for other in parts[1:]:
        query = draw(paired(query, other)) if query.schema.names == other.schema.names else query
    if draw(st.sampled_from([False] * 5 + [True])):
        query = draw(looked_up(query))
    for level in range(draw(st.sampled_from([n for n in (0, 1, 1, 2, 2) if n <= depth]))):
        query = draw(finished(draw(aggregated(query, f"a{level}", reads_end)), f"b{level}", reads_end))
    return query


__all__ = ["finished", "paired", "queries", "spans"]
