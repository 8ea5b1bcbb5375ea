"""Sources: leaves of a plan that read the rows of a table, known by name, as events; a policy sets progress and late rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.choices import Invalid
from streamq.connectors.messages import WRONG
from streamq.errors import InvalidEvent, TypeMismatch, unknown_column
from streamq.operators.operator import BatchRun, Operator
from streamq.operators.source_arguments import ItemRule, ItemRules, RefusedRows, RowRefusal, SourcePolicy
from streamq.plan.expr import Col
from streamq.plan.footprint import Expected, Footprint
from streamq.plan.lowering import instant_sql, orderable, text_literal
from streamq.plan.schema import POINT, Field, Schema, check_key, check_names, lazy, quote, users_columns
from streamq.runtime.deltas import BAD, LE, NOW, RE, beside_column
from streamq.runtime.hosts.packer import Items
from streamq.runtime.kernel import MEND_THE_SOURCE, Kernel
from streamq.runtime.time.consistency import AlignAt
from streamq.time import INFINITY, INTEGER, TIMESTAMP, checked_zone

AS_START, AS_END = "it is sq.start() now", "it is sq.end() now"
AS_KIND = "it says what a row is, and is no part of an event"
BESIDE = "it is beside the events, at hand for per= and the late output"
"""The expressions that read, in a query, the columns that a source consumes."""


MICRO_BATCH_TIME = f"unix_micros(current_timestamp()) AS {NOW}"
"""The time of a micro-batch, as SQL; Spark keeps it in the checkpoint, so that one that is repeated has it again."""


@dataclass(frozen=True)
class Ingress:
    """The kernel that turns a source's items into events, in the first stage of a stream.

    ``columns``: the columns of an item that it reads beside start and payload. ``hashed``: the columns whose values choose the
    item's bucket. ``title``: its name in explain. ``aligns``: the point at which the consistency level holds events back.
    """

    kernel: Kernel
    columns: tuple[str, ...]
    hashed: tuple[str, ...]
    title: str
    aligns: AlignAt = AlignAt.OUTPUT


class Source(Operator):
    """A leaf that reads the rows of ``table`` as events; ``columns`` are all columns of the table, in order.

    ``zone``: the time zone of times that have none, None for UTC.
    """

    table: str
    columns: tuple[Field, ...]
    policy: SourcePolicy
    ids: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    zone: str | None = None

    @property
    @abstractmethod
    def roles(self) -> dict[str, str]:
        """The columns that hold times and kinds instead of payload, each with the expression that reads it in a query."""

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The columns that hold starts and ends."""
        return tuple(name for name, meaning in self.roles.items() if meaning in (AS_START, AS_END))

    @property
    def consumed(self) -> dict[str, str]:
        """The columns that are no payload, each with the expression that reads it in a query, or what it is there for."""
        return {**self.roles, **dict.fromkeys(self.beside, BESIDE)}

    @property
    def beside_columns(self) -> dict[str, str]:
        """The columns beside the events that items have, each with its name there; a connector's reason is in ``__bad``."""
        return {name: beside_column(name) for name in self.beside if name != WRONG}

    @abstractmethod
    def define_items(self) -> Iterable[ItemRule]:
        """Return the rules that add the items' columns beside the payload, and those that refuse rows that are no events."""

    @lazy
    def item_rules(self) -> ItemRules:
        """The rules by which rows of the table become items; first, those whose values a connector could not decode are none."""
        refused = [RowRefusal(Col(WRONG).is_not_null(), Col(WRONG))] if self.has_malformed else []
        return ItemRules(self.columns, [*refused, *self.define_items()], self.zone)

    @property
    def has_malformed(self) -> bool:
        """True if the rows' connector says which values it could not decode."""
        return WRONG in self.beside

    def on_spark(self, table: DataFrame, streaming: bool) -> DataFrame:
        """Return each row of a table as an item: ``__le``, the columns of its rules, the payload, and ``__bad``.

        ``__bad`` is the reason to refuse the row, NULL for an event; a batch under ``invalid="fail"`` raises it instead, and has
        no such column. The columns beside the events follow, and in a stream those that progress reads, with the time of the
        micro-batch if it bounds starts. ``streaming`` is False for a batch.
        """
        columns = [f"{column} AS {name}" for name, column in self.item_columns(streaming).items()]
        payload = [quote(field.name) for field in self.payload]
        # one column may be both
        carried = [*self.beside_columns.items(), *(self.policy.progress_columns.items() if streaming else ())]
        copies = [f"{quote(name)} AS {column}" for name, column in carried]
        if streaming and self.policy.progress.max_ahead is not None:
            copies.append(MICRO_BATCH_TIME)
        return table.selectExpr(*columns, *payload, *copies)

    def item_columns(self, streaming: bool) -> dict[str, str]:
        """Return the columns of items beside the payload, by name, as SQL over the table."""
        items = self.item_rules.in_sql()
        end = items.columns.get(RE)
        le, reason = check_starts(items.columns[LE], items.refusal, self, streaming, end, beside=[*self.beside_columns])
        return {**items.columns, LE: le} | ({} if reason is None else {BAD: reason})

    def with_columns(self, names: Collection[str]) -> Source:
        """Return the source without payload columns that are not among ``names``; with all if they tell its rows apart."""
        if self.ids or not self.insert_only:
            return self
        read = {*names, *self.consumed, *self.policy.progress_columns}
        return replace(self, columns=tuple(field for field in self.columns if field.name in read))

    def good_items(self, run: BatchRun) -> DataFrame:
        """Return the items of a batch without the refused ones."""
        items = self.on_spark(run.tables[self.table], False)
        return keep_good(items) if BAD in items.columns else items

    @property
    def items(self) -> Items:
        """The roles of items: which start events and which carry CTIs. By default each item inserts an event."""
        return Items()

    @property
    def ingress(self) -> Ingress | None:
        """The kernel that turns items into events; None if every item inserts an event."""
        return None

    @property
    def insert_only(self) -> bool:
        """True if every item inserts an event, so that none is ever retracted."""
        return self.ingress is None

    @property
    def gives_points(self) -> bool:
        """True if every item is a point; of a late point nothing is left to adjust."""
        return self.insert_only and self.schema.shape == POINT

    def rows_in_arrow(self, table: pa.Table, streaming: bool) -> pa.Table:
        """Return a table's items with payload, ``__bad`` (the reason to refuse it, or NULL), and the columns of ``on_spark``.

        Under ``invalid="fail"`` the first reason shows the lifetime; it is not raised here. ``streaming`` decides which default
        of ``invalid`` counts.
        """
        items = self.item_rules.in_arrow(table)
        reason = items.reason
        if self.policy.invalid_in(streaming) == Invalid.FAIL:
            reason = items.reason_with_lifetime(self.schema.axis)
        payload = {f.name: table.column(f.name) for f in self.payload}
        names = [*self.beside_columns.items(), *self.policy.progress_columns.items()]
        carried = {column: table.column(name) for name, column in names}
        return pa.table({**items.columns, **payload, BAD: reason, **carried})

    @property
    def payload(self) -> tuple[Field, ...]:
        """The columns of the table that the source does not consume."""
        return tuple(f for f in self.columns if f.name not in self.consumed)

    def expected_rows(self, inputs: Sequence[float | None], expected: Expected) -> float | None:
        return expected.rows_a_tick(self.shown_name(), self.schema.axis)

    def shown_beside(self) -> str:
        """Return the columns beside the events, and the zone, as explain shows them after other arguments."""
        return shown_columns("beside", self.beside) + ("" if self.zone is None else f", zone={self.zone}")

    def shown_name(self) -> str:
        """The table's name as explain and messages show it."""
        return f"{self.title}{self.table.removeprefix('#')}" if self.table.startswith("#") else self.table


GENERATED = "c, generated from the data (greatest start seen - delay) or set from outside"
"""The CTI of a source whose rows say nothing of it, in words."""


class InsertSource(Source):
    """A source of inserts; with ``ids``, rows of equal ids and start are one event, however often they are delivered."""

    @property
    def footprint(self) -> Footprint:
        if not self.ids:
            return Footprint(cti=GENERATED, final="every row that is on time", cost="a pass over what is new")
        return Footprint(
            cti=GENERATED,
            final="every row that is on time",
            keeps="rows not settled",
            opens="parts, the rows that start where a new one does, and those that settle",
            cost="a pass over what is new; and over the rows held that start where it does",
        )

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Return the table's events; with ids, each once."""
        return deduplicate(self, self.good_items(run)).drop(*self.beside_columns.values())

    def shown_ids(self) -> str:
        """Return the ids, and the columns beside the events, as explain shows them."""
        return shown_columns("id", self.ids) + self.shown_beside()


def shown_columns(argument: str, names: Sequence[str]) -> str:
    """Return an argument that is a list of columns as explain shows it, after others; "" if it is empty."""
    return f", {argument}=[{', '.join(names)}]" if names else ""


def axis_of(fields: tuple[Field, ...], names: tuple[str, ...], verb: str) -> str:
    """Return the axis that all time columns share; raise UnknownColumn, or TypeMismatch for no time, or for different axes."""
    schema = Schema(fields, INTEGER)
    axes = set()
    for name in names:
        if name not in schema.names:
            unknown_column(verb, name, users_columns(schema.names), lifetime=False)
        kind = schema.type_of(name)
        if isinstance(kind, t.TimestampType | t.TimestampNTZType | t.DateType):
            axes.add(TIMESTAMP)
        elif isinstance(kind, t.ByteType | t.ShortType | t.IntegerType | t.LongType):
            axes.add(INTEGER)
        else:
            hint = "Times are timestamps, dates or integers; cast it first."
            raise TypeMismatch(verb, f"column {name!r} is no time", f"found {kind.simpleString()}", hint)
    if len(axes) != 1:
        raise TypeMismatch(
            verb, "time columns on different axes", f"found {', '.join(names)}", "Cast them to one type."
        )
    return axes.pop()


def source_schema(node: Source, axis: str, shape: str, verb: str) -> Schema:
    """Return the schema of a source's stream; raise if a payload column has a name of the lifetime's.

    Also raises if an id, or a column that the progress policy reads, does not exist or has values that cannot be compared; for a
    zone that does not exist, and for times that have one.
    """
    check_names([f.name for f in node.payload], verb)
    if node.zone is not None:
        checked_zone(node.zone, verb)
        for name in node.time_columns:
            kind = Schema(node.columns, axis).type_of(name)
            if not isinstance(kind, t.TimestampNTZType | t.DateType):
                wrong = f"zone={node.zone!r} is for times without a zone"
                raise TypeMismatch(verb, wrong, f"column {name!r} is {kind.simpleString()}", "Leave zone out.")
    schema = Schema(node.payload, axis, shape, node.consumed)
    for name in node.ids:
        check_key(schema.require(name, verb), name, verb, "match")
    beside = Schema(node.columns, axis)
    for name in node.policy.progress_columns:
        of_table = schema if name not in node.beside else beside
        check_key(of_table.require(name, verb), name, verb, "partition")
    return schema


def check_starts(
    le: str,
    refusal: RefusedRows,
    node: Source,
    streaming: bool,
    re: str | None = None,
    read: str | None = None,
    payload: Mapping[str, str] | None = None,
    beside: Sequence[str] = (),
) -> tuple[str, str | None]:
    """Return a source's LE and ``__bad``, as SQL; under ``invalid="fail"`` the reason shows the lifetime.

    A batch then raises the reason instead, and has None for it.

    All columns are SQL. ``re``: a row's end, if it has one. A batch raises when LE is read. ``read``: a
    bigint column that is returned instead of LE, to raise from it, because LE would be read after the rows are filtered by it.
    ``payload``: the payload's columns, unless they have their own names. ``beside``: the columns beside the events that the
    reason shows, where they have values. ``streaming`` is False for a batch.
    """
    read = le if read is None else read
    if node.policy.invalid_in(streaming) != Invalid.FAIL:
        return read, refusal.why
    axis = node.schema.axis
    end = [] if re is None else [text_literal(", end "), _shown(f"nullif({re}, {INFINITY}L)", axis)]
    # NULL if the row is not refused
    reason = f"concat({', '.join((refusal.why, text_literal(' (start '), _shown(le, axis), *end, text_literal(')')))})"
    if streaming:
        return read, reason
    wrong = text_literal(f"streamq.errors.{InvalidEvent.__name__}: source {node.shown_name()}: a row is no event: ")
    mend = text_literal(f". {MEND_THE_SOURCE}")
    message = f"concat({wrong}, {reason}, {_shown_payload(node, payload)}, {_shown_beside(beside)}, {mend})"
    raised = f"cast(raise_error({message}) as bigint)"
    # never NULL: Spark need not look for NULLs before it compares or joins by it
    return f"coalesce(CASE WHEN {refusal.is_wrong} THEN {raised} ELSE {read} END, 0L)", None


def deduplicate(node: InsertSource, df: DataFrame) -> DataFrame:
    """Deduplicate by id and start: keep the row least by (end, payload), drop rows equal to it, refuse different ones.

    A source without ids keeps all rows.
    """
    if not node.ids:
        return df
    whole = [F.col(RE), *(orderable(F.col(quote(f.name)), f.type) for f in node.payload if f.name not in node.ids)]
    event = Window.partitionBy(*(quote(name) for name in node.ids), LE).orderBy(*whole)
    first, row = F.row_number().over(event) == 1, F.struct(*(c.alias(f"_{i}") for i, c in enumerate(whole)))
    df = df.withColumns({"__first": first, "__same": row.eqNullSafe(F.first(row).over(event))})
    refusal = RefusedRows.single("NOT __first", "two rows of one id and start that differ")
    df = df.where(F.col("__first") | ~F.col("__same"))
    return without_refused(df, refusal, node, RE).drop("__first", "__same")


def without_refused(df: DataFrame, refusal: RefusedRows, node: Source, re: str | None = None) -> DataFrame:
    """Return the items of a batch that are not refused; under ``invalid="fail"`` reading LE raises the reason."""
    return without_bad(df, LE, *check_starts(LE, refusal, node, False, re))


def without_bad(df: DataFrame, name: str, read: str, reason: str | None) -> DataFrame:
    """Return rows with the column ``name``, whose SQL is ``read``, without those that have a reason to be refused.

    Without a column of reasons ``read`` raises them.
    """
    df = df.withColumn(name, F.expr(read))
    return df if reason is None else keep_good(df.withColumn(BAD, F.expr(reason)))


def _shown_payload(node: Source, columns: Mapping[str, str] | None) -> str:
    """Return a row's payload as SQL, for an error, as Python shows a dict; the end of a line would end the error's text.

    ``columns`` are the payload's as SQL; None: they have their own names.
    """
    parts = [text_literal("; first: {")]
    for number, field in enumerate(node.payload):
        value = f"cast({quote(field.name) if columns is None else columns[field.name]} as string)"
        if isinstance(field.type, t.BooleanType):
            value = f"initcap({value})"
        elif not isinstance(field.type, t.NumericType):
            value = f"concat('\\'', translate({value}, '\\n', ' '), '\\'')"
        parts += [text_literal(f"{', ' if number else ''}{field.name!r}: "), f"coalesce({value}, 'None')"]
    return f"concat({', '.join(parts)}, '}}')"


def _shown_beside(names: Sequence[str]) -> str:
    """Return the columns beside a row that have values as SQL, for an error."""
    values = ((name, f"translate(cast({quote(name)} as string), '\\n', ' ')") for name in names)
    parts = (f"coalesce(concat({text_literal(f'; {name}: ')}, {value}), '')" for name, value in values)
    return f"concat({', '.join(parts)})" if names else "''"


def _shown(ticks: str, axis: str) -> str:
    """Return an instant as text, as SQL; "NULL" for NULL."""
    return f"coalesce(cast({instant_sql(ticks, axis)} as string), 'NULL')"


def keep_good(df: DataFrame) -> DataFrame:
    """Return the rows that are events: those without a reason in ``__bad``."""
    return df.where(F.col(BAD).isNull()).drop(BAD)
