"""Windows in batch: each event is copied into the windows of its group that it is a member of, with their intervals.

Grids of windows are Spark columns: the windows that an event lies in, and the interval of a window. Instants and window numbers
are computed by SQL text, which Spark reads in one call, where Columns take one for each sign.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamq.choices import Stamp
from streamq.plan.lowering import lifetime
from streamq.plan.schema import INTERVAL, POINT, Schema, quote
from streamq.runtime import grid_ranges as rule
from streamq.runtime.deltas import LE, RE
from streamq.runtime.time.endpoints import Bound
from streamq.runtime.time.progress_rule import Arithmetic
from streamq.time import FIRST_INSTANT, INFINITY, Grid

STARTS, ENDS = "__wle", "__wre"
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


@dataclass(frozen=True, eq=False)
class TickSql:
    """A bigint or a condition as SQL text that can stand as an operand: a column, a call, CASE, or brackets."""

    text: str

    @property
    def column(self) -> Column:

        return F.expr(self.text)

    def __add__(self, other: TickSql | int) -> TickSql:
        return TickSql(f"({self.text} + {sql_of(other)})")

    def __sub__(self, other: TickSql | int) -> TickSql:
        return TickSql(f"({self.text} - {sql_of(other)})")

    def __mul__(self, other: TickSql | int) -> TickSql:
        return TickSql(f"({self.text} * {sql_of(other)})")

    def __lt__(self, other: TickSql | int) -> TickSql:
        return TickSql(f"({self.text} < {sql_of(other)})")

    def __eq__(self, other: object) -> Any:
        return TickSql(f"({self.text} = {sql_of(other)})")


def sql_of(value: Any) -> str:
    """Return SQL of a bigint, which may be an integer."""
    if isinstance(value, TickSql):
        return value.text
    # the least bigint is no literal
    return f"{value}L" if value >= 0 else f"cast('{value}' as bigint)"


class _Sql:
    """Arithmetic of SQL text."""

    def quotient(self, x: TickSql, by: int) -> TickSql:
        """Return ``floor(x / by)``; that of Spark would go through doubles, and ``div`` goes towards zero."""
        return TickSql(f"({x.text} div {by}L - CASE WHEN {x.text} % {by}L < 0 THEN 1 ELSE 0 END)")

    def remainder(self, x: TickSql, by: int) -> TickSql:
        return TickSql(f"pmod({x.text}, {by}L)")

    def choose(self, condition: TickSql, then: TickSql | int, otherwise: TickSql | int) -> TickSql:
        return TickSql(f"CASE WHEN {condition.text} THEN {sql_of(then)} ELSE {sql_of(otherwise)} END")

    def moved(self, x: TickSql, by: int) -> TickSql:
        """Return the moved instant; ``x`` must not be NULL, which would become an end of the axis."""
        if by == 0:
            return x
        total = f"try_add({x.text}, {sql_of(by)})"
        on_axis = TickSql(f"coalesce({total}, {sql_of(INFINITY)})") if by > 0 else _not_before_axis(total)
        return self.choose(x == INFINITY, INFINITY, on_axis)

    def floor(self, x: TickSql, by: int) -> TickSql:
        multiple = _not_before_axis(f"try_subtract({x.text}, {self.remainder(x, by).text})")
        return TickSql(f"CASE WHEN {x.text} IS NOT NULL THEN {multiple.text} END")


def _not_before_axis(total: str) -> TickSql:
    """Return a sum that may lie before the axis, kept on it; NULL, which stands for an overflow, is the least instant."""
    return TickSql(f"greatest({total}, {sql_of(FIRST_INSTANT)})")


SQL: Arithmetic = _Sql()


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

    return windows if until is None else windows.where(F.col(INDEX) <= _last(grid, sql_of(until)))


def windows_of(df: DataFrame, grid: Grid) -> DataFrame:
    """Copy events, which have lifetimes and UNTIL, into each window that they lie in and that starts before UNTIL.

    The number of the window is added as ``__i``.
    """

    low, high = window_range_columns(grid, INTERVAL)
    df = df.withColumns({LO: low, HI: F.least(high, _last(grid))}).where(F.col(LO) <= F.col(HI))
    return df.withColumn(INDEX, F.explode(F.sequence(F.col(LO), F.col(HI)))).drop(LO, HI)


def in_windows(events: BatchEvents, grid: Grid) -> DataFrame:
    """Copy events into each window that they lie in, and add its number ``__i``; ``__lo`` and ``__hi`` stay.

    If there is a bound, windows start before it.
    """

    one = events.schema.shape == POINT and grid.n == 1
    if one and not events.is_bounded and grid.hop <= grid.size:
        # each step of a DataFrame is analyzed by Spark, which takes longer than a small job
        low, high = window_range_columns(grid, events.schema.shape)
        return events.df.withColumns({LO: low, HI: high, INDEX: low})
    df = grid_members(events, grid)
    return df.withColumn(INDEX, F.col(LO) if one else F.explode(F.sequence(F.col(LO), F.col(HI))))
