"""Batch code generation: lowers a plan to one DataFrame, by DataFrame operations only, which Catalyst optimizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamq.errors import PlanError, sentence
from streamq.operators.observer import NOBODY, Observer
from streamq.operators.operator import BatchRun, Operator
from streamq.operators.source import Source
from streamq.plan.folding import fold
from streamq.plan.lowering import instant
from streamq.plan.node import Node, nodes
from streamq.plan.schema import Schema, quote
from streamq.runtime.event import LE, RE
from streamq.time import INFINITY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def lower_in_batch(plan: Node, run: BatchRun, observer: Observer = NOBODY) -> DataFrame:
    """Return the plan's events as ``__le``, ``__re`` (ticks) and payload; the observer receives the DataFrames of each node.

    Fills ``run`` with the plan's sources by table. Raises PlanError for a node without a batch form.
    """

    run.sources = {n.table: n for n in nodes(plan) if isinstance(n, Source)}

    def visit(node: Node, inputs: list[DataFrame]) -> DataFrame:
        if not isinstance(node, Operator):
            raise PlanError(sentence("batch", f"no batch form of {type(node).__name__}"))
        for port, frame in enumerate(inputs):
            observer.rows_in(node, port, frame)
        rows = node.in_batch(inputs, run)
        observer.rows_out(node, rows)
        return rows

    return fold(plan, visit)


def to_user(df: DataFrame, schema: Schema) -> DataFrame:
    """Return the payload, then ``start`` and ``end`` in the type of the axis; the end of an endless event is NULL."""
    from pyspark.sql import functions as F

    end = F.when(F.col(RE) != INFINITY, F.col(RE))
    return df.select(
        *(F.col(quote(name)) for name in schema.names),
        instant(F.col(LE), schema.axis).alias("start"),
        instant(end, schema.axis).alias("end"),
    )
