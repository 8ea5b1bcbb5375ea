"""Edges: reads start and end rows; a start opens the event ``[t, inf)``, and the next edge of the same key closes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from streamq.choices import check_word
from streamq.errors import PlanError, TypeMismatch, column_names, sentence
from streamq.keywords import check_keywords
from streamq.operators.input_table import input_table, source_name
from streamq.operators.operator import BatchRun
from streamq.operators.source import (
    AS_KIND,
    AS_START,
    GENERATED,
    Ingress,
    Source,
    axis_of,
    source_schema,
    without_refused,
)
from streamq.operators.source_items import ItemColumn, ItemRule, RowRefusal, TickColumn, refused_starts
from streamq.operators.source_policy import SourcePolicy, source_policy
from streamq.plan.case import Case
from streamq.plan.expr import Col, Expr, Lit
from streamq.plan.footprint import Footprint
from streamq.plan.inference import types
from streamq.plan.keys import check_key
from streamq.plan.lowering import orderable
from streamq.plan.node import Traits, node
from streamq.plan.schema import EDGE, Field, Schema, quote
from streamq.plan.spark_types import comparable
from streamq.progress.argument import ProgressArgument
from streamq.runtime.consistency import AlignAt
from streamq.runtime.event import LE, OPENS, RE
from streamq.runtime.items import Items, Mark
from streamq.runtime.kernels.edges import EdgesKernel
from streamq.stream import Stream
from streamq.time import INFINITY

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@node
class Edges(Source):
    """Reads the edges in ``table``: column ``edge`` holds ``open`` or ``close``; rows with equal ``key`` columns form a chain.

    ``payload_from`` is "start" or "end": the row whose other columns a closed event carries.
    """

    table: str
    columns: tuple[Field, ...]
    time: str
    edge: str
    key: tuple[str, ...]
    open: Expr
    close: Expr
    payload_from: str = "start"
    policy: SourcePolicy = SourcePolicy()

    title = "edges"

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            cti=f"{GENERATED}; where the payload comes with the end, the least open start, at most c",
            final="closed events that are settled",
            keeps="a key's open start, or its last edge if late ones may be adjusted, and edges at or after c",
            opens="parts, the keys that new edges have, and those with an edge that is due",
            cost="a sort of the keys that a micro-batch touches",
            for_good="the last edge of each key, as a late one may be adjusted" if self.policy.late.adjusts else "",
        )

    @property
    def consumed(self) -> dict[str, str]:
        return {self.time: AS_START, self.edge: AS_KIND}

    def _schema(self) -> Schema:
        """Return the payload's schema; raise if a column is missing or ``open`` or ``close`` cannot be compared with edges."""
        raw = Schema(self.columns, "integer")
        raw.require(self.edge, "edges")
        for name in self.key:
            check_key(raw.require(name, "edges"), name, "edges", "match")
        for name, value in (("open", self.open), ("close", self.close)):
            kind, marked = types(value, raw, "edges")[value.digest], raw.type_of(self.edge)
            if kind is not None and not comparable(kind, marked):
                raise TypeMismatch(
                    sentence(
                        "edges",
                        f"{name} is no value of column {self.edge!r}",
                        f"found {value!r} for a column of {marked.simpleString()}",
                        "Say what the column holds: open=..., close=...",
                    )
                )
        return source_schema(self, axis_of(self.columns, (self.time,), "edges"), EDGE, "edges")

    def _traits(self) -> Traits:
        return Traits(retracts=True, moves_ends=True, infinite=True)

    def detail(self) -> str:
        marks = f"edge={self.edge} ({self.open!r}/{self.close!r})"
        keys = ", ".join(self.key)
        return f"{self.shown_name()}, time={self.time}, {marks}, key=[{keys}], payload={self.payload_from}"

    def define_items(self) -> Iterable[ItemRule]:
        """Add ``__le``, the instant, and ``__opens``, true for a start and false for an end; refuse rows that are neither."""
        opens, closes = (Col(self.edge).eq_null_safe(mark) for mark in (self.open, self.close))
        return (
            TickColumn(LE, self.time),
            ItemColumn(OPENS, Case((opens, Lit(True), closes, Lit(False), Lit(None)))),
            *refused_starts(),
            RowRefusal(Col(OPENS).is_null(), "neither a start nor an end"),
        )

    @property
    def items(self) -> Items:
        return Items(starts=Mark(OPENS, True), mover="start")

    @property
    def ingress(self) -> Ingress:
        """The kernel that pairs the edges of a key; events are held back where they close if their payload comes from there."""
        kernel, title = EdgesKernel(self.key, self.payload_from == "end"), f"edges by {', '.join(self.key)}"
        if kernel.from_end:
            return Ingress(kernel, (OPENS,), self.key, title, AlignAt.EDGE_CLOSE)
        return Ingress(kernel, (OPENS,), self.key, title, AlignAt.EDGE_OPEN)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Return an event for each start: it lives until the key's next edge, by time and ends before starts, or without an end.

        Equal edges count once. An end without an open start before it is refused, and so are different starts of a key at one
        instant, but for the least by payload. If the payload is from the end, an event that no end closes keeps its own.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        df = self.good_items(run)
        rest = [f.name for f in self.payload if f.name not in self.key]
        # two starts of a key at one instant are errors of the source; ordering by payload makes the kept one deterministic
        compared = [orderable(F.col(quote(f.name)), f.type) for f in self.payload if f.name in rest]
        chain = Window.partitionBy(*(quote(k) for k in self.key)).orderBy(LE, OPENS, *compared)
        # an edge that is delivered again is next to the one it repeats
        row = F.struct(F.col(LE), F.col(OPENS), *(c.alias(f"_{i}") for i, c in enumerate(compared)))
        df = df.withColumn("__again", row.eqNullSafe(F.lag(row).over(chain))).where(~F.col("__again")).drop("__again")
        whole = F.struct(F.col(LE), F.col(OPENS), *(F.col(quote(name)) for name in rest))
        df = df.withColumn("__prev", F.lag(whole).over(chain))
        open_before = F.coalesce(F.col("__prev")[OPENS] & (F.col("__prev")[LE] < F.col(LE)), F.lit(False))
        tie = F.coalesce(F.col(OPENS) & F.col("__prev")[OPENS] & (F.col("__prev")[LE] == F.col(LE)), F.lit(False))
        reason = F.when(~F.col(OPENS) & ~open_before, F.lit("an end without an open start")).when(
            tie, F.lit("two starts of one key at one instant")
        )
        df = without_refused(df, reason, self).withColumn("__next", F.lead(whole).over(chain))
        df = df.where(F.col(OPENS)).withColumn(RE, F.coalesce(F.col("__next")[LE], F.lit(INFINITY)))
        payload: Any = {name: F.col(quote(name)) for name in (f.name for f in self.payload)}
        if self.payload_from == "end":
            closed = F.coalesce(~F.col("__next")[OPENS], F.lit(False))
            payload |= {name: F.when(closed, F.col("__next")[name]).otherwise(F.col(quote(name))) for name in rest}
        return df.select(LE, RE, *(payload[f.name].alias(f.name) for f in self.payload))


@check_keywords
def edges(
    df: DataFrame | pa.Table,
    time: str,
    *,
    edge: str,
    key: str | Sequence[str],
    open: Any = "start",
    close: Any = "end",
    payload: str = "start",
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Read events that begin with one row and end with another: a row with ``edge == open`` opens ``[t, inf)``.

    The next edge with the same ``key`` closes the event: a row with ``edge == close``, or another start. ``payload="end"``
    takes the other columns from the closing row when it arrives; results are then final only up to the earliest start that
    is still open. An end without an open start before it is no event: see ``invalid``. ``time`` and ``edge`` are consumed.
    The other arguments and the errors are those of :func:`points`.

    A source that may deliver a row more than once needs no ``id``: key, instant and edge identify the row. A row equal in
    all columns to an earlier one is a duplicate, dropped and counted (``run.late``), as for :func:`points`; a different one
    is no event.

    Tasks, in rows (at, what, task, host) where ``what`` is "start" or "end"::

        tasks = sq.edges(df, time="at", edge="what", key="task")
    """
    table = input_table(df, "edges")
    check_word(payload, ("start", "end"), "payload", "edges")
    policy = source_policy("edges", axis_of(table.columns, (time,), "edges"), progress, late, invalid)
    keys = column_names(key, "edges", "the key")
    for column in (time, edge):
        Schema(table.columns, "integer").require(column, "edges")
    if not keys or {time, edge} & set(keys):
        raise PlanError(sentence("edges", "the key needs columns other than time and edge", f"found {list(keys)}"))
    if edge_literal(open).digest == edge_literal(close).digest:
        raise PlanError(sentence("edges", "open and close are the same value", f"found {open!r}"))
    source = Edges(
        source_name(name),
        table.columns,
        time,
        edge,
        keys,
        open=edge_literal(open),
        close=edge_literal(close),
        payload_from=payload,
        policy=policy,
    )
    return Stream(source, {source.table: table.rows})


def edge_literal(value: Any) -> Expr:
    """Return the value that marks a start or an end as an expression."""
    return value if isinstance(value, Expr) else Lit(value)
