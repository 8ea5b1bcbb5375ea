"""SQL of windows over canonical histories: their members and the stamps of results (docs/concepts.md, "Windows")."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.choices import Stamp
from streamq.operators import Scan, TopK, WindowAggregate
from streamq.plan.expr import Expr
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import keys, listed, order_of, payload
from streamq.testing.windows.room import Members, room_of
from streamq.time import INFINITY


def members(node: WindowAggregate | TopK, events: str, groups: Sequence[str], run: Run) -> str:
    """Return the table of members: each event once for each of its windows, with ``w`` (a number), ``w_le`` and ``w_re``."""
    return room_of(node.window).members(node.window, Members(events, groups, node.input.schema), run)


def stamped(node: WindowAggregate | TopK) -> tuple[str, str, str]:
    """Return SQL for start and end of a window's result, and the condition under which a window has a result."""
    if node.stamp == Stamp.POINT_AT_END:
        return "w_re AS le", "w_re + 1 AS re", f"w_re < {INFINITY}"
    return "w_le AS le", "w_re AS re", "true"


def events_in_groups(
    node: WindowAggregate | TopK | Scan, values: Sequence[tuple[str, Expr, str]], source: str, run: Run
) -> tuple[str, list[str]]:
    """Return the table of events with groups ``g0, ...``, computed values and payload ``p0, ...``; and the group columns.

    It also has those columns ``o0, ...`` of :func:`order_of` that are no plain payload columns. A value is (name, expression,
    condition): it is computed where the earlier value ``condition`` is true, else NULL; "" for always. No event is left out: a
    filter is a value for the caller to apply.
    """
    schema = node.input.schema
    groups = [f"g{i}" for i in range(len(node.keys))]
    group_columns = [f"{keys(schema)[schema.names.index(k)]} AS {g}" for g, k in zip(groups, node.keys, strict=True)]
    calls = [(run.sql(e, schema), name, condition) for name, e, condition in values]
    computed = [
        f"CASE WHEN {condition} THEN {call} END AS {name}" if condition else f"{call} AS {name}"
        for call, name, condition in calls
    ]
    own = [f"{c} AS p{i}" for i, c in enumerate(payload(schema))]
    own += [f"{c} AS {o}" for c, o in zip(keys(schema), order_of(schema), strict=True) if o.startswith("o")]
    return run.table(f"SELECT {listed('le', 're', *group_columns, *computed, *own)} FROM {source}"), groups


__all__ = ["events_in_groups", "members", "stamped"]
