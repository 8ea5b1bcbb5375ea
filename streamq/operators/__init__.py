"""The operators: one room each, with its node, its verb's meaning and its batch lowering; ``BATCH`` finds a room by node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamq.operators import (
    alter_lifetime,
    chop,
    clip,
    distinct_ids,
    edges,
    except_,
    intervals,
    join,
    join_table,
    merge_partials,
    partial_aggregate,
    physical,
    points,
    select,
    to_signal,
    top_k,
    union,
    where,
    window_aggregate,
    windowed_join,
)
from streamq.operators.alter_lifetime import AlterLifetime
from streamq.operators.chop import Chop
from streamq.operators.clip import Clip
from streamq.operators.distinct_ids import DistinctIds
from streamq.operators.edges import Edges
from streamq.operators.except_ import Except
from streamq.operators.intervals import Intervals
from streamq.operators.join import Join
from streamq.operators.join_table import JoinTable
from streamq.operators.merge_partials import MergePartials
from streamq.operators.partial_aggregate import PartialAggregate
from streamq.operators.physical import Physical
from streamq.operators.points import Points
from streamq.operators.select import Select
from streamq.operators.source import Source
from streamq.operators.to_signal import ToSignal
from streamq.operators.top_k import TopK
from streamq.operators.union import Union
from streamq.operators.where import Where
from streamq.operators.window_aggregate import WindowAggregate
from streamq.operators.windowed_join import WindowedJoin
from streamq.plan.node import Node

BATCH: dict[type[Node], Callable[..., Any]] = {
    Points: points.batch,
    Intervals: intervals.batch,
    Edges: edges.batch,
    Physical: physical.batch,
    Where: where.batch,
    Select: select.batch,
    Union: union.batch,
    AlterLifetime: alter_lifetime.batch,
    Join: join.batch,
    WindowedJoin: windowed_join.batch,
    Except: except_.batch,
    Clip: clip.batch,
    ToSignal: to_signal.batch,
    Chop: chop.batch,
    DistinctIds: distinct_ids.batch,
    JoinTable: join_table.batch,
    TopK: top_k.batch,
    WindowAggregate: window_aggregate.batch,
    PartialAggregate: partial_aggregate.batch,
    MergePartials: merge_partials.batch,
}
"""The batch lowering of every operator: ``(node, input DataFrames, Batch) -> DataFrame``."""

ROWS: dict[type[Source], Callable[..., Any]] = {
    Points: points.rows,
    Intervals: intervals.rows,
    Edges: edges.rows,
    Physical: physical.rows,
}
"""The raw rows of every source as items: ``(node, DataFrame, whether it is a stream) -> DataFrame``."""

LOGICAL: tuple[type[Node], ...] = (
    Points, Intervals, Edges, Physical, Where, Select, Union, AlterLifetime, Join, WindowedJoin, Except, Clip, ToSignal,
    Chop, DistinctIds, JoinTable, WindowAggregate, TopK,
)  # fmt: skip
"""The operators a user's query consists of; the others come from rewriting."""

__all__ = [
    "BATCH", "LOGICAL", "ROWS", "AlterLifetime", "Chop", "Clip", "DistinctIds", "Edges", "Except", "Intervals", "Join",
    "JoinTable", "MergePartials", "PartialAggregate", "Physical", "Points", "Select", "Source", "ToSignal", "TopK", "Union",
    "Where", "WindowAggregate", "WindowedJoin",
]  # fmt: skip
