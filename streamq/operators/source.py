"""What all sources share: a table by name, its columns, and a policy; the rows they hand on are lifetimes and payload."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as t

from streamq.choices import Invalid
from streamq.errors import TypeMismatch, sentence, unknown_column
from streamq.operators.operator import BatchRun, Operator
from streamq.operators.source_items import ArrowItems, SourceItems, SparkItems
from streamq.operators.source_policy import SourcePolicy
from streamq.plan.keys import check_key
from streamq.plan.lowering import instant, orderable
from streamq.plan.schema import POINT, Field, Schema, check_names, quote
from streamq.runtime.consistency import AlignAt
from streamq.runtime.event import BAD, LE, RE
from streamq.runtime.items import Items
from streamq.runtime.kernel import Kernel
from streamq.time import INFINITY, INTEGER, TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


AS_START, AS_END = "it is sq.start() now", "it is sq.end() now"
AS_KIND = "it says what a row is, and is no part of an event"
"""What has become of the columns that sources consume."""


@dataclass(frozen=True)
class Ingress:
    """The kernel that makes events of a source's items, at the beginning of a stream.

    ``columns``: beside starts and payload what it takes of an item; ``hashed``: whose values decide on its bucket; ``title`` says
    for explain what it does; ``aligns`` where the level of consistency holds events back.
    """

    kernel: Kernel
    columns: tuple[str, ...]
    hashed: tuple[str, ...]
    title: str
    aligns: AlignAt = AlignAt.OUTPUT


class Source(Operator):
    """A leaf: the rows of ``table`` read as events. ``columns`` are all of the table's, in order."""

    table: str
    columns: tuple[Field, ...]
    policy: SourcePolicy
    ids: tuple[str, ...] = ()

    @property
    @abstractmethod
    def consumed(self) -> dict[str, str]:
        """The columns that give lifetimes and kinds, and what each is in expressions; they are no payload."""

    @abstractmethod
    def define_items(self, items: SourceItems[Any]) -> None:
        """Add the columns of items beside the payload, and the reasons why a row is no event."""

    def on_spark(self, table: DataFrame, streaming: bool) -> DataFrame:
        """Return every row of a table as an item: ``__le`` and what else is known of its lifetime, payload, ``__bad``."""
        from pyspark.sql import functions as F

        items = SparkItems(self.columns)
        self.define_items(items)
        assert items.reason is not None
        le, reason = check_starts(items.columns[LE], items.reason, self, streaming, items.columns.get(RE))
        columns = {**items.columns, LE: le, **{f.name: F.col(quote(f.name)) for f in self.payload}, BAD: reason}
        return table.select(*(column.alias(name) for name, column in columns.items()))

    def good_items(self, run: BatchRun) -> DataFrame:
        """Return the items of a batch that are not refused."""
        return keep_good(self.on_spark(run.tables[self.table], False))

    @property
    def items(self) -> Items:
        """Return which of the items start events and which carry CTIs; unless a source says otherwise, each inserts an event."""
        return Items()

    @property
    def ingress(self) -> Ingress | None:
        """The kernel that makes events of the items; None where every item is an insert."""
        return None

    @property
    def insert_only(self) -> bool:
        """Whether every item is an event, so that none is ever taken back."""
        return self.ingress is None

    @property
    def gives_points(self) -> bool:
        """Whether every item is a point, of which nothing is left once it is late."""
        return self.insert_only and self.schema.shape == POINT

    def rows_in_arrow(self, table: pa.Table, streaming: bool) -> pa.Table:
        """The items of a table with payload and ``__bad``; under ``invalid="fail"`` the first reason says the lifetime."""
        items = ArrowItems(self.columns, table)
        self.define_items(items)
        reason = items.reason
        if self.policy.invalid_in(streaming) == Invalid.FAIL:
            reason = items.reason_with_lifetime(self.schema.axis)
        payload = {f.name: table.column(f.name) for f in self.payload}
        carried = {column: table.column(name) for name, column in self.policy.progress.carried_columns.items()}
        return pa.table({**items.columns, **payload, BAD: reason, **carried})

    @property
    def payload(self) -> tuple[Field, ...]:
        """The columns that stay."""
        return tuple(f for f in self.columns if f.name not in self.consumed)

    def shown_name(self) -> str:
        """The table's name as explain and messages show it."""
        return f"{self.title}{self.table.removeprefix('#')}" if self.table.startswith("#") else self.table


class InsertSource(Source):
    """A source of inserts whose rows of equal ``ids`` and start, if it has ids, are one event, however often delivered."""

    cases = ("with id", "without id")

    @property
    def case(self) -> tuple[str, ...]:
        return ("with id" if self.ids else "without id",)

    def shown_ids(self) -> str:
        """Its ids, for explain."""
        return f", id=[{', '.join(self.ids)}]" if self.ids else ""


def axis_of(fields: tuple[Field, ...], names: tuple[str, ...], verb: str) -> str:
    """The one axis of all time columns; raises UnknownColumn, or TypeMismatch for a column that is no time."""
    schema = Schema(fields, INTEGER)
    axes = set()
    for name in names:
        if name not in schema.names:
            unknown_column(verb, name, schema.names, lifetime=False)
        kind = schema.type_of(name)
        if isinstance(kind, t.TimestampType | t.TimestampNTZType | t.DateType):
            axes.add(TIMESTAMP)
        elif isinstance(kind, t.ByteType | t.ShortType | t.IntegerType | t.LongType):
            axes.add(INTEGER)
        else:
            raise TypeMismatch(
                sentence(
                    verb,
                    f"column {name!r} is no time",
                    f"found {kind.simpleString()}",
                    "Times are timestamps, dates or integers; cast it first.",
                )
            )
    if len(axes) != 1:
        raise TypeMismatch(
            sentence(verb, "time columns on different axes", f"found {', '.join(names)}", "Cast them to one type.")
        )
    return axes.pop()


def source_schema(node: Source, axis: str, shape: str, verb: str) -> Schema:
    """The stream's schema: the payload, checked for names that clash with the lifetime's.

    Ids, and columns that its progress reads, are checked for being there and for values that can be compared.
    """
    check_names([f.name for f in node.payload], verb)
    schema = Schema(node.payload, axis, shape, node.consumed)
    for name in node.ids:
        check_key(schema.require(name, verb), name, verb, "match")
    for name in node.policy.progress.columns:
        check_key(schema.require(name, verb), name, verb, "partition")
    return schema


def check_starts(
    le: Column,
    reason: Column,
    node: Source,
    streaming: bool,
    re: Column | None = None,
    read: Column | None = None,
    payload: Mapping[str, Column] | None = None,
) -> tuple[Column, Column]:
    """A source's LE and ``__bad``: under ``invalid="fail"`` the reason says the lifetime, and in batch reading LE raises it.

    ``read``: a bigint column that takes the place of LE. Where rows are filtered by it, LE would be read too late. ``payload``:
    the columns of the payload where they are not under their own names.
    """
    from pyspark.sql import functions as F

    read = le if read is None else read
    if node.policy.invalid_in(streaming) != Invalid.FAIL:
        return read, reason
    axis = node.schema.axis
    end = [] if re is None else [F.lit(", end "), _shown(F.when(re != INFINITY, re), axis)]
    reason = F.when(reason.isNotNull(), F.concat(reason, F.lit(" (start "), _shown(le, axis), *end, F.lit(")")))
    if not streaming:
        wrong = F.lit(f"[streamq] source {node.shown_name()}: a row is no event: ")
        message = F.concat(wrong, reason, _shown_payload(node, payload))
        raised = F.raise_error(message).cast("bigint")
        return F.when(reason.isNull(), read).otherwise(raised), F.lit(None).cast("string")
    return read, reason


def deduplicate(node: InsertSource, df: DataFrame) -> DataFrame:
    """Of the events of one id and start the least by (end, payload): what is equal to it repeats it, the others are none."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if not node.ids:
        return df
    whole = [F.col(RE), *(orderable(F.col(quote(f.name)), f.type) for f in node.payload if f.name not in node.ids)]
    event = Window.partitionBy(*(quote(name) for name in node.ids), LE).orderBy(*whole)
    first, row = F.row_number().over(event) == 1, F.struct(*(c.alias(f"_{i}") for i, c in enumerate(whole)))
    df = df.withColumns({"__first": first, "__same": row.eqNullSafe(F.first(row).over(event))})
    reason = F.when(~F.col("__first"), F.lit("two rows of one id and start that differ"))
    df = df.where(F.col("__first") | ~F.col("__same"))
    return without_refused(df, reason, node, F.col(RE)).drop("__first", "__same")


def without_refused(df: DataFrame, reason: Column, node: Source, re: Column | None = None) -> DataFrame:
    """The items of a batch without those that have a reason, which reading LE raises under ``invalid="fail"``."""
    from pyspark.sql import functions as F

    le, reason = check_starts(F.col(LE), reason, node, False, re)
    return keep_good(df.withColumn(LE, le).withColumn(BAD, reason))


def _shown_payload(node: Source, columns: Mapping[str, Column] | None) -> Column:
    """A row's payload as Python shows a dict, for an error; a double quote would end the error's text."""
    from pyspark.sql import functions as F

    parts: list[Column] = []
    for field in node.payload:
        value = (F.col(quote(field.name)) if columns is None else columns[field.name]).cast("string")
        if isinstance(field.type, t.BooleanType):
            value = F.initcap(value)
        elif not isinstance(field.type, t.NumericType):
            value = F.concat(F.lit("'"), F.translate(value, '"\n', "' "), F.lit("'"))
        parts += [F.lit(f"{', ' if parts else ''}{field.name!r}: "), F.coalesce(value, F.lit("None"))]
    return F.concat(F.lit("; first: {"), *parts, F.lit("}"))


def _shown(ticks: Column, axis: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(instant(ticks, axis).cast("string"), F.lit("NULL"))


def keep_good(df: DataFrame) -> DataFrame:
    """The rows that are events."""
    from pyspark.sql import functions as F

    return df.where(F.col(BAD).isNull()).drop(BAD)
