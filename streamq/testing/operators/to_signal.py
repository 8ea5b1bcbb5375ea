"""ToSignal: its definition and its generator."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from streamq.operators import ToSignal
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw, exact, matched
from streamq.testing.drawn_operators import over_one
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import keys, listed, payload, same
from streamq.time import INFINITY


@defines(ToSignal)
def to_signal(node: ToSignal, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that ends each event at the least strictly later start of an event with equal keys.

    With ``order_by``, an event goes if another of its keys and start is greater in these columns, NULL being the least.
    """
    names = dict(zip(node.schema.names, keys(node.schema), strict=True))
    own, order = [names[k] for k in node.keys], [names[n] for n in node.order_by]
    until = f"(SELECT min(b.le) FROM {inputs[0]} b WHERE {same(own)} AND b.le > a.le)"
    rows = f"SELECT {listed('le', f'coalesce({until}, {INFINITY}) AS re', *payload(node.schema))} FROM {inputs[0]} a"
    if not order:
        return rows
    equal = [f"{same(order[:n])} AND {_is_after(column)}" for n, column in enumerate(order)]
    later = " OR ".join(f"({each})" for each in equal)
    return f"{rows} WHERE NOT EXISTS (SELECT 1 FROM {inputs[0]} b WHERE {same(own)} AND b.le = a.le AND ({later}))"


def _is_after(column: str) -> str:
    """Return a condition: b is greater than a in a column, and NULL is the least."""
    return f"(b.{column} IS NOT NULL AND (a.{column} IS NULL OR b.{column} > a.{column}))"


@over_one
def draw_to_signal(draw: Draw, plan: Node, reads_end: bool) -> ToSignal | None:
    """Draw a signal by one column or none, and by an order or none; None if no column is exact."""
    exact_names = exact(plan)
    if not exact_names:
        return None
    among = matched(plan.schema, exact_names)
    if not among:
        return ToSignal(plan, ())
    key = tuple(draw(st.lists(st.sampled_from(among), max_size=1)))
    order = tuple(draw(st.lists(st.sampled_from(among), max_size=2, unique=True))) if draw(st.booleans()) else ()
    return ToSignal(plan, key, order)
