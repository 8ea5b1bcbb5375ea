"""Edges: reads start and end rows; a start opens the event ``[t, inf)``, and the next edge of the same key closes it.

The items of a key act by time, then by the order columns. At one instant and place in the order ends come before starts.
Changes of a table are such edges: a version is a start, a delete an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.choices import Invalid, check_word
from streamq.errors import PlanError, TypeMismatch, check_keywords, column_names
from streamq.functions.text import CONCAT, LOWER
from streamq.operators.input_table import Rows, input_table, source_name
from streamq.operators.operator import BatchRun
from streamq.operators.source import (
    AS_KIND,
    AS_START,
    GENERATED,
    Ingress,
    Source,
    axis_of,
    shown_columns,
    source_schema,
    without_refused,
)
from streamq.operators.source_arguments import (
    ItemColumn,
    ItemRule,
    RefusedRows,
    RowRefusal,
    SourcePolicy,
    TickColumn,
    beside_columns,
    key_columns,
    order_columns,
    refused_starts,
    source_policy,
)
from streamq.plan.expr import Call, Case, Col, Expr, Lit
from streamq.plan.footprint import Footprint
from streamq.plan.lowering import orderable, text_literal
from streamq.plan.node import ADDED, Traits, node
from streamq.plan.passes import types
from streamq.plan.schema import EDGE, Field, Schema, check_key, quote
from streamq.plan.spark_types import comparable
from streamq.progress_policies import ProgressArgument
from streamq.runtime.deltas import LE, OPENS, RE
from streamq.runtime.hosts.packer import Items, Mark
from streamq.runtime.kernels.edges import EdgesKernel
from streamq.runtime.time.consistency import AlignAt
from streamq.stream import Stream
from streamq.time import INFINITY


class EdgeSource(Source):
    """A source of items that start or end events; ``time`` has their instants, and equal ``key`` columns make a chain.

    ``order_by``: the columns by which items of one key and instant act. ``payload_from`` is "start" or "end": the row whose other
    columns a closed event carries. Its rules give items ``__opens``, true for a start and false for an end.
    """

    time: str
    key: tuple[str, ...]
    order_by: tuple[str, ...]
    payload_from: str = "start"

    mover: ClassVar[str]
    """A user's word for an item that starts an event."""

    unmatched: ClassVar[str]
    """The reason to refuse an end that ends no event."""

    @property
    def tie(self) -> str:
        """The reason to refuse two items that nothing puts in order."""
        ordered = f"equal in {', '.join(self.order_by)}" if self.order_by else "without order_by"
        return f"two {self.title} of one key at one instant that differ, {ordered}"

    @property
    def footprint(self) -> Footprint:
        item, closes = self.title.removesuffix("s"), self.payload_from == "end"
        return Footprint(
            cti=GENERATED + "; as the payload comes with the end, the least open start, at most c" * closes,
            final="closed events that are settled",
            keeps=f"a key's open start, or its last {item} if late ones may be adjusted, and {self.title} at or after c",
            opens=f"parts, the keys that new {self.title} have, and those with one that is due",
            cost="a sort of the keys that a micro-batch touches",
            for_good=f"the last {item} of each key, as a late one may be adjusted" if self.policy.late.adjusts else "",
        )

    def _schema(self) -> Schema:
        """Return the payload's schema; raise if a column is missing, or one of the key or the order cannot be compared."""
        raw = Schema(self.columns, "integer")
        for names, use in ((self.key, "match"), (self.order_by, "order")):
            for name in names:
                check_key(raw.require(name, self.title), name, self.title, use)
        return source_schema(self, axis_of(self.columns, (self.time,), self.title), EDGE, self.title)

    def _traits(self) -> Traits:
        return Traits(retracts=True, moves_ends=True, infinite=True)

    @property
    def items(self) -> Items:
        return Items(starts=Mark(OPENS, True), mover=self.mover)

    @property
    def order_columns(self) -> tuple[str, ...]:
        """The columns of ``order_by``, by the names that items have for them."""
        return tuple(self.beside_columns.get(name, name) for name in self.order_by)

    @property
    def ingress(self) -> Ingress:
        """The kernel that pairs the edges of a key; events are held back where they close if their payload comes from there."""
        kernel = EdgesKernel(
            self.key, self.payload_from == "end", self.order_columns, unmatched=self.unmatched, tie=self.tie
        )
        title = f"{self.title} by {', '.join(self.key)}"
        if kernel.from_end:
            return Ingress(kernel, (OPENS,), self.key, title, AlignAt.EDGE_CLOSE)
        return Ingress(kernel, (OPENS,), self.key, title, AlignAt.EDGE_OPEN)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Return an event for each start: it lives until the key's next edge, or without an end.

        Equal edges count once. An end without an open start before it is refused, and so are edges of one key, instant, place in
        the order and kind that differ. If the payload is from the end, an event that no end closes keeps its own.
        """
        df = self.good_items(run)
        rest = [f.name for f in self.payload if f.name not in self.key]
        compared = [orderable(F.col(quote(f.name)), f.type) for f in self.payload if f.name in rest]
        place = [F.col(LE), *(F.col(quote(name)) for name in self.order_columns), F.col(OPENS)]
        chain = Window.partitionBy(*(quote(k) for k in self.key)).orderBy(*place, *compared)

        def is_like_its_neighbour(columns: Sequence[Any], neighbour: Any) -> Any:
            row = F.struct(*(column.alias(f"_{i}") for i, column in enumerate(columns)))
            return row.eqNullSafe(neighbour(row).over(chain))

        # an edge that is delivered again is next to the one it repeats
        df = df.withColumn("__again", is_like_its_neighbour([*place, *compared], F.lag)).where(~F.col("__again"))
        is_tie = is_like_its_neighbour(place, F.lag) | is_like_its_neighbour(place, F.lead)
        df = df.withColumn("__tie", is_tie).drop("__again")
        if self.policy.invalid_in(False) == Invalid.DROP:
            df = df.where(~F.col("__tie"))
        whole = F.struct(F.col(LE), F.col(OPENS), *(F.col(quote(name)) for name in rest))
        df = df.withColumn("__prev", F.lag(whole).over(chain))
        opened_before = F.coalesce(F.col("__prev")[OPENS], F.lit(False))
        df = df.withColumn("__unmatched", ~F.col(OPENS) & ~opened_before)
        reasons = f"WHEN __tie THEN {text_literal(self.tie)} WHEN __unmatched THEN {text_literal(self.unmatched)}"
        refusal = RefusedRows("__tie OR __unmatched", f"CASE {reasons} END")
        df = without_refused(df, refusal, self).withColumn("__next", F.lead(whole).over(chain))
        df = df.where(F.col(OPENS)).withColumn(RE, F.coalesce(F.col("__next")[LE], F.lit(INFINITY)))
        payload: Any = {name: F.col(quote(name)) for name in (f.name for f in self.payload)}
        if self.payload_from == "end":
            closed = F.coalesce(~F.col("__next")[OPENS], F.lit(False))
            payload |= {name: F.when(closed, F.col("__next")[name]).otherwise(F.col(quote(name))) for name in rest}
        events = df.select(LE, RE, *(payload[f.name].alias(f.name) for f in self.payload))
        # the next edge of one instant leaves nothing of an event
        return events.where(F.col(RE) > F.col(LE)) if self.order_by else events


@node
class Edges(EdgeSource):
    """Reads the edges in ``table``: column ``edge`` holds ``open`` or ``close``; rows with equal ``key`` columns form a chain.

    ``payload_from`` is "start" or "end": the row whose other columns a closed event carries. ``order_by``: the columns by which
    edges of one key and instant act.
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

    order_by: tuple[str, ...] = field(default=(), metadata=ADDED)
    beside: tuple[str, ...] = field(default=(), metadata=ADDED)
    zone: str | None = field(default=None, metadata=ADDED)

    title = "edges"
    mover = "start"
    unmatched = "an end without an open start"

    @property
    def roles(self) -> dict[str, str]:
        return {self.time: AS_START, self.edge: AS_KIND}

    def _schema(self) -> Schema:
        """Return the payload's schema; raise if a column is missing or ``open`` or ``close`` cannot be compared with edges."""
        raw = Schema(self.columns, "integer")
        raw.require(self.edge, "edges")
        for name, value in (("open", self.open), ("close", self.close)):
            kind, marked = types(value, raw, "edges")[value.digest], raw.type_of(self.edge)
            if kind is not None and not comparable(kind, marked):
                raise TypeMismatch(
                    "edges",
                    f"{name} is no value of column {self.edge!r}",
                    f"found {value!r} for a column of {marked.simpleString()}",
                    "Say what the column holds: open=..., close=...",
                )
        return super()._schema()

    def detail(self) -> str:
        marks = f"edge={self.edge} ({self.open!r}/{self.close!r})"
        columns = shown_columns("key", self.key) + shown_columns("order_by", self.order_by)
        return (
            f"{self.shown_name()}, time={self.time}, {marks}{columns}, payload={self.payload_from}{self.shown_beside()}"
        )

    def define_items(self) -> Iterable[ItemRule]:
        """Add ``__le``, the instant, and ``__opens``, true for a start and false for an end; refuse rows that are neither."""
        opens, closes = (Col(self.edge).eq_null_safe(mark) for mark in (self.open, self.close))
        return (
            TickColumn(LE, self.time),
            ItemColumn(OPENS, Case((opens, Lit(True), closes, Lit(False), Lit(None)))),
            *refused_starts(),
            RowRefusal(Col(OPENS).is_null(), Lit("neither a start nor an end")),
        )


@check_keywords
def edges(
    df: Rows,
    time: str,
    *,
    edge: str,
    key: str | Sequence[str],
    open: Any = "start",
    close: Any = "end",
    payload: str = "start",
    order_by: str | Sequence[str] = (),
    beside: str | Sequence[str] = (),
    zone: str | None = None,
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

    Edges of one key and instant act in the order of ``order_by``, a column or several, NULLs first: the last one decides, and
    of an event that ends where it starts nothing is left. The columns stay in the payload unless they are ``beside`` it. Edges
    that are equal in these, or without them all edges of an instant, are an end before a start; two starts that differ, or two
    ends, are no events, neither of them.

    A source that may deliver a row more than once needs no ``id``: key, instant, ``order_by`` and edge identify the row. A row
    equal in all columns to another, but for those in ``beside``, is a duplicate, dropped and counted (``run.late``), as for
    :func:`points`.

    Tasks, in rows (at, what, task, host) where ``what`` is "start" or "end"::

        tasks = sq.edges(df, time="at", edge="what", key="task")
    """
    table = input_table(df, "edges")
    check_word(payload, ("start", "end"), "payload", "edges")
    policy = source_policy(
        "edges", axis_of(table.columns, (time,), "edges"), progress, late, invalid, parts=table.parts
    )
    keys = column_names(key, "edges", "the key")
    for column in (time, edge):
        Schema(table.columns, "integer").require(column, "edges")
    if not keys or {time, edge} & set(keys):
        raise PlanError("edges", "the key needs columns other than time and edge", f"found {list(keys)}")
    if edge_literal(open).digest == edge_literal(close).digest:
        raise PlanError("edges", "open and close are the same value", f"found {open!r}")
    aside = beside_columns(beside, table, (time, edge, *keys), "edges")
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
        order_by=order_columns(order_by, table.columns, (time, edge), "edges"),
        beside=aside,
        zone=zone,
    )
    return Stream(source, {source.table: table.rows})


def edge_literal(value: Any) -> Expr:
    """Return the value that marks a start or an end as an expression."""
    return value if isinstance(value, Expr) else Lit(value)


VERSIONS = ("c", "r", "u", "insert", "update", "update_postimage", "update_after", "+i", "+u")
DELETES = ("d", "delete", "-d")
PREIMAGES = ("update_preimage", "update_before", "-u")
TRUNCATES = ("t", "truncate")
"""The operations, in lower case: Debezium's codes, the words of the feeds of Delta, Spark and Iceberg, and Flink's kinds of rows.

A preimage is no item: what it says ends by the change behind it.
"""

_KNOWN = ", ".join((*VERSIONS, *DELETES, *PREIMAGES))
_APART = "a truncate has no key, so read these rows apart, as sq.changes(the others).clip(sq.points(these, time=...))"


@node
class Changes(EdgeSource):
    """Reads the changes in ``table``: column ``op`` says what happened to the row of the table whose ``key`` it has.

    ``order_by``: the columns by which changes of one key and instant act.
    """

    table: str
    columns: tuple[Field, ...]
    time: str
    op: str
    key: tuple[str, ...]
    policy: SourcePolicy = SourcePolicy()
    order_by: tuple[str, ...] = field(default=(), metadata=ADDED)
    beside: tuple[str, ...] = field(default=(), metadata=ADDED)
    zone: str | None = field(default=None, metadata=ADDED)

    title = "changes"
    mover = "version"
    unmatched = (
        "a delete without a version before it; of one instant a delete acts first, unless order_by says otherwise"
    )

    @property
    def roles(self) -> dict[str, str]:
        return {self.time: AS_START, self.op: AS_KIND}

    def _schema(self) -> Schema:
        """Return the payload's schema; raise UnknownColumn without a column ``op``, TypeMismatch if it holds no strings."""
        kind = Schema(self.columns, "integer").require(self.op, "changes")
        if not isinstance(kind, t.StringType):
            raise TypeMismatch(
                "changes",
                f"column {self.op!r} holds no operations",
                f"found {kind.simpleString()}",
                f"They are strings: {_KNOWN}.",
            )
        return super()._schema()

    def detail(self) -> str:
        columns = shown_columns("key", self.key) + shown_columns("order_by", self.order_by)
        return f"{self.shown_name()}, op={self.op}, time={self.time}{columns}{self.shown_beside()}"

    def define_items(self) -> Iterable[ItemRule]:
        """Add ``__le``, the instant, and ``__opens``, true for a version and false for a delete; refuse other operations."""
        op = Call(LOWER, (Col(self.op),))
        is_unknown = Col(OPENS).is_null()
        shown = Case((Col(self.op).is_null(), Lit("NULL"), Call(CONCAT, (Lit("'"), Col(self.op), Lit("'")))))
        return (
            TickColumn(LE, self.time),
            ItemColumn(OPENS, Case((op.isin(*VERSIONS), Lit(True), op.isin(*DELETES), Lit(False), Lit(None)))),
            *refused_starts(),
            RowRefusal(is_unknown & op.isin(*TRUNCATES), Lit(_APART)),
            RowRefusal(is_unknown, Call(CONCAT, (Lit("unknown op "), shown, Lit(f", known are {_KNOWN}")))),
        )

    def on_spark(self, table: DataFrame, streaming: bool) -> DataFrame:
        """Return each change but preimages as an item."""
        is_preimage = F.lower(F.col(quote(self.op))).isin(*PREIMAGES)
        return super().on_spark(table.where(~F.coalesce(is_preimage, F.lit(False))), streaming)

    def rows_in_arrow(self, table: pa.Table, streaming: bool) -> pa.Table:
        """Return each change but preimages as an item."""
        is_preimage = pc.is_in(pc.utf8_lower(table.column(self.op)), pa.array(PREIMAGES))
        return super().rows_in_arrow(table.filter(pc.invert(is_preimage)), streaming)


@check_keywords
def changes(
    df: Rows,
    op: str = "_change_type",
    time: str = "_commit_timestamp",
    key: str | Sequence[str] = (),
    *,
    order_by: str | Sequence[str] = (),
    beside: str | Sequence[str] = (),
    zone: str | None = None,
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Read change data capture: each version of a row is an event from its change at ``time`` to its ``key``'s next change.

    The string column ``op`` says what happened, in upper or lower case:

    ============================================== =====================================================================
    ``c`` ``r`` ``u``, ``insert``, ``update``,     a version: opens ``[time, inf)``, ends the one before
    ``update_postimage``, ``update_after``, ``+I``
    ``+U``
    ``d``, ``delete``, ``-D``                      ends the version before; its other columns are not read
    ``update_preimage``, ``update_before``, ``-U`` ignored
    ============================================== =====================================================================

    These are Debezium's codes, the words of the feeds of Delta, Spark and Iceberg, and Flink's kinds of rows. Any other value is
    no event, nor is a delete without a version before it: see ``invalid``. Debezium's ``t``, a truncate, has no key, so it is no
    event either: read these rows apart, as points that end all versions (docs/concepts.md, "Changes of a table").

    Changes of one key and instant, such as those of a transaction, act in the order of ``order_by``, a column or several, NULLs
    first: the last one decides, and a row inserted and deleted at one instant is not there. Changes that are equal in these
    columns, or without them all of an instant, are a delete before a version; two versions that differ, or two deletes, are no
    events, neither of them. So an update that is one delete and one insert needs no order. The columns stay in the payload unless
    they are ``beside`` it. A change that is delivered again, equal in all columns but those in ``beside``, is a duplicate, as for
    :func:`edges`: no ``id`` is needed. One with another place in the order takes the place of the first, and is not counted.

    By default ``op`` and ``time`` are the columns of the feeds of Delta and Iceberg, ``sq.table("delta", path, changes=True)``,
    and of Debezium's topics, ``sq.kafka(servers, topic, schema="item string, price double", envelope="debezium")``, and the order
    is that of these.

    ``time`` and ``op`` are consumed. The other arguments and the errors are those of :func:`points`; TypeMismatch is also
    raised if ``op`` holds no strings, or if ``key`` or ``order_by`` cannot be compared.
    (docs/concepts.md, "Changes of a table".)

    The price list of a shop, in rows (op, at, item, price)::

        prices = sq.changes(df, op="op", time="at", key="item")

        at        1    2    3    4    5
        item a    |c 5      |u 6      |d           [1,3) 5, [3,5) 6
        item b         |c 9                        [2,inf) 9
    """
    table = input_table(df, "changes")
    policy = source_policy(
        "changes", axis_of(table.columns, (time,), "changes"), progress, late, invalid, parts=table.parts
    )
    keys = key_columns(key, table.columns, (time, op), "changes")
    if not keys:
        raise PlanError("changes", "no key", "", "Name the columns that tell the table's rows apart.")
    source = Changes(
        source_name(name),
        table.columns,
        time,
        op,
        keys,
        policy=policy,
        order_by=order_columns(order_by or table.order, table.columns, (time, op), "changes"),
        beside=beside_columns(beside, table, (time, op, *keys), "changes"),
        zone=zone,
    )
    return Stream(source, {source.table: table.rows})
