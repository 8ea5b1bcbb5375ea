"""Grids of windows in batch: which windows an event lies in, where a window lies, and where windows without number end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamq.errors import TimeError, sentence
from streamq.plan.lowering import floor_div
from streamq.plan.node import Node
from streamq.plan.schema import INTERVAL, POINT
from streamq.runtime.event import LE, RE
from streamq.time import INFINITY, MINUS_INFINITY, Duration, ticks
from streamq.windows import Hopping

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streamq.operators.batch_run import BatchRun

INDEX, LO, HI, COUNT = "__i", "__lo", "__hi", "__n"
"""A window's number, the range of windows an event or partial result lies in, and the events behind it."""


def window_range(window: Hopping, shape: str) -> tuple[Column, Column]:
    """The numbers of the first and the last window an event lies in; INFINITY for one that never ends.

    The first is the first that ends after LE, the last the last that starts before RE; the range is empty only for an
    event in a gap between windows.
    """
    from pyspark.sql import functions as F

    le = F.col(LE)
    low = grid_index(le, window.offset + window.size, window.hop) + 1
    if shape == POINT:
        return low, grid_index(le, window.offset, window.hop)
    re = F.col(RE)
    return low, F.when(re == INFINITY, F.lit(INFINITY)).otherwise(grid_index(re - 1, window.offset, window.hop))


def grid_index(x: Column, shift: int, hop: int) -> Column:
    """``floor((x - shift) / hop)`` without forming ``x - shift``, which could overflow at the ends of the axis."""
    from pyspark.sql import functions as F

    whole, part = divmod(shift, hop)
    below = F.when(F.pmod(x, F.lit(hop).cast("bigint")) < part, 1).otherwise(0) if part else F.lit(0)
    return floor_div(x, hop) - F.lit(whole).cast("bigint") - below


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
    df: DataFrame, inputs: Sequence[Node], run: BatchRun, over: DataFrame | None = None, always: bool = False
) -> DataFrame:
    """The input with ``__until``, before which windows and pieces must start (SEMANTICS section 3, infinite lifetimes).

    The caller's bound, or else, if any lifetime (of ``over``, else of the input) is infinite, the greatest finite endpoint of
    all groups, or how far ``inputs`` have come, if that is further; else there is none. ``always``: one tick after that,
    whatever there is.
    """
    from pyspark.sql import functions as F

    from streamq.operators.reach import REACH, reach

    if run.until is not None:
        return df.withColumn("__until", F.lit(run.until))
    endpoint = F.when(F.col(RE) == INFINITY, F.col(LE)).otherwise(F.col(RE))
    events = over if over is not None else df
    ends, come = events.agg(F.max(endpoint).alias("__end"), F.max(RE).alias("__greatest")), reach(inputs, run)
    last = F.col("__end")
    if come is not None:
        ends, last = ends.crossJoin(F.broadcast(come)), F.greatest("__end", REACH)
    until = last + 1 if always else F.when(F.col("__greatest") == INFINITY, last).otherwise(F.lit(INFINITY))
    return df.crossJoin(F.broadcast(ends.select(until.alias("__until"))))


def _last(window: Hopping) -> Column:
    """The last window that starts before ``__until``."""
    from pyspark.sql import functions as F

    until = F.col("__until")
    return F.when(until == INFINITY, F.lit(INFINITY)).otherwise(grid_index(until - 1, window.offset, window.hop))


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
    for name, given in (("size", size), ("hop", hop)):
        if ticks(given, axis, verb) <= 0:
            raise TimeError(sentence(verb, f"{name} must be positive", f"found {given!r}"))
    return Hopping(ticks(size, axis, verb), ticks(hop, axis, verb), ticks(offset, axis, verb))
