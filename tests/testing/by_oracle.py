"""What the oracle answers over rows of a source, as tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from streamq.operators import Source
from streamq.plan.node import Node
from streamq.plan.schema import Field
from streamq.sources.insert_only import Intervals
from streamq.testing.arrival import table_of
from streamq.testing.oracle import oracle
from streamq.time import INFINITY

LONG, STRING, DOUBLE, INT = t.LongType(), t.StringType(), t.DoubleType(), t.IntegerType()
NAN, INF = float("nan"), float("inf")


def fields(**kinds: t.DataType) -> tuple[Field, ...]:
    return tuple(Field(name, kind) for name, kind in kinds.items())


def intervals(**payload: t.DataType) -> Intervals:
    return Intervals("s", fields(start=LONG, end=LONG, **payload), "start", "end")


def answer(
    plan: Node, rows: Sequence[Sequence[Any]], until: int | None = None, **options: Any
) -> list[tuple[Any, ...]]:
    """Rows ``start, end, payload...`` of the answer over source rows, in order; an open end is None."""
    source = next(n for n in _sources(plan))
    given = table_of(source, [dict(zip([f.name for f in source.columns], row, strict=True)) for row in rows])
    return shown(oracle(plan, {source.table: given}, until, **options))


def _sources(plan: Node) -> list[Source]:
    return [plan] if isinstance(plan, Source) else [s for child in plan.children for s in _sources(child)]


def shown(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    rows = [(a, None if b == INFINITY else b, *rest) for a, b, *rest in zip(*columns, strict=True)]
    return sorted(rows, key=lambda row: [(v is not None, str(type(v)), v) for v in row])
