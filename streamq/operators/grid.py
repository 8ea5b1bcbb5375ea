"""Grids of windows in batch: which windows an event lies in, where a window lies, and where windows without number end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamq.errors import TimeError, sentence
from streamq.operators.operator import BatchRun
from streamq.operators.reach import REACH, reach
from streamq.plan.lowering import floor_div
from streamq.plan.node import Node
from streamq.plan.schema import INTERVAL, POINT
from streamq.runtime import grid as rule
from streamq.runtime.arithmetic import Arithmetic
from streamq.runtime.endpoints import Bound, endpoint, limit
from streamq.runtime.event import LE, RE
from streamq.time import INFINITY, MINUS_INFINITY, Duration, ticks
from streamq.windows import Hopping

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streamq.operators.operator import BatchRun

INDEX, LO, HI, COUNT = "__i", "__lo", "__hi", "__n"
"""A window's number, the range of windows an event or partial result lies in, and the events behind it."""


class _Columns:
    """Arithmetic of bigint columns."""

    def quotient(self, x: Column, by: int) -> Column:
        return floor_div(x, by)

    def remainder(self, x: Column, by: int) -> Column:
        from pyspark.sql import functions as F

        return F.pmod(x, F.lit(by).cast("bigint"))

    def choose(self, condition: Column, then: Column | int, otherwise: Column | int) -> Column:
        from pyspark.sql import functions as F

        return F.when(condition, then).otherwise(otherwise)


COLUMNS: Arithmetic = _Columns()


def window_range(window: Hopping, shape: str) -> tuple[Column, Column]:
    """The numbers of the first and the last window an event lies in, by the rule of the grid."""
    from pyspark.sql import functions as F

    return rule.window_range(window, F.col(LE), None if shape == POINT else F.col(RE), COLUMNS)


def grid_index(x: Column, shift: int, hop: int) -> Column:
    """``floor((x - shift) / hop)``, by the rule of the grid."""
    index: Column = rule.grid_index(x, shift, hop, COLUMNS)
    return index


def grid_instant(index: Column, shift: int, hop: int) -> Column:
    """``shift + index * hop``, kept on the axis."""
    from pyspark.sql import functions as F

    # before 0 by the next number: the product is on the axis if the instant is
    whole, part = divmod(shift, hop)
    number = index + F.lit(whole).cast("bigint")
    before = number < 0
    product = F.try_multiply(number + F.when(before, 1).otherwise(0), F.lit(hop).cast("bigint"))
    rest = F.when(before, F.lit(part - hop)).otherwise(F.lit(part)).cast("bigint")
    return F.coalesce(F.try_add(product, rest), F.when(before, F.lit(MINUS_INFINITY)).otherwise(F.lit(INFINITY)))


def window_lifetime(window: Hopping) -> tuple[Column, Column]:
    """LE and RE of window ``__i``, kept on the axis."""
    from pyspark.sql import functions as F

    start, end = (grid_instant(F.col(INDEX), at, window.hop) for at in (window.offset, window.offset + window.size))
    return start.alias(LE), end.alias(RE)


def bounded(
    df: DataFrame,
    inputs: Sequence[Node],
    run: BatchRun,
    over: DataFrame | None = None,
    bound: Bound = Bound.ENDLESS,
) -> DataFrame:
    """The input with ``__until``, before which windows and pieces must start (docs/concepts.md, "Windows").

    The caller's bound, or else that of the endpoints of all groups (of ``over``, else of the input) and of how far ``inputs``
    have come.
    """
    from pyspark.sql import functions as F

    if run.until is not None:
        return df.withColumn("__until", F.lit(run.until))
    events = over if over is not None else df
    ends = events.agg(F.max(endpoint(F.col(LE), F.col(RE), COLUMNS)).alias("__end"), F.max(RE).alias("__greatest"))
    come, last = reach(inputs, run), F.col("__end")
    if come is not None:
        ends, last = ends.crossJoin(F.broadcast(come)), F.greatest("__end", REACH)
    until = limit(bound, last, F.col("__greatest") == INFINITY, COLUMNS)
    return df.crossJoin(F.broadcast(ends.select(until.alias("__until"))))


def _last(window: Hopping) -> Column:
    """The last window that starts before ``__until``."""
    from pyspark.sql import functions as F

    last: Column = rule.last_starting_before(window, F.col("__until"), COLUMNS)
    return last


def members(node: Node, df: DataFrame, window: Hopping, run: BatchRun) -> DataFrame:
    """The input's events with ``__lo`` and ``__hi``, the range of windows to report them in; those in gaps are gone."""
    from pyspark.sql import functions as F

    low, high = window_range(window, node.schema.shape)
    if not node.traits.infinite and run.until is None:
        df = df.withColumns({LO: low, HI: high})
        return df if window.hop <= window.size else df.where(F.col(LO) <= F.col(HI))
    df = df if "__until" in df.columns else bounded(df, [node], run).withColumn("__bound", F.lit(True))
    df = df.withColumns({LO: low, HI: F.least(high, _last(window))}).where(F.col(LO) <= F.col(HI))
    return df.drop("__until", "__bound") if "__bound" in df.columns else df


def windows_of(df: DataFrame, window: Hopping) -> DataFrame:
    """Events with lifetimes and ``__until``, a copy for each window they lie in, with its number ``__i``."""
    from pyspark.sql import functions as F

    low, high = window_range(window, INTERVAL)
    df = df.withColumns({LO: low, HI: F.least(high, _last(window))}).where(F.col(LO) <= F.col(HI))
    return df.withColumn(INDEX, F.explode(F.sequence(F.col(LO), F.col(HI)))).drop(LO, HI)


def in_windows(node: Node, df: DataFrame, window: Hopping, run: BatchRun) -> DataFrame:
    """The input's events, one copy for each window they lie in, with its number ``__i``."""
    from pyspark.sql import functions as F

    df = members(node, df, window, run)
    one = node.schema.shape == POINT and window.n == 1
    return df.withColumn(INDEX, F.col(LO) if one else F.explode(F.sequence(F.col(LO), F.col(HI))))


def grid(size: Duration, hop: Duration, offset: Duration, axis: str, verb: str) -> Hopping:
    """A window grid in ticks; raises TimeError for a size or hop that is not positive or does not fit the axis."""
    for name, duration in (("size", size), ("hop", hop)):
        if ticks(duration, axis, verb) <= 0:
            raise TimeError(sentence(verb, f"{name} must be positive", f"found {duration!r}"))
    return Hopping(ticks(size, axis, verb), ticks(hop, axis, verb), ticks(offset, axis, verb))
