"""The bound on windows and pieces of endless lifetimes in batch, and the events of an input in the form that windows take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamq.operators.operator import BatchRun
from streamq.operators.reach import REACH, reach_frame
from streamq.plan.node import Node
from streamq.runtime.endpoints import Bound, endpoint, limit
from streamq.runtime.event import LE, RE
from streamq.time import INFINITY
from streamq.windows.batch_events import UNTIL, BatchEvents
from streamq.windows.tick_sql import SQL, TickSql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def batch_events(
    input: Node, df: DataFrame, run: BatchRun, keys: Sequence[str] = (), *, reads_bounds: bool = True
) -> BatchEvents:
    """Return the events ``df`` of an input as :class:`BatchEvents`; ``keys`` and ``reads_bounds`` are its fields."""
    return BatchEvents(
        df,
        input.schema,
        bounded=lambda df, bound: add_bound(df, [input], run, bound=bound),
        is_bounded=input.traits.infinite or run.until is not None,
        keys=tuple(keys),
        reads_bounds=reads_bounds,
    )


def add_bound(
    df: DataFrame,
    inputs: Sequence[Node],
    run: BatchRun,
    over: DataFrame | None = None,
    bound: Bound = Bound.ENDLESS,
) -> DataFrame:
    """Add the column UNTIL, before which windows and pieces must start, in ticks (docs/concepts.md, "Windows").

    It is the bound of ``run``. Without one, :func:`limit` makes it by the rule ``bound`` from the greater of two: the last
    endpoint of all events in ``over`` (default: ``df``), and the reach of ``inputs``. INFINITY bounds nothing.
    """
    from pyspark.sql import functions as F

    if run.until is not None:
        return df.withColumn(UNTIL, F.lit(run.until))
    events = over if over is not None else df
    end = endpoint(TickSql(LE), TickSql(RE), SQL).column
    ends = events.agg(F.max(end).alias("__end"), F.max(RE).alias("__greatest"))
    reach, last = reach_frame(inputs, run), TickSql("__end")
    if reach is not None:
        ends, last = ends.crossJoin(F.broadcast(reach)), TickSql(f"greatest(__end, {REACH})")
    until = limit(bound, last, TickSql("__greatest") == INFINITY, SQL)
    return df.crossJoin(F.broadcast(ends.select(until.column.alias(UNTIL))))


__all__ = ["add_bound", "batch_events"]
