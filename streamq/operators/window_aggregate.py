"""WindowAggregate: one row a window with members, on the window's interval, holding aggregates over its members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from streamq.errors import TimeError, TypeMismatch, sentence
from streamq.plan.expr import Aggregate, Case, Lit, show
from streamq.plan.lowering import floor_div, instant, lifetime, spark_expression
from streamq.plan.node import Node, Traits, node
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, avg_type, infer, is_numeric, quote, sum_type
from streamq.runtime.event import LE, RE
from streamq.time import INFINITY, MINUS_INFINITY, Duration, show_duration, show_ticks, ticks
from streamq.windows import (
    ALIGN,
    POINT_AT_END,
    Count,
    Hopping,
    Landmark,
    Rows,
    Session,
    Snapshot,
    Window,
    default_stamp,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streamq.compiler.batch import Batch

INDEX, LO, HI, COUNT = "__i", "__lo", "__hi", "__n"
"""A window's number, the range of windows an event or partial result lies in, and the events behind it."""

AGGREGATES: dict[str, str] = {
    "count": "count", "sum": "sum", "avg": "avg", "min": "min", "max": "max",
    "var": "var_samp", "var_pop": "var_pop", "stddev": "stddev_samp", "stddev_pop": "stddev_pop",
}  # fmt: skip
"""streamq's aggregates and Spark's names for them."""


@node
class WindowAggregate(Node):
    """The members of each window, per group of ``keys``, reduced to ``aggregates`` (SEMANTICS section 3).

    CTI: hopping: start of the earliest window not final; snapshot: c, under a time-sensitive aggregate the start of the
        earliest window not final; count: the (n-1)-th greatest instant below c; rows: start of the first row of the earliest
        incomplete window; session: the least start of a session not final; landmark: the last landmark at or before c; at
        point_at_end c
    Final: hopping, count, rows, session, landmark: windows that end at or before c; snapshot: windows that end before c;
        time-sensitive: where a time-sensitive aggregate reads ends that are not clipped, once their members are settled
    State: hopping: members of windows not final; snapshot: events not settled, and those alive since the endpoint before c;
        count, rows: events of windows not final, or still to come; session: events of sessions not final; landmark: events
        since the landmark before c
    Cost: O(n log n) in events and windows not final: what is computed of an event is merged over the range of its windows;
        collect and time_weighted_avg have a copy of each member in each of its windows, in a batch all windows but snapshots
        and those of partial results have; mergeable: where all aggregates merge, partial results are made before the shuffle
        (MergePartials)
    """

    input: Node
    keys: tuple[str, ...]
    window: Window
    aggregates: tuple[tuple[str, Aggregate], ...]
    clip: str = "full"
    stamp: str = ALIGN

    cases = ("hopping", "snapshot", "count", "rows", "session", "landmark", "time-sensitive", "mergeable")

    @property
    def case(self) -> tuple[str, ...]:
        # what is cut at the window's end does not wait for the end of a member, unless its start alone made it one
        starts = isinstance(self.window, Rows) or (isinstance(self.window, Count) and self.window.by == "start")
        waits = starts or self.clip not in ("full", "right")
        sensitive = waits and any(a.name == TIME_SENSITIVE for _, a in self.aggregates)
        found = {self.window.name: True, "mergeable": is_grid(self), "time-sensitive": sensitive}
        return tuple(name for name, holds in found.items() if holds)

    @property
    def title(self) -> str:
        return self.window.name

    @property
    def progress(self) -> str:
        return window_progress(self.window, self.stamp, any(a.name == TIME_SENSITIVE for _, a in self.aggregates))

    def _schema(self) -> Schema:
        source = self.input.schema
        for key in self.keys:
            check_key(source.require(key, "group_by"), key)
        if isinstance(self.window, Rows):
            for name in self.window.order_by:
                check_key(source.require(name, "rows_window"), name, "rows_window", "order")
        fields = [Field(k, source.type_of(k)) for k in self.keys]
        fields += [Field(name, aggregate_type(a, source)) for name, a in self.aggregates]
        return source.with_fields(fields).with_shape(POINT if self.stamp == POINT_AT_END else INTERVAL)

    def _traits(self) -> Traits:
        return window_traits(self.window, self.stamp, self.input.traits)

    def detail(self) -> str:
        shown = ", ".join(f"{name} = {show(a)}" for name, a in self.aggregates)
        policies = show_policies(self.window, self.clip, self.stamp)
        return f"{show_window(self.window, self.schema.axis)}{policies}{show_keys(self.keys)}: {shown}"


OTHERS = {"count_distinct": "count_distinct", "covar": "covar_samp", "covar_pop": "covar_pop", "corr": "corr"}
"""Further ones that Spark has under some name."""

EXACT_MEAN = 11
"""The most digits of a decimal whose mean is that of its sum and count: beyond, Spark's quotient of those has fewer digits
than the mean, or so few more that it could be rounded twice."""

IN_ORDER = frozenset(("first", "last", "collect"))
"""Aggregates that take members in the order of (LE, payload, RE)."""

TIME_SENSITIVE = "time_weighted_avg"
"""The built-in aggregate that reads its members' (clipped) lifetimes."""

COPYING = frozenset(("collect", TIME_SENSITIVE))
"""Aggregates for which each member is copied into each of its windows: one hands them on, one reads them cut to it."""


def is_grid(node: WindowAggregate) -> bool:
    """Whether it is made of partial results of basic windows."""
    plain = isinstance(node.window, Hopping) and node.stamp == ALIGN
    return plain and all(splits(a, node.input.schema) for _, a in node.aggregates)


def splits(aggregate: Aggregate, schema: Schema) -> bool:
    """Whether an aggregate over a stream is made of partial results."""
    if aggregate.name != "avg":
        return aggregate.name in AGGREGATES
    kind = infer(aggregate.args[0], schema, "avg")
    return not isinstance(kind, t.DecimalType) or kind.precision <= EXACT_MEAN


def filtered(aggregate: Aggregate) -> Aggregate:
    """A filtered aggregate as one over values that are NULL where the filter is not true; first and last keep theirs."""
    if aggregate.where is None or aggregate.name in ("first", "last"):
        return aggregate
    value = aggregate.args[0] if aggregate.args else Lit(1)
    args = (Case((aggregate.where, value, Lit(None))), *aggregate.args[1:])
    return Aggregate(aggregate.name, args, None, aggregate.options)


def window_traits(window: Window, stamp: str, source: Traits) -> Traits:
    """Rows of a grid are made once their window is there; the others' bounds move with the events that define them."""
    if isinstance(window, Hopping):
        return Traits()
    moves = stamp == ALIGN and not isinstance(window, Rows)
    return Traits(False, False, moves and source.infinite and isinstance(window, Snapshot | Session))


def window_progress(window: Window, stamp: str, time_sensitive: bool) -> str:
    """The CTI rule of a window operator (the table of SEMANTICS section 6)."""
    match window:
        case _ if stamp == POINT_AT_END:
            return "c"
        case Snapshot():
            return "start of the earliest window not final" if time_sensitive else "c"
        case Hopping():
            return "start of the earliest window not final"
        case Count():
            return "the (n-1)-th greatest instant below c, the least if there are fewer, at most c"
        case Rows():
            return "the start of the first row of the earliest incomplete window; none: c"
        case Session():
            return "the least start of a session not final; none: c"
    return "the landmark of the earliest window not final; none: c"


def show_window(window: Window, axis: str) -> str:
    """``size=1 hour, hop=5 minutes``."""
    match window:
        case Snapshot():
            return "every change"
        case Count(n=n, by=by):
            return f"{n} {by}s"
        case Rows(n=n, step=step, order_by=order_by):
            return f"{n} rows, step={step}" + (f", order_by={', '.join(order_by)}" if order_by else "")
        case Session(gap=gap):
            return f"gap={show_duration(gap, axis)}"
        case Landmark(hop=hop, start=start, period=period):
            shown = f"hop={show_duration(hop, axis)}, start={show_ticks(start, axis)}"
            return shown + (f", period={show_duration(period, axis)}" if period is not None else "")
    shown = f"size={show_duration(window.size, axis)}, hop={show_duration(window.hop, axis)}"
    return shown + (f", offset={show_duration(window.offset, axis)}" if window.offset else "")


def show_policies(window: Window, clip: str, stamp: str) -> str:
    """``, clip=left, stamp=align``: what is not the default."""
    shown = "" if clip == "full" else f", clip={clip}"
    return shown + ("" if stamp == default_stamp(window) else f", stamp={stamp}")


def show_keys(keys: tuple[str, ...]) -> str:
    """`` by zone, kind`` or nothing."""
    return f" by {', '.join(keys)}" if keys else ""


def check_key(kind: t.DataType, name: str, verb: str = "group_by", use: str = "group") -> None:
    """Raise where rows can't be grouped (or ordered, or matched) by a column of the type: of maps, inside others too."""
    if not has_equality(kind):
        hint = f"{use.capitalize()} by columns without maps: sq.functions.map_entries makes an array of one."
        if _untyped(kind):
            hint = "Say its type where the stream is made: sq.events(..., schema=), a column of a typed Arrow table."
        elif not isinstance(kind, t.MapType):
            hint = "Choose another column, or parts of it."
        raise TypeMismatch(sentence(verb, f"cannot {use} by column {name!r}", f"found {kind.simpleString()}", hint))


def _untyped(kind: t.DataType) -> bool:
    """Whether it has a part of which no value told the type."""
    match kind:
        case t.ArrayType(elementType=of):
            return _untyped(of)
        case t.StructType(fields=fields):
            return any(_untyped(f.dataType) for f in fields)
    return isinstance(kind, t.NullType)


def has_equality(kind: t.DataType) -> bool:
    """Whether Spark groups, joins and orders by values of the type."""
    match kind:
        case t.ArrayType(elementType=of):
            return has_equality(of)
        case t.StructType(fields=fields):
            return all(has_equality(f.dataType) for f in fields)
    return not isinstance(kind, t.MapType | t.VariantType | t.NullType)


def aggregate_type(aggregate: Aggregate, schema: Schema) -> t.DataType:
    """Spark's type of an aggregate over a stream; raises TypeMismatch for an argument it does not take."""
    verb = aggregate.name
    if aggregate.where is not None:
        condition = infer(aggregate.where, schema, verb)
        if not isinstance(condition, t.BooleanType | t.NullType):
            raise TypeMismatch(
                sentence(verb, "the filter is not boolean", f"found {condition.simpleString()} in {show(aggregate)}")
            )
    if verb in ("window_start", "window_end"):
        return schema.axis_type
    if not aggregate.args:
        return t.LongType()
    kind = infer(aggregate.args[0], schema, verb)
    if verb == "count_distinct":
        check_key(kind, show(aggregate.args[0]), verb, "group")
    if verb in ("count", "count_distinct"):
        return t.LongType()
    if verb in ("first", "last"):
        return kind
    if verb == "collect":
        return t.ArrayType(kind, False)
    if verb in ("min", "max"):
        if isinstance(kind, t.ArrayType | t.MapType | t.StructType | t.VariantType):
            raise TypeMismatch(sentence(verb, f"no order on {kind.simpleString()}", f"found {show(aggregate)}"))
        return kind
    if not is_numeric(kind):
        raise TypeMismatch(
            sentence(verb, "needs numbers", f"found {kind.simpleString()} in {show(aggregate)}", "Cast it.")
        )
    for other in aggregate.args[1:]:
        if not is_numeric(infer(other, schema, verb)):
            raise TypeMismatch(sentence(verb, "needs numbers", f"found {show(aggregate)}", "Cast it."))
    if verb == "sum":
        return sum_type(kind)
    return avg_type(kind) if verb == "avg" else t.DoubleType()


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
    df: DataFrame, inputs: Sequence[Node], run: Batch, over: DataFrame | None = None, always: bool = False
) -> DataFrame:
    """The input with ``__until``, before which windows and pieces must start (SEMANTICS section 3, infinite lifetimes).

    The caller's bound, or else, if any lifetime (of ``over``, else of the input) is infinite, the greatest finite endpoint of
    all groups, or how far ``inputs`` have come, if that is further; else there is none. ``always``: one tick after that,
    whatever there is.
    """
    from pyspark.sql import functions as F

    from streamq.compiler.reach import REACH, reach

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


def members(node: Node, df: DataFrame, window: Hopping, run: Batch) -> DataFrame:
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


def in_windows(node: Node, df: DataFrame, window: Hopping, run: Batch) -> DataFrame:
    """The input's events, one copy for each window they lie in, with its number ``__i``."""
    from pyspark.sql import functions as F

    df = members(node, df, window, run)
    one = node.schema.shape == POINT and window.n == 1
    return df.withColumn(INDEX, F.col(LO) if one else F.explode(F.sequence(F.col(LO), F.col(HI))))


def batch(node: WindowAggregate, inputs: list[DataFrame], run: Batch) -> DataFrame:
    """Snapshots of exact aggregates by a sweep, of mergeable ones by merging, of others by the evaluator of streams.

    Else every event is copied into its windows, and the copies are aggregated by Spark's own aggregates.
    """
    from streamq.compiler.snapshots import evaluated, snapshots
    from streamq.compiler.window_members import ENDS, STARTS, stamped, window_members

    if isinstance(node.window, Snapshot):
        if all(splits(a, node.input.schema) for _, a in node.aggregates):
            return stamped(snapshots(node, inputs[0]), node)
        if not any(a.name in COPYING for _, a in node.aggregates):
            return evaluated(node, inputs[0])
    df, by = window_members(node, inputs[0], run)
    source = node.input.schema
    made = [spark_aggregate(a, source, node.clip).alias(name) for name, a in node.aggregates]
    keys = [quote(k) for k in node.keys]
    grouped = df.groupBy(*keys, *by).agg(*made) if made else df.select(*keys, *by).distinct()
    if isinstance(node.window, Hopping) and STARTS not in by:
        start, end = window_lifetime(node.window)
        grouped = grouped.withColumns({STARTS: start, ENDS: end})
    return stamped(grouped, node)


def spark_aggregate(aggregate: Aggregate, schema: Schema, clip: str = "full") -> Column:
    """Spark's own aggregate of a window's members; those that read lifetimes or windows find them beside the member."""
    from pyspark.sql import functions as F

    from streamq.compiler.window_members import ENDS, STARTS

    found = filtered(aggregate)
    args: list[Any] = [spark_expression(a, schema) for a in found.args] or [F.lit(1)]
    order = F.struct(F.col(LE), *(F.col(quote(n)) for n in schema.names), lifetime(schema)[1])
    match found.name:
        case "percentile":
            return F.percentile(args[0].cast("double"), F.lit(float(found.options[0])))
        case "first" | "last":
            at = order if found.where is None else F.when(spark_expression(found.where, schema), order)
            return F.min_by(args[0], at) if found.name == "first" else F.max_by(args[0], at)
        case "collect":
            rows = F.collect_list(F.when(args[0].isNotNull(), F.struct(order.alias("at"), args[0].alias("value"))))
            return F.transform(F.array_sort(rows), lambda row: row["value"])
        case "time_weighted_avg":
            le, re = lifetime(schema)
            start, end = F.col(STARTS), F.col(ENDS)
            le = F.greatest(le, start) if clip in ("full", "left") else le
            re = F.least(re, end) if clip in ("full", "right") else re
            lasts = F.greatest(re.cast("double") - le.cast("double"), F.lit(0.0))
            length = F.max(end).cast("double") - F.max(start).cast("double")
            return F.sum(args[0].cast("double") * lasts) / length
        case "window_start" | "window_end":
            return instant(F.max(STARTS if found.name == "window_start" else ENDS), schema.axis)
    return getattr(F, AGGREGATES.get(found.name) or OTHERS[found.name])(*args)


def grid(size: Duration, hop: Duration, offset: Duration, axis: str, verb: str) -> Hopping:
    """A window grid in ticks; raises TimeError for a size or hop that is not positive or does not fit the axis."""
    for name, given in (("size", size), ("hop", hop)):
        if ticks(given, axis, verb) <= 0:
            raise TimeError(sentence(verb, f"{name} must be positive", f"found {given!r}"))
    return Hopping(ticks(size, axis, verb), ticks(hop, axis, verb), ticks(offset, axis, verb))
