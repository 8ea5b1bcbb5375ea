"""ToSignal: its definition and its generator."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from streamq.operators import ToSignal
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw, exact, matched
from streamq.testing.drawn_operators import over_one
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.expressions import keys, listed, payload, same
from streamq.testing.oracle.run import Run
from streamq.time import INFINITY


@defines(ToSignal)
def to_signal(node: ToSignal, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that ends each event at the least strictly later start of an event with equal keys."""
    own = [keys(node.schema)[node.schema.names.index(k)] for k in node.keys]
    until = f"(SELECT min(b.le) FROM {inputs[0]} b WHERE {same(own)} AND b.le > a.le)"
    return f"SELECT {listed('le', f'coalesce({until}, {INFINITY}) AS re', *payload(node.schema))} FROM {inputs[0]} a"


@over_one
def draw_to_signal(draw: Draw, plan: Node, reads_end: bool) -> ToSignal | None:
    """Draw a signal by one column or none; None if no column is exact."""
    exact_names = exact(plan)
    if not exact_names:
        return None
    among = matched(plan.schema, exact_names)
    return ToSignal(plan, tuple(draw(st.lists(st.sampled_from(among), max_size=1)) if among else ()))
