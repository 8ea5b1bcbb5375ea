"""DistinctIds: its definition, its generator, and its length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from streamq.operators import DistinctIds
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw, exact, matched
from streamq.testing.drawn_operators import over_one
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import keys, listed, payload, same
from streamq.testing.query_scale import lengths


@defines(DistinctIds)
def distinct_ids(node: DistinctIds, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for one event of each combination of ids and start, the least by end and payload.

    It is left out if another event of these ids starts before it, by ``within`` at most; one that is left out itself counts, too.
    """
    names = keys(node.schema)
    ids = [names[node.schema.names.index(i)] for i in node.ids]
    order = listed("re", *(f"{c} NULLS FIRST" for c in names))
    rows = run.table(
        f"SELECT *, row_number() OVER (PARTITION BY {listed('le', *ids)} ORDER BY {order}) AS place FROM {inputs[0]}"
    )
    near = f"{same(ids)} AND b.le::HUGEINT >= a.le::HUGEINT - {node.within} AND b.le < a.le"
    return f"""
        SELECT {listed("le", "re", *payload(node.schema))} FROM {rows} a
        WHERE place = 1 AND NOT EXISTS (SELECT 1 FROM {rows} b WHERE {near})"""


@over_one
def draw_distinct_ids(draw: Draw, plan: Node, reads_end: bool) -> DistinctIds | None:
    """Draw an id column and ``within``; None unless all columns are exact and can be keys."""
    names, exact_names = plan.schema.names, exact(plan)
    if not exact_names >= set(names) <= set(matched(plan.schema, exact_names)):
        return None
    return DistinctIds(plan, (draw(st.sampled_from(names)),), draw(st.integers(0, 6)))


@lengths.register(DistinctIds)
def within(node: DistinctIds) -> Iterator[int]:
    yield node.within
