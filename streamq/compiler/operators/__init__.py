"""The operators: one room each, with its node, its verb's meaning and its batch lowering; ``BATCH`` finds a room by node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamq.compiler.operators import (
    edges,
    intervals,
    merge_partials,
    partial_aggregate,
    physical,
    points,
    select,
    union,
    where,
    window_aggregate,
)
from streamq.compiler.operators.edges import Edges
from streamq.compiler.operators.intervals import Intervals
from streamq.compiler.operators.merge_partials import MergePartials
from streamq.compiler.operators.partial_aggregate import PartialAggregate
from streamq.compiler.operators.physical import Physical
from streamq.compiler.operators.points import Points
from streamq.compiler.operators.select import Select
from streamq.compiler.operators.source import Source
from streamq.compiler.operators.union import Union
from streamq.compiler.operators.where import Where
from streamq.compiler.operators.window_aggregate import WindowAggregate
from streamq.compiler.plan import Node

BATCH: dict[type[Node], Callable[..., Any]] = {
    Points: points.batch,
    Intervals: intervals.batch,
    Edges: edges.batch,
    Physical: physical.batch,
    Where: where.batch,
    Select: select.batch,
    Union: union.batch,
    WindowAggregate: window_aggregate.batch,
    PartialAggregate: partial_aggregate.batch,
    MergePartials: merge_partials.batch,
}
"""The batch lowering of every operator: ``(node, input DataFrames, Batch) -> DataFrame``."""

LOGICAL: tuple[type[Node], ...] = (Points, Intervals, Edges, Physical, Where, Select, Union, WindowAggregate)
"""The operators a user's query consists of; the others come from rewriting."""

__all__ = [
    "BATCH", "LOGICAL", "Edges", "Intervals", "MergePartials", "PartialAggregate", "Physical",
    "Points", "Select", "Source", "Union", "Where", "WindowAggregate",
]  # fmt: skip
