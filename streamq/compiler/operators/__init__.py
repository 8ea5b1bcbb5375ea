"""The operators: one room each, with its node, its verb's meaning and its batch lowering; ``BATCH`` finds a room by node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamq.compiler.operators import (
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
from streamq.compiler.operators.alter_lifetime import AlterLifetime
from streamq.compiler.operators.chop import Chop
from streamq.compiler.operators.clip import Clip
from streamq.compiler.operators.distinct_ids import DistinctIds
from streamq.compiler.operators.edges import Edges
from streamq.compiler.operators.except_ import Except
from streamq.compiler.operators.intervals import Intervals
from streamq.compiler.operators.join import Join
from streamq.compiler.operators.join_table import JoinTable
from streamq.compiler.operators.merge_partials import MergePartials
from streamq.compiler.operators.partial_aggregate import PartialAggregate
from streamq.compiler.operators.physical import Physical
from streamq.compiler.operators.points import Points
from streamq.compiler.operators.select import Select
from streamq.compiler.operators.source import Source
from streamq.compiler.operators.to_signal import ToSignal
from streamq.compiler.operators.top_k import TopK
from streamq.compiler.operators.union import Union
from streamq.compiler.operators.where import Where
from streamq.compiler.operators.window_aggregate import WindowAggregate
from streamq.compiler.operators.windowed_join import WindowedJoin
from streamq.compiler.plan import Node

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
