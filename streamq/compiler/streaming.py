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
from typing import TYPE_CHECKING, Any

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
from streamq.compiler.staged_plan import Feed, Relation, StagedPlan
from streamq.errors import PlanError
from streamq.operators.operator import NOBODY
from streamq.operators.source import Source
from streamq.plan.lowering import map_in_arrow, ship_runtime
from streamq.plan.schema import Schema, quote
from streamq.runtime.event import BAD, KEEP, LE, NOW, RE, WEIGHT
from streamq.runtime.hosts.envelope import BESIDE_RESULTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from streamq.runtime.hosts.identity import Identity


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

    Several results have a column each, ``Result.column``. ``control`` holds rows of CONTROL_DDL; None where nobody can write any.
    ``clock`` holds rows ``now bigint``, and has some whenever time has passed; None where no source follows the clock.
    ``identity`` is kept beside the state. Reports are in ``__report``: the totals and readings of each bucket, as JSON.
    """
    from pyspark.sql import functions as F

    from streamq.runtime.hosts.processor import ENVELOPE_DDL, clock_packer, control_packer, make_processor, stage_packer

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
            df = _opened(relations, df)
            _tell_results(lowering, relations, df, plain=len(relations) == 1)
            df, layout = apply_paths(lowering, relations, df)
            df = map_in_arrow(df, stage_packer(program.packer(relations), layout), ENVELOPE_DDL)
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
    from pyspark.sql import functions as F

    from streamq.runtime.hosts.processor import ENVELOPE_DDL, source_packer

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


def _arrow_columns(relation: Relation) -> Any:
    """Return the Arrow schema of a relation's rows: start, end and weight, then the payload."""
    import pyarrow as pa

    from streamq.runtime.arrow.arrow_types import arrow_type

    kinds = [pa.int64()] * 3 + [arrow_type(f.type) for f in relation.schema.fields]
    return pa.schema(list(zip(relation_columns(relation), kinds, strict=True)))


def _wide_schema(
    first: list[tuple[str, Any]], relations: list[Relation], *, plain: bool
) -> tuple[Any, dict[int, tuple[str | None, Any]]]:
    """Return an Arrow schema that holds rows of all relations after the columns ``first``, and each relation's place in it.

    ``plain``: the columns of the only relation stand by themselves, which costs less; else each relation has a struct. A place is
    the struct's name, None if plain, and the columns, by the relation's number.
    """
    import pyarrow as pa

    fields = [pa.field(n, k) for n, k in first]
    places: dict[int, tuple[str | None, Any]] = {}
    for relation in relations:
        wanted = _arrow_columns(relation)
        struct = None if plain else struct_column(relation)
        fields += list(wanted) if struct is None else [pa.field(struct, pa.struct(list(wanted)))]
        places[relation.number] = (struct, wanted)
    return pa.schema(fields), places


def _spark_schema(schema: Any) -> Any:
    """Return an Arrow schema as one of Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _opened(relations: list[Relation], df: DataFrame) -> DataFrame:
    """Return envelopes with the outputs of these relations opened into columns; other envelopes are unchanged."""
    import pyarrow as pa

    from streamq.runtime.hosts.processor import opener

    envelope = [("__to", pa.int32()), ("__channel", pa.int32()), ("__body", pa.binary())]
    schema, places = _wide_schema(envelope, relations, plain=len(relations) == 1)
    return df.mapInArrow(opener(places, schema), _spark_schema(schema))


def _result(lowering: StreamLowering, df: DataFrame) -> DataFrame:
    """Return the rows of results, late rows and reports, from the last stage's envelopes; several results have a column each."""
    import pyarrow as pa
    from pyspark.sql import functions as F

    from streamq.runtime.hosts.processor import result_opener
    from streamq.runtime.time.lateness import LATE_SCHEMA

    program = lowering.program
    last = program.made_at(len(program.stages))
    earlier = [f for f in program.result_feeds if program.relations[f.path.relation] not in last]
    # rows that an earlier stage sent to a result are already in the result's columns
    passing = [(_passing(program, feed), feed) for feed in earlier]
    feeds = [(program.relations[f.path.relation], f) for f in program.result_feeds if f not in earlier]
    relations = [r for r, _ in feeds] + [r for r, _ in passing]
    first = [
        ("__channel", pa.int32()),
        ("__late", pa.struct(list(LATE_SCHEMA))),
        ("__report", pa.string()),
    ]
    unique = list({r.name: r for r in relations}.values())
    # the steps of one path would replace columns that another one reads
    plain = len(feeds) == len(unique) == 1
    schema, places = _wide_schema(first, unique, plain=plain)
    opened = df.mapInArrow(result_opener(places, {f.channel.number for f in earlier}, schema), _spark_schema(schema))
    _tell_results(lowering, unique, opened, plain=plain)
    meta = ["__channel", "__late", "__report"]
    if plain:
        ((relation, feed),) = feeds
        rows = opened.withColumn(KEEP, F.col("__channel") == raw_channel(relation))
        rows = apply_steps_on_spark(lowering, feed, rows, relation.schema)
        rows = rows.where(F.col(KEEP) | F.col("__channel").isin(*BESIDE_RESULTS))
        return rows.select(*meta, *(F.col(quote(n)) for n in _result_names(program, feed)))
    paths = [*feeds, *passing]
    side, selections = copy_for_paths(opened, paths, {r.number: F.col("__channel") == raw_channel(r) for r, _ in paths})
    beside = [*side.columns]
    packed: list[str] = []
    for number, ((relation, feed), is_kept) in enumerate(zip(paths, selections, strict=True)):
        base = [F.col(struct_column(relation))[n].alias(n) for n in relation_columns(relation)]
        step = side.select(*beside, *packed, *base).withColumn(KEEP, is_kept)
        if feed not in earlier:
            step = apply_steps_on_spark(lowering, feed, step, relation.schema)
        name = f"__out{number}"
        side = step.select(*beside, *packed, F.when(F.col(KEEP), _result_struct(program, feed)).alias(name))
        packed.append(name)
    # one row of the last stage may feed results along several paths
    rows = side.select(*meta, F.filter(F.array(*(F.col(n) for n in packed)), lambda x: x.isNotNull()).alias("__outs"))
    rows = rows.select(*meta, F.explode_outer("__outs").alias("__out")).where(
        F.col("__out").isNotNull() | F.col("__channel").isin(*BESIDE_RESULTS)
    )
    return rows.select(*meta, "__out.*")


def _passing(program: StagedPlan, feed: Feed) -> Relation:
    """Return a relation for rows that are in a result's columns already; its number is negative, unlike any kernel's."""
    assert feed.result is not None
    number, behind = feed.channel.number, len(program.stages)
    return Relation(f"result{number}", behind, program.results[feed.result].plan.schema, None, -1 - number)


def _result_names(program: StagedPlan, feed: Feed) -> list[str]:
    """Return the names of the columns of a feed's result: lifetime, weight, payload."""
    assert feed.result is not None
    return [LE, RE, WEIGHT, *program.results[feed.result].plan.schema.names]


def _result_struct(program: StagedPlan, feed: Feed) -> Column:
    """Return a row of a feed's result as a struct; with several results, as that result's field in a struct of all."""
    assert feed.result is not None
    from pyspark.sql import functions as F

    row = F.struct(*(F.col(quote(n)) for n in _result_names(program, feed)))
    if len(program.results) == 1:
        return row
    absent = {r.column: F.lit(None).cast(_result_type(r.plan.schema)) for r in program.results}
    own = program.results[feed.result].column
    return F.struct(*((row if name == own else null).alias(str(name)) for name, null in absent.items()))


def _result_type(schema: Schema) -> StructType:
    """Return the type of a struct that holds a row of a result: start, end and weight, then the payload."""
    from pyspark.sql import types as t

    times = [t.StructField(name, t.LongType()) for name in (LE, RE, WEIGHT)]
    return t.StructType([*times, *(t.StructField(f.name, f.type) for f in schema.fields)])


def check_streaming(node: Source, df: DataFrame, verb: str) -> None:
    """Raise PlanError if a source of a streaming query is not a streaming DataFrame."""
    if not df.isStreaming:
        raise PlanError(
            verb,
            f"source {node.shown_name()} is not a streaming DataFrame",
            "",
            "Read it with spark.readStream, or ask for the batch answer: q.to_df().",
        )
