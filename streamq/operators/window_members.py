"""Windows of every kind in batch: each event copied into the windows of its group that it is in, with their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from streamq.choices import Stamp
from streamq.operators.grid import INDEX, bounded, grid_index, grid_instant, in_windows, window_lifetime
from streamq.plan.lowering import floor_div, lifetime, moved
from streamq.plan.node import Node
from streamq.plan.schema import Schema, quote
from streamq.runtime.endpoints import Bound
from streamq.runtime.event import LE, RE
from streamq.time import INFINITY
from streamq.windows import Count, Hopping, Landmark, Rows, Session, Snapshot, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

    from streamq.operators.operator import BatchRun

NUMBER, STARTS, ENDS = "__window", "__wle", "__wre"
"""A window's number in its group, its start and its end."""


@dataclass(frozen=True)
class MemberWindows:
    """Windows over the events of ``input``, a group of ``keys`` each; ``reads_bounds``: a result needs to know their interval."""

    input: Node
    keys: tuple[str, ...]
    window: Window
    reads_bounds: bool


def window_members(windows: MemberWindows, df: DataFrame, run: BatchRun) -> tuple[DataFrame, list[str]]:
    """A row a member and window, and the columns that tell the windows of a group apart: ``__wle``, ``__wre`` among them.

    Hopping windows whose interval nobody reads are told apart by their number ``__i`` alone.
    """
    window, source = windows.window, windows.input.schema
    payload = [quote(n) for n in source.names]
    keys = [quote(k) for k in windows.keys]
    if not isinstance(window, Hopping):
        df = df.select(*lifetime(source), *payload)
    match window:
        case Hopping():
            df = in_windows(windows.input, df, window, run)
            if not windows.reads_bounds:
                return df, [INDEX]
            start, end = window_lifetime(window)
            return df.withColumns({STARTS: start, ENDS: end}), [STARTS, ENDS]
        case Snapshot():
            return _ranged(df, keys, *_snapshots(df, keys)), [STARTS, ENDS]
        case Count(n=n, by=by):
            return _counted(df, keys, n, LE if by == "start" else RE), [STARTS, ENDS]
        case Rows(n=n, step=step, order_by=order_by):
            rest = [n for n in source.names if n not in order_by]
            order = Over.partitionBy(*keys).orderBy(LE, *(quote(n) for n in (*order_by, *rest)), RE)
            return _in_rows(df, keys, n, step, order), [NUMBER, STARTS, ENDS]
        case Session(gap=gap):
            return _in_sessions(df, keys, gap), [STARTS, ENDS]
        case Landmark():
            return _since_landmarks(bounded(df, [windows.input], run, bound=Bound.ALWAYS), window), [STARTS, ENDS]


def stamped(df: DataFrame, stamp: str, schema: Schema) -> DataFrame:
    """Result rows with ``__wle`` and ``__wre`` on their window, or at its end."""
    columns = [quote(f.name) for f in schema.fields]
    start, end = F.col(STARTS), F.col(ENDS)
    if stamp == Stamp.POINT_AT_END:
        return df.where(end < INFINITY).select(end.alias(LE), (end + 1).alias(RE), *columns)
    return df.select(start.alias(LE), end.alias(RE), *columns)


def same_keys(left: DataFrame, right: DataFrame, keys: list[str], names: list[str]) -> tuple[DataFrame, Column]:
    """``right`` with its keys under other names, and the condition that keys agree, NULL with NULL."""
    renamed = right.select(*(F.col(k).alias(f"__key{i}") for i, k in enumerate(keys)), *names)
    on = F.lit(True)
    for i, k in enumerate(keys):
        on = on & F.col(k).eqNullSafe(F.col(f"__key{i}"))
    return renamed, on


def snapshot_windows(df: DataFrame, keys: list[str]) -> DataFrame:
    """The windows between consecutive endpoints of each group: keys, ``__window``, ``__wle``, ``__wre``."""
    ends = df.select(*keys, F.explode(F.array(LE, RE)).alias(STARTS)).distinct()
    order = Over.partitionBy(*keys).orderBy(STARTS)
    return ends.withColumns({NUMBER: F.row_number().over(order).cast("bigint"), ENDS: F.lead(STARTS).over(order)})


def _snapshots(df: DataFrame, keys: list[str]) -> tuple[DataFrame, DataFrame]:
    """Events with the range ``__lo .. __hi`` of their windows, and the windows."""
    windows = snapshot_windows(df, keys)
    return numbered(df, windows, keys), windows


def numbered(df: DataFrame, windows: DataFrame, keys: list[str]) -> DataFrame:
    """Events with ``__lo`` and ``__hi``: the window that starts where they do, and the one before that which starts at RE."""
    for at, name, back in ((LE, "__lo", 0), (RE, "__hi", 1)):
        starts, on = same_keys(df, windows, keys, [STARTS, NUMBER])
        starts = starts.withColumnsRenamed({STARTS: "__at", NUMBER: "__number"})
        df = df.join(starts, on & (F.col(at) == F.col("__at"))).withColumn(name, F.col("__number") - back)
        df = df.drop("__at", "__number", *(f"__key{i}" for i in range(len(keys))))
    return df


def _ranged(df: DataFrame, keys: list[str], events: DataFrame, windows: DataFrame) -> DataFrame:
    """Events copied into windows ``__lo .. __hi``, beside the windows' intervals."""
    copies = events.withColumn("__number", F.explode(F.sequence("__lo", "__hi"))).drop("__lo", "__hi")
    intervals, on = same_keys(copies, windows, keys, [NUMBER, STARTS, ENDS])
    members = copies.join(intervals, on & (F.col("__number") == F.col(NUMBER)))
    return members.drop("__number", *(f"__key{i}" for i in range(len(keys))))


def _counted(df: DataFrame, keys: list[str], n: int, at: str) -> DataFrame:
    df = df.where(F.col(at) < INFINITY).withColumn("__at", F.col(at))
    order = Over.partitionBy(*keys).orderBy("__at")
    instants = df.select(*keys, "__at").distinct()
    last = F.lead("__at", n - 1).over(order) + 1
    windows = instants.withColumns(
        {NUMBER: F.row_number().over(order).cast("bigint"), STARTS: F.col("__at"), ENDS: last}
    )
    windows = windows.where(F.col(ENDS).isNotNull())
    place = F.dense_rank().over(order).cast("bigint")
    events = df.withColumn("__place", place).drop("__at")
    events = events.withColumns({"__lo": F.greatest(F.lit(1), F.col("__place") - (n - 1)), "__hi": F.col("__place")})
    return _ranged(df, keys, events.drop("__place"), windows)


def _in_rows(df: DataFrame, keys: list[str], n: int, step: int, order: WindowSpec) -> DataFrame:
    last = F.lead(LE, n - 1).over(order) + 1
    rows = df.withColumns({"__place": F.row_number().over(order).cast("bigint") - 1, ENDS: last})
    windows = rows.where((F.col("__place") % step == 0) & F.col(ENDS).isNotNull())
    windows = windows.select(
        *keys, (F.col("__place") / step).cast("bigint").alias(NUMBER), F.col(LE).alias(STARTS), ENDS
    )
    low = F.greatest(F.lit(0), F.ceil((F.col("__place") - (n - 1)) / step)).cast("bigint")
    high = F.floor(F.col("__place") / step).cast("bigint")
    events = rows.withColumns({"__lo": low, "__hi": high}).drop("__place", ENDS).where("__lo <= __hi")
    return _ranged(df, keys, events, windows)


def _in_sessions(df: DataFrame, keys: list[str], gap: int) -> DataFrame:
    order = Over.partitionBy(*keys).orderBy(LE)
    before = F.max(RE).over(order.rangeBetween(Over.unboundedPreceding, -1))

    def till(re: Column) -> Column:
        end = F.coalesce(F.try_add(re, F.lit(gap - 1)), F.lit(INFINITY))
        return F.when(re == INFINITY, F.lit(INFINITY)).otherwise(end)

    new = F.when(before.isNull() | (F.col(LE) >= till(before)), F.col(LE))
    df = df.withColumn("__new", new)
    df = df.withColumn(STARTS, F.max("__new").over(order.rangeBetween(Over.unboundedPreceding, Over.currentRow)))
    last = F.max(RE).over(Over.partitionBy(*keys, STARTS))
    return df.withColumn(ENDS, till(last)).drop("__new")


def _since_landmarks(df: DataFrame, window: Landmark) -> DataFrame:
    hop, at, period = window.hop, window.start, window.period
    until = F.col("__until")
    if period is None:
        df = df.where((F.col(RE) > at) & (F.lit(at) < until)).withColumn("__mark", F.lit(at).cast("bigint"))
        cut, most = F.lit(INFINITY), F.lit(INFINITY)
    else:
        low, high = grid_index(F.col(LE), at, period), grid_index(F.least(F.col(RE), until) - 1, at, period)
        df = df.withColumns({"__lo": low, "__hi": high}).where("__lo <= __hi")
        df = df.withColumn("__mark", F.explode(F.sequence("__lo", "__hi"))).drop("__lo", "__hi")
        df = df.withColumn("__mark", grid_instant(F.col("__mark"), at, period))
        cut, most = moved(F.col("__mark"), period), F.lit(-(-period // hop)).cast("bigint")
    mark = F.col("__mark")
    # what is longer than the axis is cut there
    beyond = F.lit(INFINITY - 1)
    low = floor_div(F.greatest(F.coalesce(F.try_subtract(F.col(LE), mark), beyond), F.lit(0)), hop) + 1
    high = F.least(most, floor_div(F.coalesce(F.try_subtract(until - 1, mark), beyond), hop) + 1)
    df = df.withColumns({"__lo": low, "__hi": high}).where("__lo <= __hi")
    df = df.withColumn("__j", F.explode(F.sequence("__lo", "__hi")))
    end = F.coalesce(F.try_add(mark + (F.col("__j") - 1) * hop, F.lit(hop)), F.lit(INFINITY))
    df = df.withColumns({STARTS: mark, ENDS: F.least(end, cut)})
    return df.drop("__mark", "__lo", "__hi", "__j", "__until")
