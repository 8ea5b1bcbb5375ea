"""The room of Where: its definition and its generator."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.operators import Where
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw, exact, predicates
from streamq.testing.drawn_operators import over_one
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run


@defines(Where)
def where(node: Where, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the rows for which the predicate is true, without the events that are set aside."""
    source = run.without_failed([node.predicate], node.input.schema, inputs[0])
    return f"SELECT * FROM {source} WHERE {run.sql(node.predicate, node.input.schema)}"


@over_one
def draw_where(draw: Draw, plan: Node, reads_end: bool) -> Where:
    return Where(plan, draw(predicates(plan.schema, exact(plan), reads_end)))
