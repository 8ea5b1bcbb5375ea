"""Paths on Spark: the steps by which rows of relations reach the ports of kernels and results, and the columns they bring.

Rows that a step drops stay in the DataFrame, flagged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamq.compiler.staged_plan import Feed, Relation, StagedPlan
from streamq.operators.operator import NOBODY, Observer
from streamq.operators.step import SparkRows
from streamq.plan.expr import Expr
from streamq.plan.lowering import DeltaColumns, as_key, end_column, to_spark
from streamq.plan.passes import infer, is_opaque
from streamq.plan.schema import Schema, quote
from streamq.runtime.deltas import KEEP, LE, RE, WEIGHT
from streamq.runtime.hosts.processor import WideRowLayout


class FlaggedRows(SparkRows):
    """The rows of a micro-batch, with a column ``__keep``: False for rows that a step has dropped.

    Dropped rows still move progress, so they stay, but expressions are no longer evaluated on them. Columns beside the payload
    are passed on.
    """

    def __init__(self, frame: DataFrame, schema: Schema, tables: Mapping[str, DataFrame]):
        """Take a DataFrame that has ``__keep``, the schema of its payload, and the static tables by name."""
        self.frame, self.schema, self.tables = frame, schema, tables

    def _with_frame(self, frame: DataFrame, schema: Schema | None = None) -> FlaggedRows:
        """Return the rows of another DataFrame, with the same tables; None: the same schema."""
        return FlaggedRows(frame, schema or self.schema, self.tables)

    def evaluate(self, expr: Expr) -> Column:
        """Return an expression as a Spark column that is evaluated only on kept rows."""
        return guarded(expr, self.schema)

    def filter(self, is_kept: Column) -> FlaggedRows:
        """Flag the rows where the condition is false or NULL as dropped."""
        return self._with_frame(self.frame.withColumn(KEEP, F.col(KEEP) & F.coalesce(is_kept, F.lit(False))))

    def with_payload(self, columns: Mapping[str, Column], schema: Schema) -> FlaggedRows:
        """Replace the payload by these columns; all columns beside the payload stay."""
        technical = [F.col(quote(name)) for name in self.frame.columns if name not in self.schema.names]
        payload = [column.alias(name) for name, column in columns.items()]
        return self._with_frame(self.frame.select(*technical, *payload), schema)

    def with_lifetimes(self, start: Column, end: Column, is_alive: Column, schema: Schema) -> FlaggedRows:
        """Replace the lifetimes of kept rows, others by NULL; flag rows where ``is_alive`` is false or NULL as dropped."""
        is_kept = F.col(KEEP) & F.coalesce(is_alive, F.lit(False))
        lifetimes = {"__start": F.when(F.col(KEEP), start), "__end": F.when(F.col(KEEP), end), KEEP: is_kept}
        rest = [F.col(quote(name)) for name in self.frame.columns if name not in (LE, RE, KEEP)]
        frame = self.frame.select(*rest, *(column.alias(name) for name, column in lifetimes.items()))
        return self._with_frame(frame.withColumnsRenamed({"__start": LE, "__end": RE}), schema)

    def join(self, table: DataFrame, on: Sequence[tuple[str, str]], inner: bool, schema: Schema) -> FlaggedRows:
        """Join kept rows with a static table; ``inner``: rows without a match are flagged as dropped.

        ``on``: pairs of a column of the rows and one of the table. The table's other columns are added, NULL without a match.
        """
        # only kept rows are looked up in the table; each of the others stays one row
        keys = {f"__key{i}": F.when(F.col(KEEP), F.col(quote(ours))) for i, (ours, _) in enumerate(on)}
        is_equal = [F.col(key) == F.col(quote(theirs)) for key, (_, theirs) in zip(keys, on, strict=True)]
        frame = self.frame.withColumns(keys).join(table.withColumn("__matched", F.lit(True)), is_equal, "left")
        if inner:
            frame = frame.withColumn(KEEP, F.col(KEEP) & F.coalesce(F.col("__matched"), F.lit(False)))
        return self._with_frame(frame.drop("__matched", *keys, *(theirs for _, theirs in on)), schema)

    def explode(self, column: str, flatten: bool, schema: Schema) -> FlaggedRows:
        """Return a row for each element of an array; a row with an empty or NULL array stays, flagged as dropped.

        ``flatten``: the element's fields become columns; otherwise the element takes the array's place.
        """
        # a row without elements stays one row, and is no longer kept
        others = [F.col(quote(name)) for name in self.frame.columns if name != column]
        places = F.posexplode_outer(F.when(F.col(KEEP), F.col(quote(column)))).alias("__at", "__element")
        frame = self.frame.select(*others, places)
        frame = frame.withColumn(KEEP, F.col(KEEP) & F.col("__at").isNotNull())
        element = F.col("__element")
        names = (
            [name for name in schema.names if name not in self.schema.names or name == column] if flatten else [column]
        )
        values = {name: element[name] if flatten else element for name in names}
        technical = [F.col(quote(name)) for name in self.frame.columns if name not in self.schema.names]
        payload = [values.get(name, F.col(quote(name))).alias(name) for name in schema.names]
        return self._with_frame(frame.select(*(c for c in technical), *payload), schema)


def guarded(expr: Expr, schema: Schema) -> Column:
    """Return a Spark column that is evaluated only on kept rows, and is NULL on the others.

    A column or a constant by itself has nothing to evaluate, so it is returned as it is, on all rows.
    """
    column = to_spark(expr, DeltaColumns(schema), F.col(KEEP))
    return column if not expr.children and not is_opaque(expr) else F.when(F.col(KEEP), column)


IS_EVENT = "__is_event"
"""The column that says of a source's row whether it is an event, and not a CTI or a row to be refused."""

COPY = "__copy"
"""The column that numbers the copies of a row, each for one path that makes several rows of it."""


@dataclass(frozen=True)
class StreamLowering:
    """A program, the tables that its sources read, and the observer that receives the DataFrames of every node."""

    program: StagedPlan
    tables: Mapping[str, DataFrame]
    observer: Observer = NOBODY


@dataclass(frozen=True)
class ExtraColumns:
    """The columns that a map side reads beside what channels take: ``outside``, which no path reads, and those of ``rows``."""

    outside: tuple[str, ...] = ("__to", "__channel", "__body")
    rows: tuple[str, ...] = ()


ENVELOPE_COLUMNS = ExtraColumns()
"""The columns of a map side between two stages, which passes envelopes on."""


def apply_paths(
    lowering: StreamLowering,
    relations: list[Relation],
    df: DataFrame,
    beside: ExtraColumns = ENVELOPE_COLUMNS,
    is_delta: Column | None = None,
) -> tuple[DataFrame, WideRowLayout]:
    """Return the relations' rows at the ends of their paths, and the layout that finds each channel's columns in them.

    Each channel's columns are in a struct; those of a single one are plain. ``beside``: the other columns to keep. ``is_delta``
    marks the rows of a source that go along the paths; None: rows go by ``__channel``. Rows that a step drops stay, flagged. A
    single channel's columns are in a struct, too, if its rows were moved, for a source's progress is read off them as they came.
    """
    feeds = [(r, f) for r in relations for f in lowering.program.feeds_of(r)]
    if len(feeds) == 1 and _is_plain(feeds[0][1]):
        relation, feed = feeds[0]
        df = df.withColumn(KEEP, is_delta if is_delta is not None else F.col("__channel") == raw_channel(relation))
        df = apply_steps_on_spark(lowering, feed, df, relation.schema)
        # a column costs: rows that are no events are told by their start or reason
        has_ctis = relation.source is not None and relation.source.items.ctis is not None
        always = not has_ctis and not any(step.effect.drops for step in feed.path.steps)
        df = df.select(*_port(feed, df, [*beside.outside, *beside.rows], always))
        return df, {feed.channel.number: (None, feed.channel.columns)}
    single = len(relations) == 1
    packed: list[str] = []
    all_columns = [n for n in df.columns if n not in beside.outside]
    keeps = {r.number: F.col("__channel") == raw_channel(r) for r in relations}
    if is_delta is not None:
        df = df.withColumn(IS_EVENT, F.coalesce(is_delta, F.lit(False)))
        keeps = {r.number: F.col(IS_EVENT) for r in relations}
    columns_by_channel: dict[int, tuple[str | None, tuple[str, ...]]] = {}
    technical = [*beside.outside, *([] if is_delta is None else [IS_EVENT])]
    df = df.select(*technical, F.struct(*(F.col(quote(n)) for n in all_columns)).alias("__row"))
    df, selections = copy_for_paths(df, feeds, keeps)
    for (relation, feed), is_kept in zip(feeds, selections, strict=True):
        struct = None if single else struct_column(relation)
        fields = all_columns if single else relation_columns(relation)
        base = F.col("__row") if struct is None else F.col("__row")[struct]
        others = list(df.columns)
        side = df.select(*others, *(base[n].alias(n) for n in fields)).withColumn(KEEP, is_kept)
        side = apply_steps_on_spark(lowering, feed, side, relation.schema)
        name = f"__lane{feed.channel.number}"
        df = side.select(*others, F.struct(*_port(feed, side, [])).alias(name))
        packed.append(name)
        columns_by_channel[feed.channel.number] = (name, feed.channel.columns)
    df = df.select(*beside.outside, *(F.col("__row")[n].alias(n) for n in beside.rows), *packed)
    return df, columns_by_channel


def copy_for_paths(
    df: DataFrame, feeds: Sequence[tuple[Relation, Feed]], keeps: Mapping[int, Column]
) -> tuple[DataFrame, list[Column]]:
    """Copy rows so that no path reads rows that another one has made; return them, and a condition for the rows of each feed.

    Every path that makes several rows of one reads a copy of its own, numbered in ``__copy``; the other paths of a relation share
    one. If no path needs a copy, the rows are returned as they are. ``keeps`` has, by a relation's number, the condition for its
    rows; a row of no relation stays single.
    """
    shared = {relation.number for relation, feed in feeds if not feed.path.multiplies}
    last = {relation.number: -1 + (relation.number in shared) for relation, _ in feeds}
    copies: list[int] = []
    for relation, feed in feeds:
        last[relation.number] += feed.path.multiplies
        copies.append(last[relation.number] if feed.path.multiplies else 0)
    if not any(copies):
        return df, [keeps[relation.number] for relation, _ in feeds]
    last_copy = F.lit(0)
    for number, copy in last.items():
        last_copy = F.when(keeps[number], F.lit(copy)).otherwise(last_copy)
    df = df.withColumn(COPY, F.explode(F.sequence(F.lit(0), last_copy)))
    return df, [keeps[r.number] & (F.col(COPY) == copy) for (r, _), copy in zip(feeds, copies, strict=True)]


def _is_plain(feed: Feed) -> bool:
    """Return True if the columns of a single channel can be plain: no step moves its rows."""
    return not any(step.effect.progress_map is not None for step in feed.path.steps)


def apply_steps_on_spark(lowering: StreamLowering, feed: Feed, df: DataFrame, schema: Schema) -> DataFrame:
    """Return the rows of a relation, with ``__keep``, at the end of a path; rows that a step drops are flagged, not removed."""
    rows: SparkRows = FlaggedRows(df, schema, lowering.tables)
    for step in feed.path.steps:
        lowering.observer.rows_in(step, 0, rows.frame)
        rows = step.on_spark(rows)
        lowering.observer.rows_out(step, rows.frame)
    node = lowering.program.nodes.get(feed.channel.reader)
    if node is not None:
        lowering.observer.rows_in(node, feed.channel.port, rows.frame)
    return rows.frame


def _port(feed: Feed, df: DataFrame, outside: list[str], always: bool = False) -> list[Column]:
    """Return the columns that a port takes: payload, lifetimes, and, unless it takes every row (``always``), ``__keep``.

    ``outside``: names of other columns, which come first.
    """
    schema = feed.path.schema
    columns: dict[str, Column] = {n: F.col(n) for n in outside}
    for name, expr in feed.columns:
        column = guarded(expr, schema)
        kind = infer(expr, schema, "stream") if name in feed.hashed else None
        columns[name] = (column if kind is None else as_key(column, kind)).alias(name)
    for name in feed.lifetimes:
        if name == RE:
            columns[RE] = end_column(RE in df.columns).alias(RE)
        elif name == WEIGHT and WEIGHT not in df.columns:
            columns[WEIGHT] = F.lit(1).cast("bigint").alias(WEIGHT)
        else:
            columns[name] = F.col(name)
    if not always:
        columns[KEEP] = F.col(KEEP)
    return list(columns.values())


def raw_channel(relation: Relation) -> int:
    """Return the channel of envelopes with a relation's rows: of a kernel's output, or (``streaming``) into a result."""
    return -100 - relation.number if relation.number >= 0 else -1 - relation.number


def struct_column(relation: Relation) -> str:
    """Return the name of the column that holds a relation's rows if there are several relations."""
    return f"__r{relation.number}"


def relation_columns(relation: Relation) -> list[str]:
    """Return the names of the columns of a relation's rows: lifetime, weight, payload."""
    return [LE, RE, WEIGHT, *relation.schema.names]
