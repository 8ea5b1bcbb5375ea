"""Sources with rows for laws, and a plan's history as it stands, in-process, without any rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import types as t

from streamq.compiler.rules import Rule
from streamq.operators import Source
from streamq.plan.node import Node
from streamq.plan.schema import Field
from streamq.run.batch.answers import local_history
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.sources.insert_only import Intervals, Points
from streamq.windows import Hopping

PAYLOAD = (Field("k", t.StringType()), Field("v", t.LongType()), Field("w", t.DoubleType()))
TRIPS = Points("trips", (Field("at", t.LongType()), *PAYLOAD), "at")
MORE = Points("more", (Field("at", t.LongType()), *PAYLOAD), "at")
STAYS = Intervals("stays", (Field("from", t.LongType()), Field("to", t.LongType()), *PAYLOAD), "from", "to")
HOPPING = Hopping(4, 2)

_ROWS = {
    "k": ["a", "b", "a", None, "c", "a", "b"],
    "v": [1, 2, None, 4, -5, 6, 0],
    "w": [0.5, 1.5, 2.5, None, -1.25, 0.0, 8.0],
}
TABLES = {
    "trips": pa.table({"at": [0, 1, 1, 3, 6, 7, 9], **_ROWS}),
    "more": pa.table({"at": [2, 2, 4, 5, 8, 9, 12], **_ROWS}),
    "stays": pa.table({"from": [0, 1, 1, 3, 6, 7, 9], "to": [3, 9, 2, None, 8, None, 10], **_ROWS}),
}


def history(plan: Node, rules: Sequence[Rule] = (), tables: Mapping[str, pa.Table] = TABLES) -> pa.Table:
    """The history of a plan after some rules, computed in-process."""
    out = local_history(plan, tables, rules).drop_columns([WEIGHT])
    return out.rename_columns([{LE: "start", RE: "end"}.get(name, name) for name in out.column_names])


def drawn(plan: Node) -> str:
    """A plan as text, for readable differences."""
    if isinstance(plan, Source):
        return plan.table
    return f"{plan.title}[{plan.detail()}]({', '.join(map(drawn, plan.children))})"
