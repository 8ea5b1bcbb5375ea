"""Clip: its definition and its generator."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.operators import Clip
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw
from streamq.testing.drawn_operators import Pairs, over_two
from streamq.testing.meetings import Meeting, Visit, meeting_of
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.pairs import agreement
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed, payload
from streamq.time import INFINITY


@defines(Clip)
def clip(node: Clip, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that ends each event at the least later start of a matching event, if that is before its own end."""
    agree = agreement(node.input.schema, node.by.schema, node.on)
    first = f"(SELECT min(b.le) FROM {inputs[1]} b WHERE {agree} AND b.le > a.le)"
    return f"SELECT {listed('le', f'least(re, coalesce({first}, {INFINITY})) AS re', *payload(node.schema))} FROM {inputs[0]} a"


@over_two()
def draw_clip(draw: Draw, one: Node, two: Node, on: Pairs) -> Clip:
    return Clip(one, two, on)


@meeting_of.register(Clip)
def meeting(node: Clip) -> Meeting:
    """Return the meeting of a clip: long events, some of which are cut, with equal keys."""
    return Visit(node.children, (), frozenset(name for pair in node.on for name in pair))
