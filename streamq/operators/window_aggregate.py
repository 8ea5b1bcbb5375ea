"""WindowAggregate: one row a window with members, on the window's interval, holding aggregates over its members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamq.operators.evaluated import evaluated
from streamq.operators.grid import bounded, window_lifetime
from streamq.operators.window import show_keys, show_policies, show_window, window_traits
from streamq.plan.aggregate import Aggregate, SparkMembers
from streamq.plan.aggregation import aggregate_type, expand, filtered, merges
from streamq.plan.keys import check_key
from streamq.plan.lowering import instant, lifetime, spark_expression
from streamq.plan.node import Node, Traits, node
from streamq.plan.partial import spark_partials
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, quote
from streamq.plan.tree import show
from streamq.runtime.endpoints import Bound
from streamq.runtime.event import LE, RE
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
        sensitive = waits and self.timed
        found = {self.window.name: True, "mergeable": is_grid(self), "time-sensitive": sensitive}
        return tuple(name for name, holds in found.items() if holds)

    @property
    def title(self) -> str:
        return self.window.name

    @property
    def timed(self) -> bool:
        """Whether an aggregate reads members' lifetimes."""
        return any(a.function.timed for _, a in self.aggregates)

    @property
    def ordered(self) -> bool:
        """Whether an aggregate takes members in their order, by which the whole payload decides."""
        return any(a.function.ordered for _, a in self.aggregates)

    @property
    def merges(self) -> bool:
        """Whether all aggregates are made of partial results."""
        return all(merges(a, self.input.schema) for _, a in self.aggregates)

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


def is_grid(node: WindowAggregate) -> bool:
    """Whether it is made of partial results of basic windows."""
    return isinstance(node.window, Hopping) and node.stamp == ALIGN and node.merges


def batch(node: WindowAggregate, inputs: list[DataFrame], run: BatchRun) -> DataFrame:
    """Snapshots of exact aggregates by a sweep, of mergeable ones by merging, of others by the evaluator of streams.

    Else every event is copied into its windows, and the copies are aggregated by Spark's own aggregates; where there is none
    for one of them, by the evaluator of streams too.
    """
    from streamq.operators.snapshots import snapshots
    from streamq.operators.window_members import ENDS, STARTS, stamped, window_members

    source = node.input.schema
    if isinstance(node.window, Snapshot) and node.merges:
        split = expand(node.aggregates, source)
        partials = spark_partials(split.partials)
        if partials is not None:
            return stamped(snapshots(node, split, partials, inputs[0]), node)
        return _evaluated(node, inputs[0], run)
    if isinstance(node.window, Snapshot) and not any(a.function.copies_members for _, a in node.aggregates):
        return _evaluated(node, inputs[0], run)
    columns = {name: spark_aggregate(a, source, node.clip) for name, a in node.aggregates}
    made = [column.alias(name) for name, column in columns.items() if column is not None]
    if len(made) < len(columns):
        return _evaluated(node, inputs[0], run)
    df, by = window_members(node, inputs[0], run)
    keys = [quote(k) for k in node.keys]
    grouped = df.groupBy(*keys, *by).agg(*made) if made else df.select(*keys, *by).distinct()
    if isinstance(node.window, Hopping) and STARTS not in by:
        start, end = window_lifetime(node.window)
        grouped = grouped.withColumns({STARTS: start, ENDS: end})
    return stamped(grouped, node)


def _evaluated(node: WindowAggregate, df: DataFrame, run: BatchRun) -> DataFrame:
    """Result rows with their lifetimes, by the evaluator of streams."""
    from streamq.compiler.hosting import HOSTED

    hosting = HOSTED[WindowAggregate](node)
    may_be_endless = node.input.traits.infinite or run.until is not None
    if hosting.bound is Bound.ALWAYS or (hosting.bound is Bound.ENDLESS and may_be_endless):
        df = bounded(df, [node.input], run, bound=hosting.bound)
    (port,) = hosting.inputs
    rows = evaluated(
        df,
        hosting.evaluator,
        source=node.input.schema,
        columns=port.columns,
        keys=node.keys,
        fields=hosting.schema.fields,
    )
    return rows.select(LE, RE, *(spark_expression(e, hosting.schema).alias(name) for name, e in hosting.outputs))


def spark_aggregate(aggregate: Aggregate, schema: Schema, clip: str = "full") -> Column | None:
    """Spark's own aggregate of a window's members, if there is one; their windows' intervals stand beside them."""
    from pyspark.sql import functions as F

    from streamq.operators.window_members import ENDS, STARTS

    aggregate = filtered(aggregate)

    def cut_lifetime() -> tuple[Column, Column]:
        le, re = lifetime(schema)
        le = F.greatest(le, F.col(STARTS)) if clip in ("full", "left") else le
        return le, F.least(re, F.col(ENDS)) if clip in ("full", "right") else re

    members = SparkMembers(
        values=[spark_expression(arg, schema) for arg in aggregate.args],
        options=aggregate.options,
        passes=None if aggregate.where is None else spark_expression(aggregate.where, schema),
        order=lambda: F.struct(F.col(LE), *(F.col(quote(n)) for n in schema.names), lifetime(schema)[1]),
        lifetime=cut_lifetime,
        window=lambda: (F.col(STARTS), F.col(ENDS)),
        instant=lambda ticks: instant(ticks, schema.axis),
    )
    return aggregate.function.on_spark(members)
