"""Compute a window's aggregates once for each basic window, and merge the partial results into windows."""

from __future__ import annotations

from streamq.choices import Stamp
from streamq.operators import MergePartials, Select, WindowAggregate
from streamq.plan.aggregation import expand, not_merged
from streamq.plan.expr import Col
from streamq.plan.node import Node


def split_basic_windows(node: Node) -> Node | None:
    """``window(a by k) => select(merge(a by k), results)``: no event is aggregated twice.

    Each aggregate becomes partial results that can be merged: counts, sums, least and greatest values as they are, a mean as sum
    and count, a variance as count, mean and sum of squared differences (DataCell's compensating and expanding replication). The
    law holds for windows on a grid whose aggregates all merge. In a batch the merging operator may still aggregate the events
    directly if that is cheaper (``choose_form``). Where some aggregates do not merge but read values alone, a stream keeps
    these with their numbers, and the others as partial results (``GridFactory``).
    """
    match node:
        case WindowAggregate(source, keys, window, aggregates) if node.is_grid and node.merges:
            split = expand(aggregates, source.schema)
            merged = MergePartials(source, keys, window, split.arguments, split.partials, node.stamp)
            return Select(merged, (*((k, Col(k)) for k in keys), *split.outputs))
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule; None at windows off a grid whose aggregates all merge."""
    match node:
        case WindowAggregate(source, _, window, aggregates) if window.grid is None and not node.merges:
            instead = "all members are kept"
            if node.keeps_values:
                instead = "settled members of one value are kept as one row"
            return f"{window.name} windows are on no grid, and {not_merged(aggregates, source.schema)}: {instead}"
        case WindowAggregate(source, _, window, aggregates) if window.grid is not None and not (
            node.is_grid and node.merges
        ):
            if node.stamp == Stamp.TIME_BOUND:
                return "the operator says how long rows live"
            instead = "all members are kept"
            if node.keeps_states:
                instead = "a stream keeps a state for each window"
            elif node.is_grid:
                instead = "a stream counts their values, beside partial results of the others"
            return f"{not_merged(aggregates, source.schema)}: {instead}"
    return None
