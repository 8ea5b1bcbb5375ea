"""Edges: reads start and end rows; a start opens the event ``[t, inf)``, and the next edge of the same key closes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from streamq.choices import check_word
from streamq.errors import PlanError, TypeMismatch, column_names, sentence
from streamq.keywords import check_keywords
from streamq.operators.edge_source import EdgeSource
from streamq.operators.input_table import input_table, source_name
from streamq.operators.source import AS_KIND, AS_START, axis_of, shown_columns
from streamq.operators.source_arguments import beside_columns, order_columns
from streamq.operators.source_items import ItemColumn, ItemRule, RowRefusal, TickColumn, refused_starts
from streamq.operators.source_policy import SourcePolicy, source_policy
from streamq.plan.case import Case
from streamq.plan.expr import Col, Expr, Lit
from streamq.plan.inference import types
from streamq.plan.node import ADDED, node
from streamq.plan.schema import Field, Schema
from streamq.plan.spark_types import comparable
from streamq.progress.argument import ProgressArgument
from streamq.runtime.event import LE, OPENS
from streamq.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


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
                    sentence(
                        "edges",
                        f"{name} is no value of column {self.edge!r}",
                        f"found {value!r} for a column of {marked.simpleString()}",
                        "Say what the column holds: open=..., close=...",
                    )
                )
        return super()._schema()

    def detail(self) -> str:
        marks = f"edge={self.edge} ({self.open!r}/{self.close!r})"
        columns = shown_columns("key", self.key) + shown_columns("order_by", self.order_by)
        aside = shown_columns("beside", self.beside)
        return f"{self.shown_name()}, time={self.time}, {marks}{columns}, payload={self.payload_from}{aside}"

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
    df: DataFrame | pa.Table,
    time: str,
    *,
    edge: str,
    key: str | Sequence[str],
    open: Any = "start",
    close: Any = "end",
    payload: str = "start",
    order_by: str | Sequence[str] = (),
    beside: str | Sequence[str] = (),
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
    policy = source_policy("edges", axis_of(table.columns, (time,), "edges"), progress, late, invalid)
    keys = column_names(key, "edges", "the key")
    for column in (time, edge):
        Schema(table.columns, "integer").require(column, "edges")
    if not keys or {time, edge} & set(keys):
        raise PlanError(sentence("edges", "the key needs columns other than time and edge", f"found {list(keys)}"))
    if edge_literal(open).digest == edge_literal(close).digest:
        raise PlanError(sentence("edges", "open and close are the same value", f"found {open!r}"))
    aside = beside_columns(beside, table.columns, (time, edge, *keys), "edges")
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
    )
    return Stream(source, {source.table: table.rows})


def edge_literal(value: Any) -> Expr:
    """Return the value that marks a start or an end as an expression."""
    return value if isinstance(value, Expr) else Lit(value)
