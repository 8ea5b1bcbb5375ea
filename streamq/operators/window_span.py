"""WindowSpan: replaces lifetimes by ranges of windows, so that an ordinary join pairs the members of common windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamq.operators.step import LifetimeChange, SparkRows, Step
from streamq.plan.footprint import Footprint
from streamq.plan.node import Node, Traits, node
from streamq.plan.schema import INTERVAL, POINT, Schema
from streamq.runtime.event import LE, RE
from streamq.runtime.time.tick_arithmetic import ARRAYS
from streamq.runtime.window_spans import WindowSpans
from streamq.windows import Hopping
from streamq.windows.batch_events import SQL, TickSql

if TYPE_CHECKING:
    from streamq.operators.step import ArrowRows


@node
class WindowSpan(Step):
    """Gives an event the span of its windows: from the start of the first to a hop after the start of the last.

    Windows overlap or touch, and lifetimes end. The hop at the start of a window stands for the window, so tumbling windows of
    one hop over spans have the members of the ``window``.
    """

    input: Node
    window: Hopping

    title = "window span"

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            cti="start of the first window that ends after c",
            cost="a projection",
        )

    def _schema(self) -> Schema:
        return self.input.schema.with_shape(INTERVAL)

    def _traits(self) -> Traits:
        """Return the input's traits; a lifetime's length bounds the number of its windows, hence its span."""
        traits = self.input.traits
        longest = self.input.traits.longest
        grid = self.window.grid
        span = None if longest is None else ((longest + grid.size - 2) // grid.hop + 1) * grid.hop
        return Traits(traits.retracts, traits.moves_ends, traits.infinite, span)

    @property
    def event_windows(self) -> Hopping:
        return self.window

    def detail(self) -> str:
        return self.window.shown(self.schema.axis)

    @property
    def lifetime_change(self) -> LifetimeChange:
        # an event is late by the end of its last window before c exactly if its span begins before the CTI sent
        return LifetimeChange(WindowSpans(self.window.grid))

    def on_spark(self, rows: SparkRows) -> SparkRows:
        from pyspark.sql import functions as F

        spans = WindowSpans(self.window.grid)
        re = TickSql(LE) + 1 if self.input.schema.shape == POINT else TickSql(RE)
        start, end = spans.start(TickSql(LE), SQL).column, spans.end(re, SQL).column
        return rows.with_lifetimes(start, end, F.lit(True), self.schema)

    def in_arrow(self, rows: ArrowRows) -> ArrowRows:
        import numpy as np
        import pyarrow as pa

        spans = WindowSpans(self.window.grid)
        starts = spans.start(rows.starts.to_numpy(), ARRAYS)
        ends = spans.end(rows.ends.to_numpy(), ARRAYS)
        return rows.with_lifetimes(pa.array(starts), pa.array(ends), pa.array(np.ones(rows.count, bool)), self.schema)
