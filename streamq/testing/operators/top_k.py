"""TopK: its definition and its exact columns."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.operators import TopK
from streamq.plan.passes import infer
from streamq.testing.drawn_expressions import exact_columns
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import key, listed, order_of
from streamq.testing.oracle.windows import events_in_groups, members, stamped


@defines(TopK)
def top_k(node: TopK, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the members of each window whose RANK by value is at most k; with broken ties, those whose row number is.

    The payload breaks ties, then the lifetime. The rank is a column, too, and the row number if it is asked for; a NULL value is
    less than any other.
    """
    source = node.input.schema
    events, groups = events_in_groups(node, [("v", node.by, "")], inputs[0], run)
    membership = members(node, events, groups, run)
    window = listed("w", "w_le", "w_re", *groups)
    by = key("v", infer(node.by, source, "oracle")) + (" DESC NULLS LAST" if node.desc else " ASC NULLS FIRST")
    own = [f"p{i}" for i in range(len(source.fields))]
    ties = listed(by, *(f"{o} NULLS FIRST" for o in order_of(source)), "le", "re")
    ranked = f"""
        SELECT *, rank() OVER (PARTITION BY {window} ORDER BY {by}) AS rank,
            row_number() OVER (PARTITION BY {window} ORDER BY {ties}) AS number FROM {membership}"""
    start, end, there = stamped(node)
    columns = [f"{e} AS c{i}" for i, e in enumerate([*own, "rank", *(["number"] if node.row_number else [])])]
    limit = "rank" if node.ties == "keep" else "number"
    return f"SELECT {listed(start, end, *columns)} FROM ({ranked}) WHERE {there} AND {limit} <= {node.k}"


@exact_columns.register(TopK)
def exact_of_top_k(node: TopK, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return frozenset(node.schema.names)
