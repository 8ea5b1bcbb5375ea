"""Cases on Spark: as a batch DataFrame, and as a Structured Streaming query, each micro-batch of a case one of Spark's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from streamq.compiler.egress import ADDED
from streamq.query import batch_frame
from streamq.runtime.event import INSERT, LE, RE, RETRACT, WEIGHT
from streamq.stream import Stream
from streamq.testing.case import Case
from streamq.testing.execution import BATCH, FINAL, Execution, net
from streamq.testing.history import history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def land(folder: Path, tables: Sequence[pa.Table], first: int = 0) -> None:
    """Write each table as a file; later ones are younger, which is the order in which the file source takes them."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    for i, table in enumerate(tables, start=first):
        path = folder / f"{i:06d}.parquet"
        hidden = folder / f".{i:06d}"
        pq.write_table(table, hidden)
        os.utime(hidden, (1_700_000_000 + i, 1_700_000_000 + i))
        hidden.rename(path)


def stream(spark: SparkSession, folder: Path, schema: pa.Schema) -> DataFrame:
    """The folder, which is made if it is not there, as a stream, a file a micro-batch."""
    from pyspark.sql.pandas.types import from_arrow_schema

    folder.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(from_arrow_schema(schema)).option("maxFilesPerTrigger", 1).parquet(str(folder))


def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table as a DataFrame; NaN stays NaN, and is not NULL."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame(table, from_arrow_schema(table.schema))


def executed_on_spark(case: Case, how: Execution, spark: SparkSession) -> pa.Table:
    """The history that a case's query gives on Spark."""
    if how.backend == BATCH:
        frames = {name: frame(spark, table) for name, table in case.tables.items()}
        return history(batch_frame(case.plan, frames, case.instant, how.chosen).toArrow())
    with tempfile.TemporaryDirectory(prefix="streamq-verify-", ignore_cleanup_errors=True) as folder:
        return _streamed(case, how, spark, Path(folder))


def _streamed(case: Case, how: Execution, spark: SparkSession, folder: Path) -> pa.Table:
    batches, names = case.batches or [{name: case.tables[name] for name in case.sources}], list(case.sources)
    tables = {name: stream(spark, folder / name, batches[0][name].schema) for name in names}
    query = Stream(case.plan, {**tables, **{name: frame(spark, table) for name, table in case.static.items()}})
    # a name that the output has itself is longer for a while than any other
    long = "_" * max(len(name) for name in (*query.columns, ""))
    own = {name: name + long for name in query.columns if name.lower() in ADDED[how.output]}
    query = query.rename(own) if own else query

    def arrive(some: Sequence[dict[str, pa.Table]], first: int) -> None:
        for name in names:
            land(folder / name, [batch[name] for batch in some], first)

    out, checkpoint = str(folder / "out"), str(folder / "checkpoint")
    instalment = len(batches) // 2 if how.restart else 0
    if instalment:
        arrive(batches[:instalment], 0)
        query.run(checkpoint=checkpoint, sink=out, output=how.output, buckets=how.buckets, trigger="available_now")
    arrive(batches[instalment:], instalment)
    with query.run(checkpoint=checkpoint, sink=out, output=how.output, buckets=how.buckets) as run:
        run.finish(case.instant)
    made = spark.read.parquet(out).toArrow()
    found = history(made) if how.output == FINAL else from_changelog(made)
    return found.rename_columns(
        [name.removesuffix(long) if name in own.values() else name for name in found.column_names]
    )


def from_changelog(changes: pa.Table) -> pa.Table:
    """The history that a changelog's rows add up to; raises WrongOutput where one takes back what was never there."""
    import pyarrow.compute as pc

    kind, payload = changes.column("kind"), changes.drop_columns(["kind", "new_end"])
    taken = pc.equal(kind, RETRACT)
    moved = payload.set_column(payload.column_names.index("end"), "end", changes.column("new_end")).filter(taken)
    given = [
        payload.filter(pc.equal(kind, INSERT)),
        moved.filter(pc.not_equal(moved["end"], moved["start"]).fill_null(True)),
    ]
    return net([_weighed(pa.concat_tables(given), 1), _weighed(payload.filter(taken), -1)])


def _weighed(rows: pa.Table, weight: int) -> pa.Table:
    found = history(rows)
    names = [{"start": LE, "end": RE}.get(name, name) for name in found.column_names]
    return found.rename_columns(names).append_column(WEIGHT, pa.array([weight] * found.num_rows, pa.int64()))


__all__ = ["executed_on_spark", "frame", "from_changelog", "land", "stream"]
