"""Record the first rows of a run's sources, by a query of its own beside the run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING
from uuid import uuid4

from streamq.errors import PlanError, sentence
from streamq.plan.schema import quote
from streamq.run.files import local_path
from streamq.screens import ProgressBar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    RecordedRows = list[dict[str, pa.Table]]
    """Micro-batches: the rows of each source that has any, by the name of the source."""

BATCH = "__batch"
"""The column with the time of a recorded micro-batch, which Spark sets once for all of its rows."""

LOOK_EVERY = 0.1
"""The seconds between two looks at a query by somebody who waits for its rows."""


def record(
    spark: SparkSession, sources: Mapping[str, DataFrame], checkpoint: str, *, rows: int, seconds: float, to_end: bool
) -> RecordedRows:
    """Return the first rows of streaming DataFrames, as micro-batches; stop after so many rows in all, or so many seconds.

    Each source has an equal part of the rows; what one does not have goes to the others.
    ``to_end``: end sooner if all that the sources have now has been read. ``checkpoint``: a folder of its own, which is
    deleted at the end if it is on this computer.
    """
    view = f"streamq_sample_{uuid4().hex}"
    writer = _wide_rows(sources, rows).writeStream.format("memory").queryName(view).outputMode("append")
    writer = writer.option("checkpointLocation", checkpoint)
    with ExitStack() as ending:
        bar = ending.enter_context(ProgressBar("sample"))
        ending.callback(_delete, checkpoint)
        query = (writer.trigger(availableNow=True) if to_end else writer).start()
        ending.callback(spark.catalog.dropTempView, view)
        ending.callback(query.stop)
        _wait(query, bar, rows, seconds)
        table = spark.table(view).toArrow()
    return list(_micro_batches(table, list(sources), rows))


def small_tables(tables: Mapping[str, DataFrame], rows: int) -> dict[str, pa.Table]:
    """Return those of some tables that have at most so many rows."""
    read = {name: df.limit(rows + 1).toArrow() for name, df in tables.items()}
    return {name: table for name, table in read.items() if table.num_rows <= rows}


def check_limits(rows: object, seconds: object) -> None:
    """Raise PlanError unless the limits of a recording are a positive number of rows, and of seconds."""
    check_rows("sample", "rows", rows)
    check_seconds("sample", "seconds", seconds)


def check_rows(verb: str, argument: str, rows: object) -> None:
    """Raise PlanError, worded for an argument of ``verb``, unless it is a positive number of rows."""
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise PlanError(sentence(verb, f"{argument} is a whole number of at least 1", f"found {rows!r}"))


def check_seconds(verb: str, argument: str, seconds: object) -> None:
    """Raise PlanError, worded for an argument of ``verb``, unless it is a positive number of seconds."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        raise PlanError(sentence(verb, f"{argument} is a positive number of seconds", f"found {seconds!r}"))


def _delete(folder: str) -> None:
    """Delete a folder on this computer as far as that is possible; those of other file systems remain."""
    path = local_path(folder)
    if path is not None:
        shutil.rmtree(path, ignore_errors=True)


def _wide_rows(sources: Mapping[str, DataFrame], most: int) -> DataFrame:
    """Return one stream of the first rows of all sources, at most so many of each, and the time of the micro-batch.

    The rows of each source are in a column of their own.
    """
    from pyspark.sql import functions as F

    wide: DataFrame | None = None
    for number, df in enumerate(sources.values()):
        rows = df.select(F.struct(*(F.col(quote(name)) for name in df.columns)).alias(f"s{number}")).limit(most)
        wide = rows if wide is None else wide.unionByName(rows, allowMissingColumns=True)
    assert wide is not None, "a query has a source"
    return wide.withColumn(BATCH, F.current_timestamp())


def _wait(query: StreamingQuery, bar: ProgressBar, rows: int, seconds: float) -> None:
    """Wait until a query has read so many rows, has ended, or time is up; raise the error it failed with.

    The bar shows what comes first: the part of the rows that has been read, or that of the time which is over.
    """
    begun = time.monotonic()
    while query.isActive and (passed := time.monotonic() - begun) < seconds:
        read = min(rows, sum(p.numInputRows for p in query.recentProgress))
        bar.update(max(read / rows, passed / seconds), 1, f"{read:,} of {rows:,} rows, at most {seconds:g} s")
        if read == rows:
            break
        time.sleep(LOOK_EVERY)
    if not query.isActive:
        query.awaitTermination()


def _micro_batches(table: pa.Table, names: list[str], most: int) -> Iterator[dict[str, pa.Table]]:
    """Yield the micro-batches of a recording in order, with the first rows of each source, at most so many in all."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [f"s{number}" for number in range(len(names))]
    missing = equal_parts([len(table) - table.column(column).null_count for column in columns], most)
    for at in pc.unique(table.column(BATCH)).sort():
        batch = table.filter(pc.equal(table.column(BATCH), at))
        parts = {}
        for number, (name, column) in enumerate(zip(names, columns, strict=True)):
            rows = batch.column(column).combine_chunks().drop_null()[: missing[number]]
            missing[number] -= len(rows)
            if len(rows):
                parts[name] = pa.Table.from_struct_array(rows)
        if parts:
            yield parts


def equal_parts(counts: Sequence[int], most: int) -> list[int]:
    """Return how many of so many things to take in all, an equal part of each kind, of which there are ``counts``.

    >>> equal_parts([1000, 10, 200], 150)
    [70, 10, 70]
    """
    parts = [0] * len(counts)
    by_count = sorted(range(len(counts)), key=lambda kind: counts[kind])
    for place, kind in enumerate(by_count):
        parts[kind] = min(counts[kind], (most - sum(parts)) // (len(counts) - place))
    return parts
