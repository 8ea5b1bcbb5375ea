"""Chop: its definition, its generator, and the bounds of its pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from streamq.grid import Grid
from streamq.operators import Chop
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw
from streamq.testing.drawn_operators import over_one
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.grids import bound, hopping_windows
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed, payload
from streamq.testing.query_scale import bounds, lengths, recurrences
from streamq.testing.scale import Bounds, GridBounds


@defines(Chop)
def chop(node: Chop, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that cuts each lifetime at the bounds of the grid's cells.

    Only pieces that start before the oracle's bound are there, also of events with an end.
    """
    until = bound(inputs[0], run)
    cells = hopping_windows(Grid(node.period, node.period, node.offset), inputs[0], run)
    return f"""
        SELECT {listed("greatest(le, w_le) AS le", "least(re, w_re) AS re", *payload(node.schema))}
        FROM {inputs[0]} JOIN {cells} ON le < w_re AND re > w_le WHERE greatest(le, w_le) < {until}"""


@over_one
def draw_chop(draw: Draw, plan: Node, reads_end: bool) -> Chop:
    return Chop(plan, draw(st.integers(1, 7)), draw(st.integers(-3, 3)))


@lengths.register(Chop)
@recurrences.register(Chop)
def period(node: Chop) -> Iterator[int]:
    yield node.period


@bounds.register(Chop)
def bounds_of_pieces(node: Chop) -> Iterator[Bounds]:
    yield GridBounds(Grid(node.period, node.period, node.offset))
