"""``sq.window_start()`` and ``sq.window_end()`` as aggregates, for windows whose results do not live on the window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import DataType

from streamq.plan.aggregate import AggregateFunction, Application, Drawing, SparkMembers
from streamq.plan.partial import RangedMembers, RangeReduction, ReducedColumn, Reduction

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class BoundReduction(RangeReduction):
    """One of the two ends of the window."""

    is_start: bool

    def over_ranges(self, members: RangedMembers) -> pa.Array:
        return pa.array(members.window[0 if self.is_start else 1]).cast(self.column.type)


@dataclass(frozen=True)
class WindowEdge(AggregateFunction):
    """One of the two ends of the window that the members lie in."""

    name: str
    is_start: bool

    of_values = True
    drawing = Drawing(weight=0, arguments=0)

    @property
    def reads_window(self) -> bool:
        return True

    def result(self, of: Application) -> DataType:
        return of.time_type

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return BoundReduction(column, self.is_start)

    def on_spark(self, members: SparkMembers) -> Column | None:
        from pyspark.sql import functions as F

        return members.instant(F.max(members.window()[0 if self.is_start else 1]))


WINDOW_START, WINDOW_END = WindowEdge("window_start", True), WindowEdge("window_end", False)

WINDOW_EDGES = {"start": WINDOW_START, "end": WINDOW_END}
"""The aggregates by the end of the window that they return: ``start`` and ``end``."""
