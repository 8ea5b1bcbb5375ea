"""Hypothesis strategies for queries over streams with payload ``k, v``: every operator, window and aggregate.

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
"""Sequences of operators over one stream, by room; each operator is also drawn alone."""


@st.composite
def spans(draw: Draw, plan: Node, reads_end: bool = True, most: int = 2) -> Node:
    """Draw none, one or two operators over one stream that keep its column names and types; if ``most`` is 1, just one.

    Operators that are not legal over the stream are left out, so that with 1 there may be none, too.
    """
    rooms = [*((room,) for room in OVER_ONE), *(IN_TURN if most > 1 else [])]
    for room in draw(st.sampled_from([(), *rooms] if most > 1 else rooms)):
        plan = OVER_ONE[room](draw, plan, reads_end) or plan
    return plan


@st.composite
def paired(draw: Draw, one: Node, two: Node) -> Node:
    """Draw an operator over two streams of equal columns: a join of any kind, ``except_``, ``clip`` or a union.

    If it is not legal over them, it is a union.
    """
    drawing = draw(st.sampled_from(OVER_TWO))
    common = matched(one.schema, exact(one) & exact(two))
    on = tuple((n, n) for n in draw(st.lists(st.sampled_from(common), max_size=1))) if common else ()
    return drawing(draw, one, two, on) or Union((one, two))


@st.composite
def finished(draw: Draw, plan: Node, label: str = "b", reads_end: bool = True) -> Node:
    """Draw a window's result as it is, filtered by a where, or with a column ``label`` added by a select."""
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
    """Draw a plan over inputs with payload ``k, v``: operators over one and two streams, and up to ``depth`` nested windows.

    ``reads_end``: expressions may read ends of lifetimes. An input with other columns than the query so far is left out.
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
