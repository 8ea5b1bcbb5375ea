"""Remove the aggregates of a window that no operator above reads."""

from __future__ import annotations

from dataclasses import replace

from streamq.compiler.rules.prune_columns import columns_read, filters_below, refilter
from streamq.operators import WindowAggregate
from streamq.plan.node import Node


def prune_aggregates(node: Node) -> Node | None:
    """``op(window(a, m, n)) => op(window(a, m))``, if op, a select or window, and filters between do not read n."""
    wheres, bottom = filters_below(node)
    if bottom is node or not isinstance(bottom, WindowAggregate):
        return None
    wanted = columns_read(node, wheres)
    if wanted is None or all(name in wanted for name, _ in bottom.aggregates):
        return None
    wanted_aggregates = tuple((name, a) for name, a in bottom.aggregates if name in wanted)
    return refilter(node, wheres, replace(bottom, aggregates=wanted_aggregates))
