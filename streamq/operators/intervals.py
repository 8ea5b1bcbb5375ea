"""Intervals: each row is an event on ``[start, end)``; a NULL end is one that is still alive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streamq.errors import PlanError, sentence
from streamq.operators.arrow_items import ArrowItems, column_ticks
from streamq.operators.operator import BatchRun
from streamq.operators.source import (
    AS_END,
    AS_START,
    InsertSource,
    axis_of,
    check_starts,
    column_as_ticks,
    deduplicate,
    invalid_reason,
    keep_good,
    source_schema,
)
from streamq.operators.source_policy import SourcePolicy
from streamq.plan.lowering import spark_expression
from streamq.plan.node import ADDED, Traits, node
from streamq.plan.schema import INTERVAL, Field, Schema, quote
from streamq.runtime.event import BAD, LE, RE
from streamq.time import INFINITY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@node
class Intervals(InsertSource):
    """The rows of ``table``, alive from column ``start`` to ``end``; with ``ids``, those of equal ids and start are one event.

    CTI: c, made from the data (greatest start seen - delay) or told from outside
    Final: every row that is on time
    State: without id: none, lateness is judged in the first stateful stage; with id: rows not settled
    Cost: a pass over what is new; with id: and over the rows held that start where it does
    """

    table: str
    columns: tuple[Field, ...]
    start: str
    end: str
    policy: SourcePolicy = SourcePolicy()
    ids: tuple[str, ...] = field(default=(), metadata=ADDED)

    title = "intervals"

    @property
    def consumed(self) -> dict[str, str]:
        return {self.start: AS_START, self.end: AS_END}

    def _schema(self) -> Schema:
        if self.start == self.end:
            raise PlanError(
                sentence(
                    "intervals",
                    "start and end are the same column",
                    f"found {self.start!r}",
                    "Events of one instant are sq.points(df, time=...).",
                )
            )
        return source_schema(self, axis_of(self.columns, (self.start, self.end), "intervals"), INTERVAL, "intervals")

    def _traits(self) -> Traits:
        return Traits(infinite=True)

    def detail(self) -> str:
        return f"{self.shown_name()}, start={self.start}, end={self.end}{self.shown_ids()}"

    def on_spark(self, table: DataFrame, streaming: bool) -> DataFrame:
        """``__le``, ``__re``, payload and ``__bad`` of every row."""
        from pyspark.sql import functions as F

        raw = Schema(self.columns, self.schema.axis)
        le = spark_expression(column_as_ticks(self.start, raw.type_of(self.start)))
        re = F.coalesce(spark_expression(column_as_ticks(self.end, raw.type_of(self.end))), F.lit(INFINITY))
        reason = invalid_reason(le).when(re <= le, F.lit("end not after start"))
        le, reason = check_starts(le, reason, self, streaming, re)
        return table.select(
            le.alias(LE), re.alias(RE), *(F.col(quote(f.name)) for f in self.payload), reason.alias(BAD)
        )

    def in_arrow(self, table: pa.Table) -> ArrowItems:
        starts, ends = column_ticks(table, self.start), column_ticks(table, self.end, INFINITY)
        items = ArrowItems({LE: starts, RE: ends})
        items.refuse_starts()
        items.refuse(pc.less_equal(ends, starts), "end not after start")
        return items

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """One row an event."""
        return deduplicate(self, keep_good(self.on_spark(run.tables[self.table], False)))
