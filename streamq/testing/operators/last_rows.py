"""LastRows: its definition and its generator."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from streamq.operators import LastRows
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw, exact, matched
from streamq.testing.drawn_operators import over_one
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import keys, listed, payload, same
from streamq.time import INFINITY
from streamq.windows import Rows


@defines(LastRows)
def last_rows(node: LastRows, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that lists the latest window of each key at each instant of a row, and joins it with its rows.

    Window w has n rows from the w-th on. At the start of its last row it is the latest, if none with a later last row has that
    start, until the next start of a last row. A row lives from the first of these instants at which the latest window has it
    to the last end of one, as a row that has left the windows does not come back.
    """
    names, window, columns = node.schema.names, node.window, keys(node.schema)
    own = [columns[names.index(k)] for k in node.keys]
    by = f"PARTITION BY {listed(*own)}" if own else ""
    whole = [*window.order_by, *(n for n in names if n not in window.order_by)]
    order = listed("le", *(f"{columns[names.index(c)]} NULLS FIRST" for c in whole))
    rows = run.table(f"SELECT *, row_number() OVER ({by} ORDER BY {order}) - 1 AS place FROM {inputs[0]}")
    before = window.n - 1
    complete = run.table(f"""
        SELECT {listed("max(place) AS last", "le AS since", *own)} FROM {rows}
        WHERE place >= {before} AND (place - {before}) % {window.step} = 0 GROUP BY {listed("le", *own)}""")  # fmt: skip
    until = f"coalesce(lead(since) OVER ({by} ORDER BY since), {INFINITY}) AS until"
    latest = run.table(f"SELECT {listed('last', 'since', until, *own)} FROM {complete}")
    inside = f"{same(own)} AND a.place BETWEEN b.last - {before} AND b.last"
    lives = run.table(f"""
        SELECT {listed("place", "min(since) AS since", "max(until) AS until", *(f"a.{k}" for k in own))}
        FROM {rows} a JOIN {latest} b ON {inside} GROUP BY {listed("place", *(f"a.{k}" for k in own))}""")  # fmt: skip
    every = listed("since AS le", "until AS re", *(f"a.{c}" for c in payload(node.schema)))
    return f"SELECT {every} FROM {rows} a JOIN {lives} b ON {same(own)} AND a.place = b.place"


@over_one
def draw_last_rows(draw: Draw, plan: Node, reads_end: bool) -> LastRows | None:
    """Draw last rows of the stream, or by one column; None unless all columns are exact, as ties go by the whole payload."""
    among = matched(plan.schema, plan.schema.names)
    if set(among) != set(plan.schema.names) or not exact(plan) >= set(plan.schema.names):
        return None
    by, order = (tuple(draw(st.lists(st.sampled_from(among), max_size=1))) for _ in range(2))
    return LastRows(plan, by, Rows(draw(st.integers(1, 3)), draw(st.integers(1, 4)), order))
