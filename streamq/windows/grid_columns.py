"""Grids of windows as Spark columns: the windows that an event lies in, and the interval of a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamq.grid import Grid
from streamq.plan.schema import INTERVAL, POINT
from streamq.runtime import grid_ranges as rule
from streamq.runtime.endpoints import Bound
from streamq.runtime.event import LE, RE
from streamq.time import FIRST_INSTANT, INFINITY
from streamq.windows.batch_events import UNTIL, BatchEvents
from streamq.windows.tick_sql import SQL, TickSql, sql_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

INDEX, LO, HI, COUNT = "__i", "__lo", "__hi", "__n"
"""The columns with a window's number, the range of windows of an event or partial result, and its number of events."""


def window_range_columns(grid: Grid, shape: str) -> tuple[Column, Column]:
    """Return the numbers of the first and the last window that an event lies in, by the rule of the grid."""
    low, high = rule.window_range(grid, TickSql(LE), None if shape == POINT else TickSql(RE), SQL)
    return low.column, high.column


def grid_index_column(x: TickSql, shift: int, hop: int) -> Column:
    """Return ``floor((x - shift) / hop)``, by the rule of the grid."""
    index: Column = rule.grid_index(x, shift, hop, SQL).column
    return index


def grid_instant(index: TickSql, shift: int, hop: int) -> TickSql:
    """Return ``shift + index * hop``, kept on the axis."""
    # for negative numbers multiply the next number, so that the product is on the axis if the instant is
    whole, part = divmod(shift, hop)
    number = index + whole
    before = number < 0
    product = f"try_multiply({(number + SQL.choose(before, 1, 0)).text}, {sql_of(hop)})"
    rest, end = SQL.choose(before, part - hop, part), SQL.choose(before, FIRST_INSTANT, INFINITY)
    instant = f"coalesce(try_add({product}, {rest.text}), {end.text})"
    return TickSql(f"greatest({instant}, {sql_of(FIRST_INSTANT)})")


def window_bounds(grid: Grid) -> tuple[str, str]:
    """Return start and end of window ``__i`` as SQL, kept on the axis."""
    start, end = (grid_instant(TickSql(INDEX), at, grid.hop).text for at in (grid.offset, grid.offset + grid.size))
    return start, end


def window_lifetime(grid: Grid) -> tuple[Column, Column]:
    """Return LE and RE of window ``__i``, kept on the axis."""
    from pyspark.sql import functions as F

    start, end = window_bounds(grid)
    return F.expr(start).alias(LE), F.expr(end).alias(RE)


def _last(grid: Grid, until: str = UNTIL) -> Column:
    """Return the number of the last window that starts before an instant, as SQL; by default the column UNTIL."""
    last: Column = rule.last_starting_before(grid, TickSql(until), SQL).column
    return last


def grid_members(events: BatchEvents, grid: Grid, *, whole: bool = False) -> DataFrame:
    """Add ``__lo`` and ``__hi`` to events, their range of windows; events in gaps are dropped.

    If there is a bound, windows start before it. ``whole``: ranges are not cut there, only dropped if no window is left, and the
    windows are left out later, by :func:`starting_before`. So the range of a point still follows from its last window.
    """
    from pyspark.sql import functions as F

    df = events.df
    low, high = window_range_columns(grid, events.schema.shape)
    if not events.is_bounded:
        df = df.withColumns({LO: low, HI: high})
        return df if grid.hop <= grid.size else df.where(F.col(LO) <= F.col(HI))
    df = events.bounded(df, Bound.ENDLESS)
    last = F.least(high, _last(grid))
    df = df.withColumns({LO: low, HI: high if whole else last}).where(F.col(LO) <= last)
    return df.drop(UNTIL)


def starting_before(windows: DataFrame, grid: Grid, until: int | None) -> DataFrame:
    """Return the rows of windows, which have their numbers, that start before an instant; all for None."""
    from pyspark.sql import functions as F

    return windows if until is None else windows.where(F.col(INDEX) <= _last(grid, sql_of(until)))


def windows_of(df: DataFrame, grid: Grid) -> DataFrame:
    """Copy events, which have lifetimes and UNTIL, into each window that they lie in and that starts before UNTIL.

    The number of the window is added as ``__i``.
    """
    from pyspark.sql import functions as F

    low, high = window_range_columns(grid, INTERVAL)
    df = df.withColumns({LO: low, HI: F.least(high, _last(grid))}).where(F.col(LO) <= F.col(HI))
    return df.withColumn(INDEX, F.explode(F.sequence(F.col(LO), F.col(HI)))).drop(LO, HI)


def in_windows(events: BatchEvents, grid: Grid) -> DataFrame:
    """Copy events into each window that they lie in, and add its number ``__i``; ``__lo`` and ``__hi`` stay.

    If there is a bound, windows start before it.
    """
    from pyspark.sql import functions as F

    one = events.schema.shape == POINT and grid.n == 1
    if one and not events.is_bounded and grid.hop <= grid.size:
        # each step of a DataFrame is analyzed by Spark, which takes longer than a small job
        low, high = window_range_columns(grid, events.schema.shape)
        return events.df.withColumns({LO: low, HI: high, INDEX: low})
    df = grid_members(events, grid)
    return df.withColumn(INDEX, F.col(LO) if one else F.explode(F.sequence(F.col(LO), F.col(HI))))


__all__ = [
    "COUNT",
    "HI",
    "INDEX",
    "LO",
    "grid_index_column",
    "grid_instant",
    "window_bounds",
    "in_windows",
    "grid_members",
    "starting_before",
    "window_lifetime",
    "windows_of",
]
