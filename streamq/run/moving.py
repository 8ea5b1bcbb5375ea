"""Move the state in a checkpoint into another number of buckets, as the query starts there.

Spark reads the state of the last micro-batch, its tasks divide and unite it (``spread_state.py``), and write it as rows of the
control stream. The next micro-batch brings them to the new buckets: what is not committed has not moved.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from streamq.compiler.bucket_keys import bucket_keys
from streamq.plan.lowering import ship_runtime
from streamq.run.checkpoint import Checkpoint
from streamq.run.control import MOVE_DDL
from streamq.runtime.hosted_kernel import scope_owner
from streamq.runtime.identity import Identity
from streamq.runtime.moved_state import EVERY_STAGE, BucketMove
from streamq.runtime.shipping import packed
from streamq.runtime.spread_state import Chunks, MovingStage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamq.compiler.staged_plan import StagedPlan

Batches = Iterable[pa.RecordBatch]

PART = pa.schema([("bucket", pa.int32()), ("origin", pa.int32()), ("chunk", pa.string()), ("body", pa.binary())])
"""The rows of the parts of divided buckets: the new bucket, the old one, and a chunk with its name."""

PART_DDL = "bucket int, origin int, chunk string, body binary"

ROWS = 64
"""The number of chunks of a record batch, because chunks may be large."""


def move_state(checkpoint: Checkpoint, program: StagedPlan, stored: Identity) -> BucketMove:
    """Write the state in a checkpoint as rows of its control stream, for the buckets of ``program``; return the move.

    ``stored`` is the identity of the query whose state it is. The checkpoint's last micro-batch must be committed.
    """
    from pyspark.sql import functions as F

    ship_runtime()
    buckets = program.options.buckets
    keys, before = bucket_keys(buckets), bucket_keys(stored.buckets)
    move = BucketMove(str(uuid.uuid4()), buckets, tuple(key for key in before if key not in keys))
    operators = _operators(checkpoint, program, stored)
    numbers = {key: bucket for bucket, key in enumerate(before)}
    stages: list[DataFrame] = []
    for stage in program.stages:
        moving, most = MovingStage.of(stage), program.buckets(stage.number, len(program.stages))
        state = checkpoint.chunks(operators[stage.number])
        parts = state.mapInArrow(_dividing(moving, numbers, most), PART_DDL)
        united = parts.repartition(most, "bucket").mapInArrow(_uniting(moving, stored.buckets), PART_DDL)
        stages.append(united.select(F.lit(stage.number).alias("stage"), "bucket", "chunk", "body"))
    empty = [(EVERY_STAGE, buckets + number) for number in range(len(move.retired))]
    for stage in program.stages:
        # a stage that needs one bucket has the keys of the others, too, under which an old bucket may have left its state
        empty += [
            (stage.number, bucket) for bucket in range(program.buckets(stage.number, len(program.stages)), buckets)
        ]
    rows = [(number, bucket, None, None) for number, bucket in empty]
    spark = checkpoint.spark
    stages.append(spark.createDataFrame(rows, "stage int, bucket int, chunk string, body binary").coalesce(1))
    every = reduce(lambda a, b: a.unionAll(b), stages).withColumn("move", F.lit(move.token))
    names = [column.split()[0] for column in MOVE_DDL.split(", ")]
    every.select(*names).write.mode("append").parquet(checkpoint.control.path)
    return move


def _operators(checkpoint: Checkpoint, program: StagedPlan, stored: Identity) -> dict[int, int]:
    """Return the number of Spark's operator that has the state of each stage, by the kernels whose state is there.

    Spark may number operators in another order than that of the stages. Stages without kernels are alike.
    """
    stage_of = {operator.name: operator.stage for operator in stored.operators}
    numbers = [stage.number for stage in program.stages]
    operators: dict[int, int] = {}
    others: list[int] = []
    for operator in numbers:
        scopes = {scope_owner(scope) for manifest in checkpoint.manifests(operator) for scope in manifest["scopes"]}
        stages = {stage_of[scope] for scope in scopes if scope in stage_of}
        if stages:
            operators[min(stages)] = operator
        else:
            others.append(operator)
    rest = [number for number in numbers if number not in operators]
    return operators | dict(zip(rest, others, strict=True))


def _dividing(
    stage: MovingStage, numbers: dict[int, int], buckets: int
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function that divides the buckets of a task, for ``mapInArrow``; ``numbers`` are those of buckets by key."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the parts of each bucket."""
        held: dict[int, Chunks] = {}
        for batch in batches:
            for row in batch.to_pylist():
                held.setdefault(row["key"], {})[row["chunk"]] = row["body"]
        for key in sorted(held):
            for bucket, chunks in enumerate(stage.divide(held.pop(key), buckets)):
                yield from _rows(bucket, numbers[key], chunks)

    return packed(run)


def _uniting(stage: MovingStage, before: int) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function that unites the parts of the new buckets of a task, for ``mapInArrow``.

    ``before``: the number of buckets so far.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the state of each bucket."""
        held: dict[int, dict[int, Chunks]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                parts = held.setdefault(row["bucket"], {})
                parts.setdefault(row["origin"], {})[row["chunk"]] = row["body"]
        for bucket in sorted(held):
            parts = held.pop(bucket)
            yield from _rows(bucket, bucket, stage.unite({(before, origin): parts[origin] for origin in sorted(parts)}))

    return packed(run)


def _rows(bucket: int, origin: int, chunks: Chunks) -> Iterator[pa.RecordBatch]:
    """Yield the chunks of a bucket as record batches of a few rows."""
    names = list(chunks)
    for at in range(0, len(names), ROWS):
        some = names[at : at + ROWS]
        columns = [[bucket] * len(some), [origin] * len(some), some, [chunks[name] for name in some]]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, PART, strict=True)]
        yield pa.record_batch(arrays, schema=PART)


__all__ = ["move_state"]
