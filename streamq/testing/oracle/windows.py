"""Windows over canonical histories: which there are, and who is a member (docs/concepts.md, "Windows")."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.choices import Stamp
from streamq.operators import Scan, TopK, WindowAggregate
from streamq.plan.expr import Expr
from streamq.testing.oracle.expressions import keys, listed, order_of, payload
from streamq.testing.oracle.run import Run
from streamq.testing.windows.room import Members, room_of
from streamq.time import INFINITY


def members(node: WindowAggregate | TopK, events: str, groups: Sequence[str], run: Run) -> str:
    """Events with ``w`` (which window of the group), ``w_le`` and ``w_re``: a row for each window that they are in."""
    return room_of(node.window).members(node.window, Members(events, groups, node.input.schema), run)


def stamped(node: WindowAggregate | TopK) -> tuple[str, str, str]:
    """A row's start and end, and the windows that have a row."""
    if node.stamp == Stamp.POINT_AT_END:
        return "w_re AS le", "w_re + 1 AS re", f"w_re < {INFINITY}"
    return "w_le AS le", "w_re AS re", "true"


def events_in_groups(
    node: WindowAggregate | TopK | Scan, values: Sequence[tuple[str, Expr, str]], source: str, run: Run
) -> tuple[str, list[str]]:
    """Events with group columns ``g0, ...``, computed values, and the payload as ``p0, ...``; and the group columns.

    A value is its name, its expression and of which value before it it depends whether it is asked for (or nothing).
    """
    schema = node.input.schema
    groups = [f"g{i}" for i in range(len(node.keys))]
    whose = [f"{keys(schema)[schema.names.index(k)]} AS {g}" for g, k in zip(groups, node.keys, strict=True)]
    asked_values = [(run.sql(e, schema), name, asked) for name, e, asked in values]
    computed = [
        f"CASE WHEN {asked} THEN {call} END AS {name}" if asked else f"{call} AS {name}"
        for call, name, asked in asked_values
    ]
    own = [f"{c} AS p{i}" for i, c in enumerate(payload(schema))]
    own += [f"{c} AS {o}" for c, o in zip(keys(schema), order_of(schema), strict=True) if o.startswith("o")]
    return run.table(f"SELECT {listed('le', 're', *whose, *computed, *own)} FROM {source}"), groups


__all__ = ["events_in_groups", "members", "stamped"]
