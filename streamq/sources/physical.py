"""Physical: reads inserts, retractions, CTIs and the end in StreamInsight's form ``(kind, LE, RE, REnew, payload)``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from string import ascii_lowercase, ascii_uppercase

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, GroupedData, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, TimestampType

from streamq.choices import Invalid
from streamq.connectors.kafka import EARLIEST
from streamq.connectors.publication import publication
from streamq.connectors.stored_files import AT_ONCE, bytes_of
from streamq.errors import PlanError, TypeMismatch, check_keywords
from streamq.functions.built_in import STRING, BuiltIn, cast_operand, types_accepted
from streamq.operators.input_table import Rows, input_table, source_name
from streamq.operators.operator import BatchRun
from streamq.operators.source import (
    AS_END,
    AS_KIND,
    AS_START,
    Ingress,
    Source,
    axis_of,
    check_starts,
    source_schema,
    without_bad,
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
    refused_starts,
    source_policy,
)
from streamq.plan.expr import Call, Case, Col, Lit
from streamq.plan.footprint import Footprint
from streamq.plan.function import ArrowForm
from streamq.plan.lowering import orderable
from streamq.plan.node import ADDED, Traits, node
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, check_key, quote
from streamq.progress_policies import ExplicitCtis, ProgressArgument
from streamq.runtime.deltas import CTI, END, INSERT, KIND, LE, NEW_END, NO_START, RE, RETRACT
from streamq.runtime.hosts.packer import Items, Mark
from streamq.runtime.hosts.result_rows import STAMP
from streamq.runtime.kernels.physical import PhysicalKernel
from streamq.stream import Stream
from streamq.time import INFINITY, TIMESTAMP, instant_ticks, show_ticks

AS_SENT = "it says when a row was sent, and is no part of an event"
"""The role of the column that stamps rows."""


@dataclass(frozen=True, eq=False)
class PlainCase(BuiltIn):
    """Spark's ``translate`` of A to Z into a to z: no other letter is one of a kind's, and Arrow knows these as Spark does."""

    def is_exact(self, operands: Sequence[DataType], result: DataType) -> bool:
        return True


TRANSLATE = PlainCase(
    "translate",
    result=StringType(),
    arrow=ArrowForm(
        types_accepted(STRING, STRING, STRING), lambda operands, kind: pc.ascii_lower(cast_operand(operands[0], kind))
    ),
    total=True,
)

_UNMATCHED = RefusedRows.single("__w < 0", "a retraction that matches nothing")


@node
class Physical(Source):
    """Reads rows of ``table`` whose ``kind`` is insert, retract, cti or end; a CTI's instant is in ``start``.

    An end is the CTI at infinity: of the events nothing changes any more, and the input has ended.

    With ``id``, equal ids identify one event; without, a retraction applies to an event of equal lifetime and payload. With
    ``sent``, a column of timestamps, rows sent after ``as_of``, in microseconds since 1970, are not read.
    """

    table: str
    columns: tuple[Field, ...]
    kind: str
    start: str
    end: str
    new_end: str
    id: str | None = None
    policy: SourcePolicy = SourcePolicy(progress=ExplicitCtis())
    beside: tuple[str, ...] = field(default=(), metadata=ADDED)
    zone: str | None = field(default=None, metadata=ADDED)
    sent: str | None = field(default=None, metadata=ADDED)
    as_of: int | None = field(default=None, metadata=ADDED)

    title = "physical"

    @property
    def footprint(self) -> Footprint:
        events, looked_up = "events not settled", "an insert is appended"
        if self.id is not None:
            events = "events, deleted ones too, until every finite end that they have had is settled; retractions applied to them"
            looked_up = "an insert is looked up among the events held"
        return Footprint(
            cti="c, the greatest CTI row; or generated from the data",
            final="settled events",
            keeps=f"{events}; retractions whose insert is still to come",
            opens="parts, the events that items concern, and those that are due",
            cost=f"{looked_up}; a retraction is looked up among the events of its start, or id",
        )

    @property
    def roles(self) -> dict[str, str]:
        sent = {} if self.sent is None else {self.sent: AS_SENT}
        return {self.kind: AS_KIND, self.start: AS_START, self.end: AS_END, self.new_end: AS_END, **sent}

    def _schema(self) -> Schema:
        """Return the payload's schema; raise TypeMismatch if ``kind`` is no string column, and for an id that cannot match."""
        kind = Schema(self.columns, "integer").require(self.kind, "physical")
        if not isinstance(kind, StringType):
            raise TypeMismatch(
                "physical",
                f"column {self.kind!r} holds no kinds of rows",
                f"it is a {kind.simpleString()}",
                "A kind is 'insert', 'retract' or 'cti'.",
            )
        axis = axis_of(self.columns, (self.start, self.end, self.new_end), "physical")
        if self.sent is not None:
            sent = Schema(self.columns, axis).require(self.sent, "physical")
            if not isinstance(sent, TimestampType):
                wrong = f"column {self.sent!r} holds no instants at which rows were sent"
                hint = "run(output='changelog', stamped=True) writes them; name the column: sent=..."
                raise TypeMismatch("physical", wrong, f"it is a {sent.simpleString()}", hint)
        schema = source_schema(self, axis, INTERVAL, "physical")
        if self.id is not None:
            check_key(schema.require(self.id, "physical"), self.id, "physical", "match")
        return schema

    def _traits(self) -> Traits:
        return Traits(retracts=True, moves_ends=True, infinite=True)

    def detail(self) -> str:
        times = f"start={self.start}, end={self.end}, new_end={self.new_end}"
        id = f", id={self.id}" if self.id else ""
        as_of = "" if self.as_of is None else f", {self.sent} up to {show_ticks(self.as_of, TIMESTAMP)}"
        return f"{self.shown_name()}, kind={self.kind}, {times}{id}{self.shown_beside()}{as_of}"

    def define_items(self) -> Iterable[ItemRule]:
        """Add ``__kind`` in lower case, ``__le``, ``__re`` and ``__new``; refuse other kinds, and times in the wrong order.

        An end becomes a CTI at infinity.
        """
        kind, has_lifetime, is_end = Col(KIND), Col(KIND).isin(INSERT, RETRACT), Col(KIND) == END
        is_unsent = (
            () if self.sent is None else (RowRefusal(Col(self.sent).is_null(), Lit("no instant at which it was sent")),)
        )
        return (
            ItemColumn(KIND, Call(TRANSLATE, (Col(self.kind), Lit(ascii_uppercase), Lit(ascii_lowercase)))),
            TickColumn(LE, self.start),
            ItemColumn(LE, Case((is_end, Lit(INFINITY), Col(LE)))),
            ItemColumn(KIND, Case((is_end, Lit(CTI), Col(KIND)))),
            TickColumn(RE, self.end, INFINITY),
            TickColumn(NEW_END, self.new_end, INFINITY),
            *is_unsent,
            RowRefusal(
                ~kind.isin(INSERT, RETRACT, CTI) | kind.is_null(), Lit("a kind that is not insert, retract, cti or end")
            ),
            RowRefusal(Col(LE).is_null(), Lit(NO_START)),
            *refused_starts(among=has_lifetime),
            RowRefusal(has_lifetime & (Col(RE) <= Col(LE)), Lit("end not after start")),
            RowRefusal((kind == RETRACT) & (Col(NEW_END) < Col(LE)), Lit("new end before start")),
        )

    def on_spark(self, table: DataFrame, streaming: bool) -> DataFrame:
        """Return the items of the rows that were sent up to ``as_of``, and of those without that instant, to be refused."""
        if self.as_of is not None:
            assert self.sent is not None
            sent = F.col(quote(self.sent))
            table = table.where(sent.isNull() | (F.unix_micros(sent) <= F.lit(self.as_of)))
        return super().on_spark(table, streaming)

    def rows_in_arrow(self, table: pa.Table, streaming: bool) -> pa.Table:
        """Return the same items of a table."""
        if self.as_of is not None:
            assert self.sent is not None
            sent = table.column(self.sent).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
            table = table.filter(pc.fill_null(pc.less_equal(sent, self.as_of), True))
        return super().rows_in_arrow(table, streaming)

    @property
    def items(self) -> Items:
        is_cti = Mark(KIND, CTI)
        return Items(starts=~is_cti, ctis=is_cti, until=RE)

    @property
    def ingress(self) -> Ingress:
        """The kernel that matches retractions with their events, in buckets by id or, without ids, by start."""
        kernel = PhysicalKernel(tuple(f.name for f in self.payload), self.id)
        hashed = (self.id,) if self.id else (LE,)
        return Ingress(kernel, (KIND, RE, NEW_END), hashed, "match retractions with their events")

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Return the events that are left once retractions are applied: sum signed deltas by (LE, RE, payload), or by id.

        Under ``invalid="drop"`` retractions that match nothing are left out, else they raise. CTIs are no events.
        """
        df = self.good_items(run).where(F.col(KIND) != CTI)
        if self.id is not None:
            return _by_id(self, df)
        retraction = F.array(_delta(RE, -1, to=F.col(NEW_END)), _delta(NEW_END, 1))
        deltas = F.when(F.col(KIND) == INSERT, F.array(_delta(RE, 1, inserts=1))).otherwise(retraction)
        payload = [quote(f.name) for f in self.payload]
        df = df.select(LE, *payload, F.inline(deltas))
        # moving an end back to the start deletes the event: an empty lifetime is no event
        df = df.where(F.col(RE) > F.col(LE))
        df = df.groupBy(LE, *payload, RE).agg(
            F.sum("__w").alias("__w"), F.sum("__inserts").alias("__inserts"), F.collect_list("__to").alias("__to")
        )
        if self.policy.invalid_in(False) == Invalid.DROP:
            df = _without_unmatched(df.groupBy(LE, *payload))
        checked = check_starts(LE, _UNMATCHED, self, False, RE, "__w")
        df = without_bad(df, "__w", *checked).where(F.col("__w") > 0)
        copies = F.explode(F.sequence(F.lit(1), F.col("__w").cast("int")))
        return df.select(LE, RE, *payload, copies.alias("__copy")).drop("__copy")


@check_keywords
def physical(
    df: Rows,
    *,
    kind: str = "kind",
    start: str = "start",
    end: str = "end",
    new_end: str = "new_end",
    id: str | None = None,
    sent: str | None = None,
    as_of: datetime | None = None,
    beside: str | Sequence[str] = (),
    zone: str | None = None,
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Read a physical stream: rows that insert events, retract them, or carry a CTI.

    ``kind`` holds "insert", "retract", "cti" or "end". An insert is an event on ``[start, end)``; a retraction moves the end of
    an event to ``new_end``, or deletes the event if that equals ``start``; a CTI has its instant in ``start``; an end is the CTI
    after which nothing comes, with the ``until`` of :meth:`Run.finish` in ``end``, if that had one. A retraction matches an event
    of the same ``id`` and end, if the stream has ids, else of the same start, end and payload; one without a match is no event:
    see ``invalid``. Items of one instant need no order: a retraction names the end that it moves. ``progress`` defaults to
    ``sq.explicit()``. The other arguments and the errors are those of :func:`points`.

    With ``id``, a column whose values identify events, rows may be delivered more than once. A second insert of an id, alive
    or deleted, is a duplicate, dropped and counted (``run.late``); if its start, end or payload differ, it is no event. A
    retraction that does not have the event's current end, but repeats one that was applied before, is a duplicate, too; an
    end may move to and fro if its retractions come in order. In batch all retractions count, unless an end would be left more
    often than it was reached: then equal ones count once. An event is remembered until the CTI has passed every finite end
    that it has had; repetitions after that are late. Without ``id`` each of several equal inserts is an event.

    This reads back a changelog that ``run(output="changelog", ctis=True)`` wrote; one without CTIs needs ``sq.generate``, which
    reads neither CTIs nor the end::

        corrected = sq.physical(spark.readStream.schema(changes.schema).parquet("changes"))

    A changelog of a run with ``stamped=True`` has a column ``sent``, the instant at which each row was sent; ``sent`` names the
    column. With ``as_of``, a datetime (UTC without a zone), the changelog is read as it stood then: rows sent later are not read,
    and ``sent`` need not be named. Without ``as_of`` it only says that the column is no payload. A row without the instant is no
    event. Raises TypeMismatch if the column has no timestamps::

        then = sq.physical(spark.read.parquet("changes"), as_of=datetime(2026, 11, 5, 12))

    If that run had a late sink, its files also have a column ``streamq_batch``, the number of the micro-batch, which is
    dropped.
    """
    table = input_table(df, "physical")
    axis = axis_of(table.columns, (start, end, new_end), "physical")
    policy = source_policy("physical", axis, progress, late, invalid, parts=table.parts, explicit_by_default=True)
    if not (id is None or isinstance(id, str)):
        raise PlanError("physical", "id is the name of one column", f"found {id!r}")
    until = instant_ticks(as_of, TIMESTAMP, "physical")
    stamp = STAMP if sent is None and as_of is not None else sent
    consumed = (kind, start, end, new_end, *((id,) if id else ()), *((stamp,) if stamp else ()))
    aside = beside_columns(beside, table, consumed, "physical")
    times = (kind, start, end, new_end)
    source = Physical(
        source_name(name), table.columns, *times, id=id, policy=policy, beside=aside, zone=zone, sent=stamp, as_of=until
    )
    return Stream(source, {source.table: table.rows})


@check_keywords
def subscribe(name: str, *, store: str, start: str = EARLIEST, at_once: int | str | None = AT_ONCE) -> Stream:
    """Read what the run of another query publishes by a name, with :func:`publish`, in this process or in another one.

    The stream has the events of that query's answer, with its retractions, its progress and its end: as the input of a query, it
    gives the answer that both queries would have as one. In a batch and in-process (``show()``, ``to_arrow()``), it is what has
    been published so far. ``at_once`` is that of :func:`files`.

    ``start``: "earliest", the whole history; "latest", the events that start from now on; "snapshot", those that live or end
    now, with their whole lifetimes, and later ones. Now is the last CTI that is there when a checkpoint begins, or a batch is
    read: "latest" leaves out events that start before it, "snapshot" those that end before it. A checkpoint goes on where it was.
    Raises SourceError if nothing is published by the name: start its run first.

    ::

        busy = sq.subscribe("per_zone", store="queries").where(sq.col("n") > 100)
        run = busy.run(sink="busy", checkpoint="checkpoint_of_busy")
    """
    rows = publication(name, store, "subscribe", start, bytes_of(at_once, "subscribe"))
    stream = physical(rows, name=name)
    # of points a change of an end is a deletion
    return stream.to_points() if rows.description.shape == POINT else stream


def _by_id(node: Physical, df: DataFrame) -> DataFrame:
    """Return one event per id: its insert, with the end that its retractions lead to, however often each row is delivered.

    A bag does not tell repeated retractions from an end that moves to and fro, so all of them count. Only if an end would then
    be left more often than it was reached, each distinct retraction counts once. Of different inserts of an id the least by
    (start, end, payload) stays; the others, and retractions that match nothing, are refused.
    """
    assert node.id is not None
    id = quote(node.id)
    rest = [f for f in node.payload if f.name != node.id]
    inserts = F.col(KIND) == INSERT
    whole = [F.col(LE), F.col(RE), *(orderable(F.col(quote(f.name)), f.type) for f in rest)]
    event = Window.partitionBy(id, KIND).orderBy(*whole)
    row = F.struct(*(c.alias(f"_{i}") for i, c in enumerate(whole)))
    first, same = F.row_number().over(event) == 1, row.eqNullSafe(F.first(row).over(event))
    once = F.row_number().over(Window.partitionBy(id, KIND, RE, NEW_END).orderBy(LE)) == 1
    df = df.repartition(F.col(id)).withColumns({"__first": first, "__same": same, "__once": once.cast("int")})
    df = df.where(~inserts | F.col("__first") | ~F.col("__same"))
    df = df.withColumn("__other", inserts & ~F.col("__first"))
    df = without_refused(df, RefusedRows.single("__other", "two events of one id"), node, RE)

    once = F.col("__once")
    retraction = F.array(_delta(RE, -1, -once, to=F.col(NEW_END)), _delta(NEW_END, 1, once))
    insert = F.when(inserts, F.struct(LE, *(quote(f.name) for f in rest)))
    deltas = F.when(inserts, F.array(_delta(RE, 1, inserts=1))).otherwise(retraction)
    df = df.select(id, F.col(LE).alias("__at"), insert.alias("__insert"), F.inline(deltas))
    df = df.groupBy(id, RE).agg(
        F.sum("__w").alias("__every"),
        F.sum("__once").alias("__once"),
        F.sum("__inserts").alias("__inserts"),
        F.collect_set("__to").alias("__to"),
        F.min("__at").alias("__at"),
        F.first("__insert", ignorenulls=True).alias("__insert"),
    )
    whose = Window.partitionBy(id)
    weight = F.when(F.min("__every").over(whose) < 0, F.col("__once")).otherwise(F.col("__every"))
    insert = F.first("__insert", ignorenulls=True).over(whose)
    df = df.select(id, "__at", RE, weight.alias("__w"), "__inserts", "__to", insert.alias("__insert"))
    if node.policy.invalid_in(False) == Invalid.DROP:
        df = _without_unmatched(df.groupBy(id), "__at", "__insert")
    start = f"coalesce(__insert.{LE}, __at)"
    # one condition: of two, Spark might drop a row by the other before it reads the weight
    events = f"CASE WHEN __insert IS NOT NULL AND {RE} > {start} THEN __w ELSE 0L END"
    payload = {f.name: f"__insert.{quote(f.name)}" for f in rest} | {node.id: id}
    checked = check_starts(start, _UNMATCHED, node, False, RE, events, payload)
    df = without_bad(df.withColumn(LE, F.expr(start)), "__w", *checked).where(F.col("__w") > 0)
    return df.select(LE, RE, *(F.col(payload[f.name]).alias(f.name) for f in node.payload))


def _delta(end: str, weight: int, once: Column | None = None, inserts: int = 0, to: Column | None = None) -> Column:
    """Return a struct that says by how much a row changes the number of events with an end.

    ``end``: the column of the end; ``weight``: the change; ``once``: the change if repeated rows count once, default ``weight``;
    ``inserts``: the number of events inserted with it; ``to``: the new end of an event that the row takes from it.
    """
    once = F.lit(weight) if once is None else once
    to = F.lit(None).cast("bigint") if to is None else to
    fields = {RE: F.col(end), "__w": F.lit(weight), "__once": once, "__inserts": F.lit(inserts), "__to": to}
    return F.struct(*(column.alias(name) for name, column in fields.items()))


def _without_unmatched(events: GroupedData, *carried: str) -> DataFrame:
    """Return the ends of each event with their numbers ``__w``, 0 too, without retractions that match no event.

    ``events``: deltas, as of ``_delta``, grouped by all that identifies an event. ``carried``: further columns to keep.
    If an end is left more often than it is reached, some retraction matches nothing. Then the retractions are applied one by one,
    from the inserts on. A bag has no order: of several retractions that leave one end, those with the least new end match.
    """
    ends = F.collect_list(F.struct(RE, "__w", "__inserts", "__to"))
    df = events.agg(ends.alias("__ends"), F.min("__w").alias("__least"), *(F.first(n).alias(n) for n in carried))
    totals = F.transform("__ends", lambda e: F.struct(e[RE].alias(RE), e["__w"].alias("__w")))
    weights = F.when(F.col("__least") < 0, _applied_counts(F.col("__ends"))).otherwise(totals)
    return df.select("*", F.inline(weights)).drop("__ends", "__least")


def _applied_counts(ends: Column) -> Column:
    """Count the events at each end after applying the retractions that match; in rounds, since one may enable another.

    ``ends`` is an array of structs: the end, the number of inserts with it, and the new ends of retractions that leave it. The
    result is an array of structs ``RE`` and ``__w``.
    """

    def leaving(end: Column) -> Column:
        return F.transform(end["__to"], lambda to: F.struct(end[RE].alias("re"), to.alias("to")))

    def move(state: Column, to: Column) -> Column:
        """Apply a retraction to the counts if there is an event at its end, else add it to those ``left``."""
        counts, left = state["counts"], state["left"]
        after = F.transform_values(
            counts, lambda end, n: n + F.when(end == to["to"], 1).otherwise(0) - F.when(end == to["re"], 1).otherwise(0)
        )
        matches = counts[to["re"]] > 0
        return F.struct(
            F.when(matches, after).otherwise(counts).alias("counts"),
            F.when(matches, left).otherwise(F.array_append(left, to)).alias("left"),
            state["before"].alias("before"),
        )

    def one_round(state: Column, _: Column) -> Column:
        """Try all retractions that are left, unless the last round has applied none."""
        many, none = F.size(state["left"]), F.filter(state["left"], lambda _: F.lit(False))
        start = F.struct(state["counts"], none.alias("left"), many.alias("before"))
        return F.when(many < state["before"], F.aggregate(state["left"], start, move)).otherwise(state)

    moves = F.array_sort(F.flatten(F.transform(ends, leaving)))
    inserted = F.map_from_entries(F.transform(ends, lambda e: F.struct(e[RE], e["__inserts"])))
    start = F.struct(inserted.alias("counts"), moves.alias("left"), (F.size(moves) + 1).alias("before"))
    counts = F.aggregate(moves, start, one_round)["counts"]
    return F.transform(F.map_entries(counts), lambda e: F.struct(e["key"].alias(RE), e["value"].alias("__w")))
