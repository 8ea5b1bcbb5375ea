"""Code generation by stages: lowers a program to one DataFrame, streaming or batch, a linear chain of hosted stages.

Scalar expressions are Spark's; a stage is ``mapInArrow`` (combine, pack into envelopes), ``groupBy(bucket)`` and one generic
stateful processor. The rows of relations reach ports and results by paths of steps; rows that a step drops stay in the DataFrame,
flagged. No code here touches the JVM, so it runs on Spark Connect as well.

Envelopes of buckets are grouped under keys by which tasks get equally many buckets. Spark sends a key to the task ``hash(key)
mod tasks``, which is uneven for consecutive numbers: of eight buckets, two tasks would get five and three, and two buckets
would share a task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import count, zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from streamq.compiler.ports import feed_in_arrow, item_paths
from streamq.compiler.staged_plan import Feed, Relation, StagedPlan
from streamq.connectors.connector import Splits
from streamq.errors import PlanError
from streamq.operators.operator import NOBODY, Observer
from streamq.operators.source import MICRO_BATCH_TIME, Source
from streamq.operators.step import SparkRows
from streamq.plan.expr import Expr
from streamq.plan.lowering import DeltaColumns, as_key, end_column, map_in_arrow, ship_runtime, to_spark
from streamq.plan.passes import infer, is_opaque
from streamq.plan.schema import Schema, quote
from streamq.runtime.arrow.arrow_types import arrow_schema
from streamq.runtime.deltas import BAD, KEEP, LE, NOW, RE, WEIGHT
from streamq.runtime.envelope import BESIDE_RESULTS
from streamq.runtime.hosts.hosted_kernel import TECHNICAL, InnerPath, ItemPaths, OutputPaths
from streamq.runtime.hosts.identity import Identity
from streamq.runtime.hosts.processor import (
    ENVELOPE_DDL,
    MapSide,
    WideRowLayout,
    bucket_runners,
    clock_packer,
    control_packer,
    make_processor,
    opener,
    result_opener,
    result_packer,
    source_packer,
    split_packer,
    stage_packer,
)
from streamq.runtime.hosts.result_rows import PACKED_COLUMNS
from streamq.runtime.hosts.shipping import packed
from streamq.runtime.hosts.stage import Stage
from streamq.runtime.time.lateness import LATE_SCHEMA

SEED = 42
"""The seed of Spark's hash partitioning."""
WORD = 0xFFFFFFFF


def bucket_keys(buckets: int) -> list[int]:
    """Return the key of each bucket, by its number: the least integer whose hash is that number modulo ``buckets``.

    So every task gets equally many buckets if the number of tasks divides that of buckets. The keys depend on nothing else, as
    state lies under them.
    """
    keys: dict[int, int] = {}
    for key in count():
        keys.setdefault(spark_hash(key) % buckets, key)
        if len(keys) == buckets:
            break
    return [keys[number] for number in range(buckets)]


def spark_hash(key: int) -> int:
    """Return Spark's hash of an int: Murmur3 of its four bytes, as an int of 32 bits with a sign."""
    mixed = SEED ^ (_rotated(key * 0xCC9E2D51 & WORD, 15) * 0x1B873593 & WORD)
    mixed = (_rotated(mixed, 13) * 5 + 0xE6546B64 & WORD) ^ 4
    for by, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        mixed = (mixed ^ mixed >> shift) * by & WORD
    mixed ^= mixed >> 16
    return mixed - (mixed >> 31 << 32)


def _rotated(word: int, by: int) -> int:
    """Return a word of 32 bits rotated to the left."""
    return (word << by | word >> 32 - by) & WORD


StageHost = Callable[[Sequence[tuple[Stage, MapSide | None]]], list[Callable[[DataFrame], DataFrame]]]
"""Returns, for each stage, a function from the envelopes that come to it to those that it, or a map side behind it, sends on."""


def stateful_host(identity: Identity) -> StageHost:
    """Return the host of a stream's stages, which keeps their state, and ``identity`` beside it."""

    def run_stage(stage: Stage, behind: MapSide | None, df: DataFrame) -> DataFrame:
        keys = bucket_keys(stage.buckets)
        processor = make_processor(stage, identity, {key: bucket for bucket, key in enumerate(keys)})
        df = df.select(_key_of_bucket(stage.buckets).alias("__to"), "__channel", "__body")
        df = df.groupBy("__to").transformWithStateInPandas(processor, ENVELOPE_DDL, "append", "none")
        return df if behind is None else df.mapInArrow(packed(behind), ENVELOPE_DDL)

    return lambda stages: [partial(run_stage, stage, behind) for stage, behind in stages]


def batch_host(buckets: int) -> StageHost:
    """Return the host of a batch's stages: each runs once, on all envelopes, without state before or after it.

    Spark analyzes each operator, with its expressions, on all below it, so there are two of them a stage.
    """
    key = _key_of_bucket(buckets)

    def run_stage(run: MapSide, df: DataFrame) -> DataFrame:
        return df.repartition(key).mapInArrow(run, ENVELOPE_DDL)

    return lambda stages: [partial(run_stage, run) for run in bucket_runners(stages)]


def _key_of_bucket(buckets: int) -> Column:
    """Return the key under which Spark brings an envelope to its bucket's task, as a column of envelopes."""
    # of an array Spark makes one constant, of a list one for each element
    return F.element_at(F.lit(np.array(bucket_keys(buckets), np.int32)), F.col("__to") + 1)


def build_frame(
    lowering: StreamLowering, stage_host: StageHost, *, control: DataFrame | None = None, clock: DataFrame | None = None
) -> DataFrame:
    """Return the DataFrame of a program: results, late rows and reports, distinguished by ``__channel``.

    ``stage_host`` hosts the stages. ``control`` holds rows of CONTROL_DDL; None where nobody can write any.
    ``clock`` holds rows ``now bigint``, and has some whenever time has passed; None where no source follows the clock.
    Reports are in ``__report``: the totals and readings of each bucket, as JSON.
    """
    ship_runtime()
    program = lowering.program
    sources = {r.source.table: r.name for r in program.sources if r.source}
    envelopes = [_packed_source(lowering, r) for r in program.sources]
    buckets = program.options.buckets
    if control is not None:
        envelopes.append(control.mapInArrow(control_packer(sources, buckets), ENVELOPE_DDL))
    if clock is not None:
        # Spark asks the first source first: what has come by then is in the offsets of those behind it
        envelopes.insert(0, clock.mapInArrow(clock_packer(program.clock_policies, buckets), ENVELOPE_DDL))
    df = reduce(lambda a, b: a.unionAll(b), envelopes)
    # the last stage's relations are results, and one that a changed query has emptied only passes envelopes on
    relations_behind = [program.made_at(stage.number + 1) for stage in program.stages[:-1]]
    sides = [_MapSideOfStage(lowering, relations) for relations in relations_behind]
    behind = [side.packer({}) if side.relations and not side.opened else None for side in sides]
    hosted = stage_host([*zip(program.stages, [*behind, None], strict=True)])
    for run_stage, side in zip_longest(hosted, sides):
        df = run_stage(df)
        if side is not None and side.opened:
            df = _opened(side.opened, df)
            _tell_results(lowering, side.opened, df, plain=len(side.opened) == 1)
            df, layout = apply_paths(lowering, side.opened, df)
            df = map_in_arrow(df, packed(side.packer(layout)), ENVELOPE_DDL)
    return _result(lowering, df)


class _MapSideOfStage:
    """The map side behind a stage.

    ``paths``: those that workers compute, by the channel of a relation; ``opened``: the relations with a path that is Spark's.
    """

    def __init__(self, lowering: StreamLowering, relations: list[Relation]):
        of_workers = {relation: _output_paths(lowering, relation) for relation in relations}
        self.relations, self.lowering = relations, lowering
        self.paths = {raw_channel(relation): paths for relation, paths in of_workers.items() if paths is not None}
        self.opened = [relation for relation, paths in of_workers.items() if paths is None]

    def packer(self, layout: WideRowLayout) -> MapSide:
        """Return the function that packs the rows of all relations; ``layout`` finds the columns of those that are opened."""
        return stage_packer(self.lowering.program.packer(self.relations), layout, self.paths)


# map sides


def _tell_results(lowering: StreamLowering, relations: list[Relation], df: DataFrame, *, plain: bool) -> None:
    """Send the rows that kernels have made to the observer; unless they are ``plain``, those of a relation are in a struct."""
    for relation in relations if lowering.observer is not NOBODY else ():
        node = lowering.program.nodes.get(relation.number)
        if node is not None:
            lowering.observer.rows_out(node, df if plain else df.select(f"{struct_column(relation)}.*"))


def _packed_source(lowering: StreamLowering, relation: Relation) -> DataFrame:
    """Return a source's rows as envelopes: its items, at the ends of their paths, and its progress."""
    source = relation.source
    assert source is not None
    if (splits := lowering.splits.get(source.table)) is not None:
        paths = item_paths(lowering.program, relation)
        assert isinstance(paths, ItemPaths)
        packer = split_packer(lowering.program.packer([relation]), splits.read, source.rows_in_arrow, paths)
        now = [] if source.policy.progress.max_ahead is None else [MICRO_BATCH_TIME]
        return map_in_arrow(splits.frame.selectExpr("*", *now), packer, ENVELOPE_DDL)
    df = source.on_spark(lowering.tables[source.table], True)
    lowering.observer.rows_out(source, df)
    is_delta = F.col(BAD).isNull() if BAD in df.columns else F.col(LE).isNotNull()
    if source.items.ctis is not None:
        is_delta = is_delta & (~source.items.ctis).on_spark()
    carried = source.policy.progress_columns.values()
    aside = tuple(name for name in (BAD, NOW) if name in df.columns)
    beside = ExtraColumns(aside, (*source.items.columns, *carried))
    df, layout = apply_paths(lowering, [relation], df, beside, is_delta)
    return map_in_arrow(df, source_packer(lowering.program.packer([relation]), layout), ENVELOPE_DDL)


# opening


def _wide_schema(
    first: list[tuple[str, Any]], relations: list[Relation], *, plain: bool
) -> tuple[Any, dict[int, tuple[str | None, Any]]]:
    """Return an Arrow schema that holds rows of all relations after the columns ``first``, and each relation's place in it.

    ``plain``: the columns of the only relation stand by themselves, which costs less; else each relation has a struct. A place is
    the struct's name, None if plain, and the columns, by the relation's channel.
    """
    fields = [pa.field(n, k) for n, k in first]
    places: dict[int, tuple[str | None, Any]] = {}
    for relation in relations:
        wanted = pa.schema([*((name, pa.int64()) for name in TECHNICAL), *arrow_schema(relation.schema)])
        struct = None if plain else struct_column(relation)
        fields += list(wanted) if struct is None else [pa.field(struct, pa.struct(list(wanted)))]
        places[raw_channel(relation)] = (struct, wanted)
    return pa.schema(fields), places


def _opened(relations: list[Relation], df: DataFrame) -> DataFrame:
    """Return envelopes with the outputs of these relations opened into columns; other envelopes are unchanged."""
    envelope = [("__to", pa.int32()), ("__channel", pa.int32()), ("__body", pa.binary())]
    schema, places = _wide_schema(envelope, relations, plain=len(relations) == 1)
    return df.mapInArrow(opener(places, schema), from_arrow_schema(schema))


def _result(lowering: StreamLowering, df: DataFrame) -> DataFrame:
    """Return the rows of results, late rows and reports, from the last stage's envelopes.

    The rows of a single feed stand in columns, at the end of its path. Those of several are packed: wide rows, with a struct for
    each of many results, would cost each sink more than its own rows.
    """
    program = lowering.program
    last = program.made_at(len(program.stages))
    first = [("__channel", pa.int32()), ("__late", pa.struct(list(LATE_SCHEMA))), ("__report", pa.string())]
    meta = [name for name, _ in first]
    if not program.packs_results:
        (feed,) = program.result_feeds
        passes = program.relations[feed.path.relation] not in last
        relation = _passing(program, feed) if passes else program.relations[feed.path.relation]
        schema, places = _wide_schema(first, [relation], plain=True)
        opener = result_opener(places, {}, schema)
        opened = df.mapInArrow(opener, from_arrow_schema(schema))
        _tell_results(lowering, [relation], opened, plain=True)
        rows = opened.withColumn(KEEP, F.col("__channel") == raw_channel(relation))
        if not passes:
            rows = apply_steps_on_spark(lowering, feed, rows, relation.schema)
        rows = rows.where(F.col(KEEP) | F.col("__channel").isin(*BESIDE_RESULTS))
        return rows.select(*meta, *(F.col(quote(n)) for n in _result_names(program, feed)))
    packed_paths: dict[int, list[tuple[int, InnerPath | None]]] = {}
    paths: list[tuple[Relation, Feed]] = []
    for feed in program.result_feeds:
        relation = program.relations[feed.path.relation]
        assert feed.result is not None
        if relation not in last:
            # an earlier stage has sent the rows in the result's columns
            packed_paths[feed.channel.number] = [(feed.result, None)]
        elif lowering.observer is NOBODY and (inner := feed_in_arrow(program, feed, relation).inner) is not None:
            packed_paths.setdefault(raw_channel(relation), []).append((feed.result, inner))
        else:
            paths.append((relation, feed))
    relations = list({relation.name: relation for relation, _ in paths}.values())
    narrow = pa.schema([*first, *PACKED_COLUMNS])
    schema, places = _wide_schema([*first, *PACKED_COLUMNS], relations, plain=False)
    opener = result_opener(places, packed_paths, schema)
    opened = df.mapInArrow(opener, from_arrow_schema(schema))
    _tell_results(lowering, relations, opened, plain=False)
    if not paths:
        return opened
    side, selections = copy_for_paths(
        opened, paths, {r.number: F.col("__channel") == raw_channel(r) for r in relations}
    )
    beside = [*side.columns]
    structs: dict[str, int] = {}
    for (relation, feed), is_kept in zip(paths, selections, strict=True):
        base = [F.col(struct_column(relation))[n].alias(n) for n in relation_columns(relation)]
        step = side.select(*beside, *structs, *base).withColumn(KEEP, is_kept)
        step = apply_steps_on_spark(lowering, feed, step, relation.schema)
        row = F.struct(*(F.col(quote(n)) for n in _result_names(program, feed)))
        name = f"__out{len(structs)}"
        side = step.select(*beside, *structs, F.when(F.col(KEEP), row).alias(name))
        assert feed.result is not None
        structs[name] = feed.result
    rows = side.select(*narrow.names, *structs)
    return rows.mapInArrow(result_packer(structs, narrow), from_arrow_schema(narrow))


def _output_paths(lowering: StreamLowering, relation: Relation) -> OutputPaths | None:
    """Return the paths of a kernel's output to the next stage, for workers; None if only Spark computes a step of one.

    An observer sees the rows of each node as Spark has them, so with one all paths are Spark's.
    """
    feeds = lowering.program.feeds_of(relation) if lowering.observer is NOBODY else []
    paths = [(feed.channel.number, feed_in_arrow(lowering.program, feed, relation).inner) for feed in feeds]
    inner = [(number, path) for number, path in paths if path is not None]
    return OutputPaths(inner) if inner and len(inner) == len(paths) else None


def _passing(program: StagedPlan, feed: Feed) -> Relation:
    """Return a relation for rows that are in a result's columns already; its number is negative, unlike any kernel's."""
    assert feed.result is not None
    number, behind = feed.channel.number, len(program.stages)
    return Relation(f"result{number}", behind, program.results[feed.result].plan.schema, None, -1 - number)


def _result_names(program: StagedPlan, feed: Feed) -> list[str]:
    """Return the names of the columns of a feed's result: lifetime, weight, payload."""
    assert feed.result is not None
    return [LE, RE, WEIGHT, *program.results[feed.result].plan.schema.names]


def check_streaming(node: Source, df: DataFrame, verb: str) -> None:
    """Raise PlanError if a source of a streaming query is not a streaming DataFrame."""
    if not df.isStreaming:
        raise PlanError(
            verb,
            f"source {node.shown_name()} is not a streaming DataFrame",
            "",
            "Read it with spark.readStream, or ask for the batch answer: q.to_df().",
        )


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

    def with_lifetimes(self, start: Column, end: Column, is_alive: Column | None, schema: Schema) -> FlaggedRows:
        """Replace the lifetimes of kept rows, others by NULL; flag rows where ``is_alive`` is false or NULL as dropped."""
        is_kept = F.col(KEEP) if is_alive is None else F.col(KEEP) & F.coalesce(is_alive, F.lit(False))
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
    """A program, the tables that its sources read, and the observer that receives the DataFrames of every node.

    Sources in ``splits`` are read from these, whose paths are all workers'.
    """

    program: StagedPlan
    tables: Mapping[str, DataFrame]
    observer: Observer = NOBODY
    splits: Mapping[str, Splits] = field(default_factory=dict)


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
    lanes: list[str] = []
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
        lanes.append(name)
        columns_by_channel[feed.channel.number] = (name, feed.channel.columns)
    df = df.select(*beside.outside, *(F.col("__row")[n].alias(n) for n in beside.rows), *lanes)
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
