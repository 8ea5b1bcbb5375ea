"""WindowAggregate: one row a window with members, on the window's interval, holding aggregates over its members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from streamq.errors import TypeMismatch, sentence
from streamq.operators.grid import window_lifetime
from streamq.operators.window import show_keys, show_policies, show_window, window_traits
from streamq.plan.case import Case
from streamq.plan.expr import Aggregate, Lit
from streamq.plan.inference import infer
from streamq.plan.keys import check_key
from streamq.plan.lowering import instant, lifetime, spark_expression
from streamq.plan.node import Node, Traits, node
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, quote
from streamq.plan.spark_types import avg_type, is_numeric, sum_type
from streamq.plan.tree import show
from streamq.runtime.event import LE
from streamq.windows import (
    ALIGN,
    POINT_AT_END,
    Count,
    Hopping,
    Rows,
    Snapshot,
    Window,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streamq.operators.batch_run import BatchRun


AGGREGATES: dict[str, str] = {
    "count": "count", "sum": "sum", "avg": "avg", "min": "min", "max": "max",
    "var": "var_samp", "var_pop": "var_pop", "stddev": "stddev_samp", "stddev_pop": "stddev_pop",
}  # fmt: skip
"""streamq's aggregates and Spark's names for them."""


@node
class WindowAggregate(Node):
    """The members of each window, per group of ``keys``, reduced to ``aggregates`` (SEMANTICS section 3).

    CTI: hopping: start of the earliest window not final; snapshot: c, under a time-sensitive aggregate the start of the
        earliest window not final; count: the (n-1)-th greatest instant below c; rows: the start of the first row of the
        earliest incomplete window; session: the least start of a session not final; landmark: the landmark of the earliest
        window not final; at point_at_end c
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


def batch(node: WindowAggregate, inputs: list[DataFrame], run: BatchRun) -> DataFrame:
    """Snapshots of exact aggregates by a sweep, of mergeable ones by merging, of others by the evaluator of streams.

    Else every event is copied into its windows, and the copies are aggregated by Spark's own aggregates.
    """
    from streamq.operators.snapshots import evaluated, snapshots
    from streamq.operators.window_members import ENDS, STARTS, stamped, window_members

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

    from streamq.operators.window_members import ENDS, STARTS

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
