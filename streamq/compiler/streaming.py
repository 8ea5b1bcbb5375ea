"""Streaming code generation: lowers a program to one Structured Streaming DataFrame, a linear chain of stateful stages.

Scalar expressions are Spark's; a stage is ``mapInArrow`` (combine, pack into envelopes), ``groupBy(bucket)`` and one generic
stateful processor. No code here touches the JVM, so it runs on Spark Connect as well.

Envelopes of buckets are grouped under keys by which tasks get equally many buckets. Spark sends a key to the task ``hash(key)
mod tasks``, which is uneven for consecutive numbers: of eight buckets, two tasks would get five and three, and two buckets
would share a task.
"""

from __future__ import annotations

from functools import reduce
from itertools import count
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from streamq.compiler.ports import path_in_arrow
from streamq.compiler.spark_paths import (
    ExtraColumns,
    StreamLowering,
    apply_paths,
    apply_steps_on_spark,
    copy_for_paths,
    raw_channel,
    relation_columns,
    struct_column,
)
from streamq.compiler.staged_plan import Feed, PortInput, Relation, StagedPlan
from streamq.errors import PlanError
from streamq.operators.evaluation import PortColumns
from streamq.operators.operator import NOBODY
from streamq.operators.source import Source
from streamq.plan.lowering import map_in_arrow, ship_runtime
from streamq.plan.schema import quote
from streamq.runtime.arrow.arrow_types import arrow_schema
from streamq.runtime.deltas import BAD, KEEP, LE, NOW, RE, WEIGHT
from streamq.runtime.hosts.envelope import BESIDE_RESULTS
from streamq.runtime.hosts.hosted_kernel import TECHNICAL, InnerPath, OutputPaths
from streamq.runtime.hosts.identity import Identity
from streamq.runtime.hosts.processor import (
    ENVELOPE_DDL,
    WideRowLayout,
    clock_packer,
    control_packer,
    make_processor,
    opener,
    result_opener,
    result_packer,
    source_packer,
    stage_packer,
)
from streamq.runtime.hosts.result_rows import PACKED_COLUMNS
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


def build_frame(
    lowering: StreamLowering,
    identity: Identity,
    *,
    control: DataFrame | None = None,
    clock: DataFrame | None = None,
) -> DataFrame:
    """Return the streaming DataFrame of a program: results, late rows and reports, distinguished by ``__channel``.

    ``control`` holds rows of CONTROL_DDL; None where nobody can write any.
    ``clock`` holds rows ``now bigint``, and has some whenever time has passed; None where no source follows the clock.
    ``identity`` is kept beside the state. Reports are in ``__report``: the totals and readings of each bucket, as JSON.
    """
    ship_runtime()
    program = lowering.program
    sources = {r.source.table: r.name for r in program.sources if r.source}
    packed = [_packed_source(lowering, r) for r in program.sources]
    buckets = program.options.buckets
    if control is not None:
        packed.append(control.mapInArrow(control_packer(sources, buckets), ENVELOPE_DDL))
    if clock is not None:
        # Spark asks the first source first: what has come by then is in the offsets of those behind it
        packed.insert(0, clock.mapInArrow(clock_packer(program.clock_policies, buckets), ENVELOPE_DDL))
    df = reduce(lambda a, b: a.unionAll(b), packed)
    for stage in program.stages:
        keys = bucket_keys(stage.buckets)
        processor = make_processor(stage, identity, {key: bucket for bucket, key in enumerate(keys)})
        to, now = F.element_at(F.lit(keys), F.col("__to") + 1), F.unix_millis(F.current_timestamp())
        df = df.select(to.alias("__to"), now.alias(NOW), "__channel", "__body")
        df = df.groupBy("__to").transformWithStateInPandas(processor, ENVELOPE_DDL, "append", "none")
        relations = program.made_at(stage.number + 1)
        # a stage that a changed query has emptied only passes envelopes on
        if stage.number + 1 < len(program.stages) and relations:
            paths = {raw_channel(r): one for r in relations if (one := _output_paths(lowering, r)) is not None}
            opened = [relation for relation in relations if raw_channel(relation) not in paths]
            layout: WideRowLayout = {}
            if opened:
                df = _opened(opened, df)
                _tell_results(lowering, opened, df, plain=len(opened) == 1)
                df, layout = apply_paths(lowering, opened, df)
            df = map_in_arrow(df, stage_packer(program.packer(relations), layout, paths), ENVELOPE_DDL)
    return _result(lowering, df)


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
        elif lowering.observer is NOBODY and (inner := _in_arrow(program, feed, relation)) is not None:
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
    paths = [(feed.channel.number, _in_arrow(lowering.program, feed, relation)) for feed in feeds]
    inner = [(number, path) for number, path in paths if path is not None]
    return OutputPaths(inner) if inner and len(inner) == len(paths) else None


def _in_arrow(program: StagedPlan, feed: Feed, relation: Relation) -> InnerPath | None:
    """Return the path of a kernel's rows to a channel, for workers; None if only Spark computes a step of it."""
    port = PortInput([feed.path], PortColumns(feed.columns, feed.hashed), feed.lifetimes)
    return path_in_arrow(feed.path, port, relation, ansi=program.options.ansi).inner


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
