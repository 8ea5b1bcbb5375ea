"""Points: each row is an event that lives for one tick, ``[t, t + 1)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from streamq.operators.operator import BatchRun
from streamq.operators.source import (
    AS_START,
    InsertSource,
    axis_of,
    deduplicate,
    source_schema,
)
from streamq.operators.source_items import SourceItems
from streamq.operators.source_policy import SourcePolicy
from streamq.plan.lowering import end_column
from streamq.plan.node import ADDED, Traits, node
from streamq.plan.schema import POINT, Field, Schema, quote
from streamq.runtime.event import BAD, LAST_POINT, LE, RE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@node
class Points(InsertSource):
    """Reads each row of ``table`` as a point at column ``time``; with ``ids``, rows of equal ids and start are one event.

    CTI: c, generated from the data (greatest start seen - delay) or set from outside
    Final: every row that is on time
    State: without id: none, lateness is judged in the first stateful stage; with id: rows not settled
    Cost: a pass over what is new; with id: and over the rows held that start where it does
    """

    table: str
    columns: tuple[Field, ...]
    time: str
    policy: SourcePolicy = SourcePolicy()
    ids: tuple[str, ...] = field(default=(), metadata=ADDED)

    title = "points"

    @property
    def consumed(self) -> dict[str, str]:
        return {self.time: AS_START}

    def _schema(self) -> Schema:
        return source_schema(self, axis_of(self.columns, (self.time,), "points"), POINT, "points")

    def _traits(self) -> Traits:
        return Traits()

    def detail(self) -> str:
        return f"{self.shown_name()}, time={self.time}{self.shown_ids()}"

    def define_items(self, items: SourceItems[Any]) -> None:
        """Add ``__le``; the end is implied, one tick later."""
        items.add_ticks(LE, self.time)
        items.refuse_starts(LAST_POINT)

    def on_spark(self, table: DataFrame, streaming: bool) -> DataFrame:
        """Return ``__le`` and payload of each row, in batch also ``__bad``; in a stream a NULL start marks a refused row."""
        df = super().on_spark(table, streaming)
        return df.drop(BAD) if streaming else df

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Return the table's events, each once."""
        from pyspark.sql import functions as F

        df = self.good_items(run)
        return deduplicate(
            self, df.select(LE, end_column(False).alias(RE), *(F.col(quote(f.name)) for f in self.payload))
        )
