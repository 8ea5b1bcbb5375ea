"""Explode: its definition, and its generator, which explodes what windows collect."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from streamq.aggregates.extremes import FIRST
from streamq.aggregates.holistic import COLLECT
from streamq.operators import Explode, WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw
from streamq.testing.drawn_operators import over_one
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed, quoted
from streamq.windows import Hopping


@defines(Explode)
def explode(node: Explode, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for a row for each element of the array, in the array's column or, flattened, as columns after the others.

    An array that is empty or NULL has no rows; an element that is NULL has one.
    """
    source = node.input.schema.names
    place = source.index(node.column)
    elements = f"SELECT *, unnest(c{place}) AS element FROM {inputs[0]} WHERE len(c{place}) > 0"
    values = {name: f"c{i}" for i, name in enumerate(source)} | {node.column: "element"}
    fields = [n for n in node.schema.names if n not in source or n == node.column] if node.flatten else []
    values |= {name: f"(element).{quoted(name)}" for name in fields}
    columns = [f"{values[name]} AS c{i}" for i, name in enumerate(node.schema.names)]
    return f"SELECT {listed('le', 're', *columns)} FROM ({elements})"


@over_one
def draw_explode(draw: Draw, plan: Node, reads_end: bool) -> Explode:
    """Draw an explode of the values of a column that tumbling windows collect; other columns have their first value."""
    column = draw(st.sampled_from(plan.schema.names))
    functions = {name: COLLECT if name == column else FIRST for name in plan.schema.names}
    aggregates = tuple((name, Aggregate(function, (Col(name),))) for name, function in functions.items())
    size = draw(st.integers(2, 7))
    return Explode(WindowAggregate(plan, (), Hopping(size, size), aggregates), column)
