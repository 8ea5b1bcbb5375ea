"""Scenarios that stand for any operator, or for any query of some operators."""

from __future__ import annotations

from functools import partial

from hypothesis import strategies as st

from streamq.operators import JoinTable
from streamq.plan.node import nodes
from streamq.stream import Stream
from streamq.testing.drawn_expressions import Draw
from streamq.testing.payloads import static
from streamq.testing.scenario import Scenario, drawing, stream
from tests.drawn.operators import looked_up
from tests.drawn.queries import aggregated, paired, spans


def operator(*inputs: Scenario | Stream) -> Scenario:
    """Return a scenario that stands for any operator with any arguments, over one stream or two of equal columns.

    Without inputs the operator is over one open stream.
    """
    return drawing(_operator, *inputs or (stream(),))


def composition(least: int = 3, most: int = 6) -> Scenario:
    """Return a scenario that stands for any query of ``least`` to ``most`` operators over one open stream or two."""
    return drawing(partial(_composition, least, most), stream(), stream())


def _operator(draw: Draw, one: Stream, other: Stream | None = None) -> Stream:
    """Draw an operator over the inputs: over both if there are two of equal columns, else over the first."""
    if other is not None and one.plan.schema.names == other.plan.schema.names:
        return one._derive(draw(paired(one.plan, other.plan)), other)
    return _over_one(draw, one, draw(st.sampled_from(["span", "span", "window", "table"])), "x")


def _over_one(draw: Draw, query: Stream, kind: str, label: str) -> Stream:
    """Draw an operator over one stream: stateless or over lifetimes ("span"), a window's aggregates, or a table's look-up.

    ``label`` begins the names of an aggregate's columns, so that those of two windows differ.
    """
    if kind == "span":
        return query._derive(draw(spans(query.plan, most=1)))
    if kind == "window":
        return query._derive(draw(aggregated(query.plan, label)))
    plan = draw(looked_up(query.plan))
    tables = {n.table: static(n.table) for n in nodes(plan) if isinstance(n, JoinTable)}
    return type(query)(plan, {**query.tables, **tables})


def _composition(least: int, most: int, draw: Draw, query: Stream, other: Stream) -> Stream:
    """Draw a query of ``least`` to ``most`` operators over one of two sources, or both."""
    left = [other] * draw(st.integers(0, 1))
    for i in range(draw(st.integers(least, most))):
        kinds = ["span", "span", "window", "table"] if i else ["span", "window"]
        beside = left[-1] if left else query
        if beside.plan.schema.names == query.plan.schema.names:
            kinds += ["pair"] * 3
        kind = draw(st.sampled_from(kinds))
        if kind == "pair":
            query, left = query._derive(draw(paired(query.plan, beside.plan)), beside), left[:-1]
        else:
            query = _over_one(draw, query, kind, f"x{i}")
    return query
