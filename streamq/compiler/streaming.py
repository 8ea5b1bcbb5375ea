"""Streaming code generation: a program as one Structured Streaming DataFrame, a linear chain of stateful stages.

Scalar expressions are Spark's; a stage is ``mapInArrow`` (combine, pack into envelopes), ``groupBy(bucket)`` and one generic
stateful processor. Nothing here touches the JVM, so it runs on Spark Connect as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from streamq.compiler.flagged_rows import FlaggedRows, guarded
from streamq.compiler.staged_plan import Feed, Relation, StagedPlan
from streamq.errors import PlanError, sentence
from streamq.operators.observer import NOBODY, Observer
from streamq.operators.source import Source
from streamq.operators.step import SparkRows
from streamq.plan.inference import infer
from streamq.plan.lowering import as_key, end_column, ship_runtime
from streamq.plan.schema import Schema, quote
from streamq.runtime.envelope import LATE, READINGS, TOTALS
from streamq.runtime.event import BAD, KEEP, LE, RE, WEIGHT
from streamq.runtime.readings import OBSERVED, CombineRule, columns_of, combine_of, is_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from streamq.runtime.identity import Identity

IS_EVENT = "__is_event"
"""The column that says of a source's row whether it is an event, and not a CTI or a row to be refused."""

COPY = "__copy"
"""The column that numbers the copies of a row, each for one path that makes several rows of it."""


@dataclass(frozen=True)
class StreamLowering:
    """What becomes of a program: over which tables, and who is told of every node's DataFrames."""

    program: StagedPlan
    tables: Mapping[str, DataFrame]
    observer: Observer = NOBODY


def build_frame(lowering: StreamLowering, control: DataFrame | None, identity: Identity) -> DataFrame:
    """The streaming DataFrame of a program: results, late rows and totals, told apart by ``__channel``; several results have
    a column each, ``Result.column``.

    ``control`` holds rows of CONTROL_DDL; None where nobody can write any. ``identity`` is kept beside the state. What the stages
    say of themselves is in Spark's reports, under OBSERVED.
    """
    from streamq.runtime.processor import ENVELOPE_DDL, control_packer, make_processor, stage_packer

    ship_runtime()
    program = lowering.program
    sources = {r.source.table: r.name for r in program.sources if r.source}
    packed = [_packed_source(lowering, r) for r in program.sources]
    buckets = program.options.buckets
    if control is not None:
        packed.append(control.mapInArrow(control_packer(sources, buckets), ENVELOPE_DDL))
    df = reduce(lambda a, b: a.unionAll(b), packed)
    for stage in program.stages:
        processor = make_processor(stage, identity)
        df = df.groupBy("__to").transformWithStateInPandas(processor, ENVELOPE_DDL, "append", "none")
        if stage.number + 1 < len(program.stages):
            relations = program.made_at(stage.number + 1)
            df = _opened(relations, df)
            _tell_results(lowering, relations, df)
            df, lanes = _apply_paths(lowering, relations, df)
            df = df.mapInArrow(stage_packer(program.packer(relations), lanes), ENVELOPE_DDL)
    return _result(lowering, _observed(program, df) if program.stages else df)


def _observed(program: StagedPlan, df: DataFrame) -> DataFrame:
    """The envelopes of the last stage, a few a bucket, with what is read off those that hold readings."""
    from pyspark.sql import functions as F

    aggregates: dict[CombineRule, Callable[[Column], Column]]
    aggregates = {CombineRule.MAX: F.max, CombineRule.MIN: F.min, CombineRule.SUM: F.sum}
    sources = [r.name for r in program.sources]
    kernels = {h.name: {c.port for c in h.channels} for stage in program.stages for h in stage.hosted}
    readings = F.from_json(F.col("__body").cast("string"), "map<string,string>")
    read = df.withColumn("__read", F.when(F.col("__channel") == READINGS, readings))
    parted = {r.name for r in program.sources if r.source and r.source.policy.progress.columns}
    observed = []
    for column in columns_of(sources, kernels, parted):
        text = F.col("__read")[column]
        observed.append(aggregates[combine_of(column)](text if is_text(column) else text.cast("bigint")).alias(column))
    return read.observe(OBSERVED, *observed).drop("__read")


# map sides


def _tell_results(lowering: StreamLowering, relations: list[Relation], df: DataFrame) -> None:
    """Tell the observer of the rows that kernels give; those of several relations stand in a struct each."""
    for relation in relations if lowering.observer is not NOBODY else ():
        node = lowering.program.nodes.get(relation.number)
        if node is not None:
            struct = None if len(relations) == 1 else _struct(relation)
            lowering.observer.rows_out(node, df if struct is None else df.select(f"{struct}.*"))


def _packed_source(lowering: StreamLowering, relation: Relation) -> DataFrame:
    from pyspark.sql import functions as F

    from streamq.runtime.processor import ENVELOPE_DDL, source_packer

    source = relation.source
    assert source is not None
    df = source.on_spark(lowering.tables[source.table], True)
    lowering.observer.rows_out(source, df)
    is_delta = F.col(BAD).isNull() if BAD in df.columns else F.col(LE).isNotNull()
    if source.items.ctis is not None:
        is_delta = is_delta & (~source.items.ctis).on_spark()
    carried = source.policy.progress.carried_columns
    df = df.withColumns({column: F.col(quote(name)) for name, column in carried.items()}) if carried else df
    beside = _ExtraColumns((BAD,) if BAD in df.columns else (), (*source.items.columns, *carried.values()))
    df, lanes = _apply_paths(lowering, [relation], df, beside, is_delta)
    return df.mapInArrow(source_packer(lowering.program.packer([relation]), lanes), ENVELOPE_DDL)


@dataclass(frozen=True)
class _ExtraColumns:
    """The columns that a map side reads beside what channels take: ``outside``, which no path reads, and those of ``rows``."""

    outside: tuple[str, ...] = ("__to", "__channel", "__body")
    rows: tuple[str, ...] = ()


_ENVELOPES = _ExtraColumns()
"""Those of a map side between two stages, which passes envelopes on."""


def _apply_paths(
    lowering: StreamLowering,
    relations: list[Relation],
    df: DataFrame,
    beside: _ExtraColumns = _ENVELOPES,
    is_delta: Column | None = None,
) -> tuple[DataFrame, Any]:
    """The relations' rows at the ends of their paths: each channel's columns in a struct; those of a single one plain.

    ``is_delta``: of a source, which of its rows go along the paths. A single channel's columns are in a struct, too, if its rows
    were moved, for a source's progress is read off them as they came; and if a name has a dot, by which PySpark does not find a
    plain column.
    """
    from pyspark.sql import functions as F

    from streamq.runtime.processor import WideRowLayout

    feeds = [(r, f) for r in relations for f in lowering.program.feeds_of(r)]
    if len(feeds) == 1 and _is_plain(feeds[0][1]):
        relation, feed = feeds[0]
        df = df.withColumn(KEEP, is_delta if is_delta is not None else F.col("__channel") == _raw(relation))
        df = _apply_steps(lowering, feed, df, relation.schema)
        # a column costs: rows that are no events are told by their start or reason
        has_ctis = relation.source is not None and relation.source.items.ctis is not None
        always = not has_ctis and not any(step.may_drop for step in feed.path.steps)
        df = df.select(*_port(feed, df, [*beside.outside, *beside.rows], always))
        return df, WideRowLayout({feed.channel.number: (None, feed.channel.columns)})
    single = len(relations) == 1
    packed: list[str] = []
    all_columns = [n for n in df.columns if n not in beside.outside]
    keeps = {r.number: F.col("__channel") == _raw(r) for r in relations}
    if is_delta is not None:
        df = df.withColumn(IS_EVENT, F.coalesce(is_delta, F.lit(False)))
        keeps = {r.number: F.col(IS_EVENT) for r in relations}
    lanes: dict[int, tuple[str | None, tuple[str, ...]]] = {}
    technical = [*beside.outside, *([] if is_delta is None else [IS_EVENT])]
    df = df.select(*technical, F.struct(*(F.col(quote(n)) for n in all_columns)).alias("__row"))
    df, selections = _copied(df, feeds, keeps)
    for (relation, feed), is_kept in zip(feeds, selections, strict=True):
        struct = None if single else _struct(relation)
        fields = all_columns if single else _relation_columns(relation)
        base = F.col("__row") if struct is None else F.col("__row")[struct]
        others = list(df.columns)
        side = df.select(*others, *(base[n].alias(n) for n in fields)).withColumn(KEEP, is_kept)
        side = _apply_steps(lowering, feed, side, relation.schema)
        name = f"__lane{feed.channel.number}"
        df = side.select(*others, F.struct(*_port(feed, side, [])).alias(name))
        packed.append(name)
        lanes[feed.channel.number] = (name, feed.channel.columns)
    df = df.select(*beside.outside, *(F.col("__row")[n].alias(n) for n in beside.rows), *packed)
    return df, WideRowLayout(lanes)


def _copied(
    df: DataFrame, feeds: Sequence[tuple[Relation, Feed]], keeps: Mapping[int, Column]
) -> tuple[DataFrame, list[Column]]:
    """Copy rows so that no path reads rows that another one has made; return which rows each feed takes.

    Every path that makes several rows of one reads a copy of its own, numbered in ``__copy``; the other paths of a relation
    share one. ``keeps`` says which rows a relation has, by its number; a row of no relation stays single.
    """
    from pyspark.sql import functions as F

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
    is_moved = any(step.progress_map is not None for step in feed.path.steps)
    return not is_moved and not any("." in name for name in feed.channel.columns)


def _apply_steps(lowering: StreamLowering, feed: Feed, df: DataFrame, schema: Schema) -> DataFrame:
    """The rows of a relation, with ``__keep``, at the end of a path."""
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
    """What a port takes: its columns, lifetimes, and (unless it does ``always``) whether the row passed."""
    from pyspark.sql import functions as F

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


# opening


def _raw(relation: Relation) -> int:
    """The channel of the envelopes that bring a relation's rows: of a kernel's output, or (_passing) into a result."""
    return -100 - relation.number if relation.number >= 0 else -1 - relation.number


def _struct(relation: Relation) -> str:
    return f"__r{relation.number}"


def _relation_columns(relation: Relation) -> list[str]:
    return [LE, RE, WEIGHT, *relation.schema.names]


def _arrow_columns(relation: Relation) -> Any:
    import pyarrow as pa

    from streamq.runtime.arrow_types import arrow_type

    kinds = [pa.int64()] * 3 + [arrow_type(f.type) for f in relation.schema.fields]
    return pa.schema(list(zip(_relation_columns(relation), kinds, strict=True)))


def _wide_schema(
    first: list[tuple[str, Any]], relations: list[Relation]
) -> tuple[Any, dict[int, tuple[str | None, Any]]]:
    import pyarrow as pa

    fields = [pa.field(n, k) for n, k in first]
    how: dict[int, tuple[str | None, Any]] = {}
    for relation in relations:
        wanted = _arrow_columns(relation)
        struct = None if len(relations) == 1 else _struct(relation)
        fields += list(wanted) if struct is None else [pa.field(struct, pa.struct(list(wanted)))]
        how[relation.number] = (struct, wanted)
    return pa.schema(fields), how


def _spark_schema(schema: Any) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _opened(relations: list[Relation], df: DataFrame) -> DataFrame:
    import pyarrow as pa

    from streamq.runtime.processor import opener

    schema, how = _wide_schema([("__to", pa.int32()), ("__channel", pa.int32()), ("__body", pa.binary())], relations)
    return df.mapInArrow(opener(how, schema), _spark_schema(schema))


def _result(lowering: StreamLowering, df: DataFrame) -> DataFrame:
    """The rows of the results, late rows and totals; those of several results stand in a column each."""
    import pyarrow as pa
    from pyspark.sql import functions as F

    from streamq.runtime.lateness import LATE_SCHEMA
    from streamq.runtime.processor import result_opener

    program = lowering.program
    last = program.made_at(len(program.stages))
    earlier = [f for f in program.result_feeds if program.relations[f.path.relation] not in last]
    # what came to a result from an earlier level is already in the result's columns
    passing = [(_passing(program, feed), feed) for feed in earlier]
    feeds = [(program.relations[f.path.relation], f) for f in program.result_feeds if f not in earlier]
    relations = [r for r, _ in feeds] + [r for r, _ in passing]
    first = [
        ("__channel", pa.int32()),
        ("__late", pa.struct(list(LATE_SCHEMA))),
        ("__total_key", pa.string()),
        ("__total", pa.int64()),
    ]
    unique = list({r.name: r for r in relations}.values())
    schema, how = _wide_schema(first, unique)
    opened = df.mapInArrow(result_opener(how, {f.channel.number for f in earlier}, schema), _spark_schema(schema))
    _tell_results(lowering, unique, opened)
    meta = ["__channel", "__late", "__total_key", "__total"]
    if len(feeds) == 1 and len(unique) == 1:
        ((relation, feed),) = feeds
        rows = opened.withColumn(KEEP, F.col("__channel") == _raw(relation))
        rows = _apply_steps(lowering, feed, rows, relation.schema)
        rows = rows.where(F.col(KEEP) | F.col("__channel").isin(LATE, TOTALS))
        return rows.select(*meta, *(F.col(quote(n)) for n in _result_names(program, feed)))
    if len(unique) == 1:
        # steps of one path replace columns that the next one reads
        (only,) = unique
        columns = F.struct(*(F.col(quote(n)) for n in _relation_columns(only)))
        opened = opened.select(*meta, columns.alias(_struct(only)))
    paths = [*feeds, *passing]
    side, selections = _copied(opened, paths, {r.number: F.col("__channel") == _raw(r) for r, _ in paths})
    beside = [*side.columns]
    packed: list[str] = []
    for number, ((relation, feed), is_kept) in enumerate(zip(paths, selections, strict=True)):
        base = [F.col(_struct(relation))[n].alias(n) for n in _relation_columns(relation)]
        step = side.select(*beside, *packed, *base).withColumn(KEEP, is_kept)
        if feed not in earlier:
            step = _apply_steps(lowering, feed, step, relation.schema)
        name = f"__out{number}"
        side = step.select(*beside, *packed, F.when(F.col(KEEP), _result_struct(program, feed)).alias(name))
        packed.append(name)
    # one row of the last stage may feed results along several paths
    rows = side.select(*meta, F.filter(F.array(*(F.col(n) for n in packed)), lambda x: x.isNotNull()).alias("__outs"))
    rows = rows.select(*meta, F.explode_outer("__outs").alias("__out")).where(
        F.col("__out").isNotNull() | F.col("__channel").isin(LATE, TOTALS)
    )
    return rows.select(*meta, "__out.*")


def _passing(program: StagedPlan, feed: Feed) -> Relation:
    """A relation of rows that are in the columns of a result already; its number is negative, as no kernel's is."""
    assert feed.result is not None
    number, behind = feed.channel.number, len(program.stages)
    return Relation(f"result{number}", behind, program.results[feed.result].plan.schema, None, -1 - number)


def _result_names(program: StagedPlan, feed: Feed) -> list[str]:
    assert feed.result is not None
    return [LE, RE, WEIGHT, *program.results[feed.result].plan.schema.names]


def _result_struct(program: StagedPlan, feed: Feed) -> Column:
    """A row of a feed's result as a struct; where there are several results, as the field of its own in a struct of all."""
    assert feed.result is not None
    from pyspark.sql import functions as F

    row = F.struct(*(F.col(quote(n)) for n in _result_names(program, feed)))
    if len(program.results) == 1:
        return row
    absent = {r.column: F.lit(None).cast(_result_type(r.plan.schema)) for r in program.results}
    own = program.results[feed.result].column
    return F.struct(*((row if name == own else null).alias(str(name)) for name, null in absent.items()))


def _result_type(schema: Schema) -> StructType:
    from pyspark.sql import types as t

    times = [t.StructField(name, t.LongType()) for name in (LE, RE, WEIGHT)]
    return t.StructType([*times, *(t.StructField(f.name, f.type) for f in schema.fields)])


def check_streaming(node: Source, df: DataFrame, verb: str) -> None:
    """Raise where a source of a streaming query is not a streaming DataFrame."""
    if not df.isStreaming:
        raise PlanError(
            sentence(
                verb,
                f"source {node.shown_name()} is not a streaming DataFrame",
                "",
                "Read it with spark.readStream, or ask for the batch answer: q.to_df().",
            )
        )
