"""Compute a window's aggregates once for each basic window, and merge the partial results into windows."""

from __future__ import annotations

from streamq.operators import MergePartials, PartialAggregate, Select, WindowAggregate
from streamq.plan.aggregation import expand
from streamq.plan.expr import Col
from streamq.plan.node import Node


def split_basic_windows(node: Node) -> Node | None:
    """``window(a by k) => select(merge(partial(a by k)), results)``: no event is aggregated twice.

    Each aggregate becomes partial results that can be merged: counts, sums, least and greatest values as they are, a mean as sum
    and count, a variance as count, mean and sum of squared differences (DataCell's compensating and expanding replication). The
    law holds for windows on a grid whose aggregates all merge. In a batch the merging operator may still aggregate the events
    directly if that is cheaper (``choose_form``).
    """
    match node:
        case WindowAggregate(source, keys, window, aggregates) if node.is_grid:
            split = expand(aggregates, source.schema)
            merged = MergePartials(PartialAggregate(source, keys, window, split.arguments, split.partials))
            return Select(merged, (*((k, Col(k)) for k in keys), *split.outputs))
    return None
