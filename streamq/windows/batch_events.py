"""Windows in batch: each event is copied into the windows of its group that it is a member of, with their intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from streamq.choices import Stamp
from streamq.plan.lowering import lifetime
from streamq.plan.schema import Schema, quote
from streamq.runtime.endpoints import Bound
from streamq.runtime.event import LE, RE
from streamq.time import INFINITY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NUMBER, STARTS, ENDS = "__window", "__wle", "__wre"
"""The columns with a window's number in its group, its start and its end."""

UNTIL = "__until"
"""The column with the instant before which windows and pieces start."""


@dataclass(frozen=True)
class BatchEvents:
    """The events of an input with their schema; each group of the columns ``keys``, which are not quoted, has windows of its own.

    bounded: adds the column UNTIL of a bound; is_bounded: True if a bound on all windows is needed, because an event may never
    end or the user has set ``until``; reads_bounds: True if a result needs to know the interval of its window.
    """

    df: DataFrame
    schema: Schema
    bounded: Callable[[DataFrame, Bound], DataFrame]
    is_bounded: bool
    keys: tuple[str, ...] = ()
    reads_bounds: bool = True

    def with_lifetimes(self) -> DataFrame:
        """Return the events' lifetimes and payload."""
        return self.df.select(*lifetime(self.schema), *(quote(n) for n in self.schema.names))


def stamped(df: DataFrame, stamp: str, schema: Schema, start: str = STARTS, end: str = ENDS) -> DataFrame:
    """Return result rows with the lifetime that ``stamp`` asks for: their window, or the tick at its end.

    ``start`` and ``end`` are the window's as SQL over the rows. Of a window without an end there is no such tick, and no row.
    """
    columns = [quote(f.name) for f in schema.fields]
    if stamp == Stamp.POINT_AT_END:
        return df.where(f"{end} < {INFINITY}L").selectExpr(f"{end} AS {LE}", f"{end} + 1L AS {RE}", *columns)
    return df.selectExpr(f"{start} AS {LE}", f"{end} AS {RE}", *columns)


def same_keys(right: DataFrame, keys: list[str], names: list[str]) -> tuple[DataFrame, Column]:
    """Return ``right`` with its keys renamed, and the condition that both sides' keys are equal, NULL equal to NULL.

    Of its other columns it keeps ``names``. ``keys`` are quoted.
    """
    renamed = right.select(*(F.col(k).alias(f"__key{i}") for i, k in enumerate(keys)), *names)
    on = F.lit(True)
    for i, k in enumerate(keys):
        on = on & F.col(k).eqNullSafe(F.col(f"__key{i}"))
    return renamed, on


def ranged(keys: list[str], events: DataFrame, windows: DataFrame) -> DataFrame:
    """Copy events into their windows ``__lo .. __hi``, and add the windows' intervals.

    ``windows`` has the keys, the number and the interval of each window; a number without a window gives no row.
    ``keys`` are quoted.
    """
    copies = events.withColumn("__number", F.explode(F.sequence("__lo", "__hi"))).drop("__lo", "__hi")
    intervals, on = same_keys(windows, keys, [NUMBER, STARTS, ENDS])
    members = copies.join(intervals, on & (F.col("__number") == F.col(NUMBER)))
    return members.drop("__number", *(f"__key{i}" for i in range(len(keys))))


__all__ = ["ENDS", "NUMBER", "STARTS", "UNTIL", "BatchEvents", "ranged", "same_keys", "stamped"]
