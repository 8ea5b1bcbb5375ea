"""Sinks, the places where the rows of a run go, and the writer of one stream into those of its results and the late sink.

Some are Spark data sources: a folder of files, whose last rows can be read back, or a format with options. The others leave
no files: noop, Spark's console and memory, and a user's function.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamq.compiler.results import LATE_ROWS, ResultColumns, user_late_rows
from streamq.connectors.stored_files import SPARKS_FORMATS
from streamq.errors import PlanError
from streamq.plan.schema import MICRO_BATCH
from streamq.run.failure import raised_in_sink
from streamq.run.pacing import Pacer, readings_in
from streamq.run.storage.raw_files import local_path, logged_files
from streamq.runtime.hosts.result_rows import INSERTED, RETRACTED

Row = Mapping[str, Any]
"""A row of a sink, by its columns."""

Write = Callable[["DataFrame", int], None]
"""A function that writes the rows of the micro-batch with a number."""


class Sink(ABC):
    """The place where the rows of a result go; subclasses are frozen dataclasses with the user's options."""

    is_lasting: ClassVar[bool] = False
    """True if written rows outlast this process, so that the run needs a checkpoint."""

    takes_empty_batches: ClassVar[bool] = True
    """True if the sink gets every micro-batch, also one without rows."""

    calls_python: ClassVar[bool] = False
    """True if Spark calls a function of Python's with each micro-batch."""

    title: ClassVar[str] = "the sink"
    """Its name in errors."""

    @property
    def folders(self) -> Sequence[str]:
        """The folders that hold the sink's files."""
        return ()

    def placed(self, columns: ResultColumns, checkpoint: str) -> Sink:
        """Return the sink as it writes a result's rows in a run on a checkpoint; no server is asked, nothing is read."""
        del columns, checkpoint
        return self

    @property
    def takes_micro_batches(self) -> bool:
        """True if ``write`` can be called, so that rows of one micro-batch may go into several sinks."""
        return True

    @property
    def takes_preimages(self) -> bool:
        """True if the rows that upserts replace or delete stand before these."""
        return False

    def check(self, verb: str, *, name: str | None, finish: bool) -> None:
        """Raise PlanError if a run with this name and this ``finish`` cannot write there, SourceError if no server answers."""
        del verb, name, finish

    def create(self, columns: ResultColumns, verb: str) -> None:
        """Create what a result's rows are written into, unless it is there; raise PlanError if that does not fit them."""
        del columns, verb

    def begin(self, verb: str, *, has_rows: bool) -> None:
        """Begin to write in a run that has its checkpoint; ``has_rows``: earlier runs on it may have written there.

        Raises CheckpointError if their rows are gone, and readers need them.
        """
        del verb, has_rows

    def newest_rows(self, spark: SparkSession, name: str | None, number: int, most: int) -> Sequence[Row] | None:
        """Return the newest rows of the sink, ``most`` at most; None if they cannot be read back cheaply.

        ``name`` is the run's, ``number`` that of the last micro-batch with results; a sink may return its rows alone.
        """
        del spark, name, number, most
        return None

    @abstractmethod
    def start(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Return a ``writeStream`` that writes all its rows into the sink."""

    @abstractmethod
    def write(self, rows: DataFrame, number: int) -> None:
        """Write the rows of a micro-batch by its number, replacing rows that it wrote before a crash."""


@contextlib.contextmanager
def persisted(rows: DataFrame) -> Iterator[DataFrame]:
    """Persist rows while they are read, so that Spark computes them once however often they are read.

    The first job has to be one over all rows, as that alone commits state. If it runs before they are written, an exception from
    writing is one of writing.
    """
    rows.persist()
    try:
        yield rows
    finally:
        rows.unpersist()


def throw_away(rows: DataFrame) -> None:
    """Compute rows without writing them."""
    rows.write.mode("append").format("noop").save()


ROWS_A_TASK = 10_000
"""The rows of a micro-batch for which one task of each sink is enough: another one would cost more than it helps."""


@dataclass(frozen=True)
class SplitWriter:
    """Writes the rows of each result, and the late rows, of each micro-batch into their sinks.

    ``sinks`` are those of the results, in order, then the folder that several results share; ``columns`` those of their rows.
    Each micro-batch has its own folder, so that a micro-batch that is processed again overwrites its earlier rows. A ``pacer``
    pauses after each micro-batch. Spark Connect sends all of this to the server, where streamq need not be installed: its
    functions import nothing of streamq when called.
    """

    columns: Sequence[ResultColumns]
    sinks: Sequence[Sink]
    late_sink: Sink | None
    pacer: Pacer | None

    def start(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Return a ``writeStream`` that writes into all the sinks."""

        # at a start a micro-batch may be repeated that was interrupted, and replaces the rows that it has written
        maybe_repeated = True

        def write(batch: DataFrame, number: int) -> None:
            nonlocal maybe_repeated
            with persisted(batch):
                self._write(batch, number, writes_all=maybe_repeated)
            maybe_repeated = False
            if self.pacer is not None:
                self.pacer.pause()

        return writer.foreachBatch(write)

    def _write(self, batch: DataFrame, number: int, *, writes_all: bool) -> None:
        """Write one micro-batch into all sinks in their order, late rows last; after one that fails no other is written.

        Sinks for which it has no rows are left out, unless ``writes_all`` is true; but not the last one that lasts: its folder of
        the micro-batch says that all sinks have their rows.
        """
        outputs = self._outputs()
        last = max((place for place, output in enumerate(outputs) if output.sink.is_lasting), default=-1)
        rows = f"sum({INSERTED} + {RETRACTED})" if INSERTED in batch.columns else "0"
        # a job over all rows, before any is written
        conditions = (f"bool_or({output.condition})" for output in outputs)
        counted = batch.selectExpr(*conditions, f"count(*) + coalesce({rows}, 0)").first()
        assert counted is not None, "aggregates have a row"
        *has_rows, number_of_rows = counted
        batch = batch.coalesce(1 + number_of_rows // ROWS_A_TASK)
        for place, (output, has_some) in enumerate(zip(outputs, has_rows, strict=True)):
            if has_some or writes_all or place == last or output.sink.takes_empty_batches:
                with raised_in_sink(output.title):
                    output.sink.write(output.read(batch), number)
        if self.pacer is not None:
            self.pacer.observe(readings_in(batch))

    def _outputs(self) -> list[_Output]:
        """Return what is written, in order."""
        alone = len(self.sinks) == 1
        outputs = [
            _Output(sink.title if alone else f"the sink of {columns.title}", sink, columns.condition, columns.read)
            for columns, sink in zip(self.columns, self.sinks, strict=True)
        ]
        late = [] if self.late_sink is None else [_Output("the late sink", self.late_sink, LATE_ROWS, user_late_rows)]
        return outputs + late


@dataclass(frozen=True)
class _Output:
    """The rows of a micro-batch that one sink gets: those that satisfy ``condition``, as ``read`` makes them."""

    title: str
    sink: Sink
    condition: str
    read: Callable[[DataFrame], DataFrame]


MOST_FILES = 4
"""The greatest number of files that are read: a micro-batch writes one for each task, and some are empty."""


LARGEST = 16_000_000
"""The size in bytes of the largest file that is read."""


def last_parquet_rows(folder: str, number: int, most: int) -> list[dict[str, Any]] | None:
    """Return up to ``most`` rows of a micro-batch, from its last files; None if this program cannot read them there.

    Files that are damaged, that Spark is writing, or that somebody has deleted, cannot be read either.
    """
    from streamq.runtime.arrow.values import python_rows

    path = local_path(folder)
    rows: list[dict[str, Any]] = []
    try:
        files = None if path is None else _files(path, number)
        if files is None:
            return None
        for file in reversed(files[-MOST_FILES:]):
            if file.stat().st_size > LARGEST:
                return None
            with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet:
                missing, groups = most - len(rows), parquet.num_row_groups
                if groups and missing:
                    last = parquet.read_row_group(groups - 1)
                    rows = python_rows(last.slice(max(0, last.num_rows - missing))) + rows
    except (OSError, ValueError):
        return None
    return rows


def _files(folder: Path, number: int) -> Sequence[Path] | None:
    """Return the files of a micro-batch: those of its own folder, or those at the end of Spark's log of the whole folder.

    None if there is neither.
    """
    own = folder / f"{MICRO_BATCH}={number}"
    if own.is_dir():
        return sorted(own.glob("*.parquet"))
    return logged_files(folder / "_spark_metadata", number)


@dataclass(frozen=True)
class DataSourceSink(Sink):
    """A sink given as a path, which is a folder of Parquet files, or as ``{"format": ..., option: ...}``."""

    format: str
    options: Mapping[str, Any]

    is_lasting: ClassVar[bool] = True
    takes_empty_batches: ClassVar[bool] = False

    @property
    def folders(self) -> Sequence[str]:
        return [self.options["path"]] if self.takes_micro_batches else []

    @property
    def takes_micro_batches(self) -> bool:
        # of files alone a folder may consist of others; a table, such as Delta's, keeps its own account of its files
        return "path" in self.options and self.format.lower() in SPARKS_FORMATS

    def newest_rows(self, spark: SparkSession, name: str | None, number: int, most: int) -> Sequence[Row] | None:
        """Return rows of that micro-batch from Parquet files that this computer has; None for other formats and places."""
        del spark, name
        return last_parquet_rows(self.options["path"], number, most) if self.format == "parquet" else None

    def start(self, writer: DataStreamWriter) -> DataStreamWriter:
        return writer.format(self.format).options(**self.options)

    def write(self, rows: DataFrame, number: int) -> None:
        """Write the rows of a micro-batch to its own folder, ``streamq_batch=N`` below the path, replacing its content."""
        options = {name: value for name, value in self.options.items() if name != "path"}
        folder = f"{self.options['path']}/{MICRO_BATCH}={number}"
        rows.write.mode("overwrite").format(self.format).options(**options).save(folder)


@dataclass(frozen=True)
class DividedFolder(Sink):
    """A folder of Parquet files for several results, divided by the column ``result``: one job writes all of a micro-batch."""

    path: str
    is_lasting: ClassVar[bool] = True
    takes_empty_batches: ClassVar[bool] = False

    @property
    def folders(self) -> Sequence[str]:
        return [self.path]

    def start(self, writer: DataStreamWriter) -> DataStreamWriter:
        raise AssertionError("a folder of several results takes micro-batches")

    def write(self, rows: DataFrame, number: int) -> None:
        """Write the rows of a micro-batch to ``streamq_batch=N`` below the path, a folder a result, replacing its content."""
        writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "static").partitionBy("result")
        writer.parquet(f"{self.path}/{MICRO_BATCH}={number}")


@dataclass(frozen=True)
class NoopSink(Sink):
    """The sink for the arguments None and "noop"."""

    takes_empty_batches: ClassVar[bool] = False

    def start(self, writer: DataStreamWriter) -> DataStreamWriter:
        return writer.format("noop")

    def write(self, rows: DataFrame, number: int) -> None:
        throw_away(rows)


class DisplaySink(Sink):
    """A Spark sink for looking at rows, chosen by the name of its ``format``; it takes whole streams only."""

    format: ClassVar[str]

    @property
    def takes_micro_batches(self) -> bool:
        return False

    def start(self, writer: DataStreamWriter) -> DataStreamWriter:
        return writer.format(self.format)

    def write(self, rows: DataFrame, number: int) -> None:
        raise AssertionError(f"the {self.format} sink takes whole streams")


@dataclass(frozen=True)
class ConsoleSink(DisplaySink):
    """The sink "console", which prints rows."""

    format = "console"


@dataclass(frozen=True)
class MemorySink(DisplaySink):
    """The sink "memory", which keeps rows in a table with the run's name."""

    format = "memory"

    def newest_rows(self, spark: SparkSession, name: str | None, number: int, most: int) -> Sequence[Row] | None:
        """Return the last rows of the table, which are in the driver, of whichever micro-batches."""
        from streamq.runtime.arrow.values import python_rows

        del number
        if name is None:
            return None
        table = spark.table(name)
        # as Arrow, because Spark's own rows raise for instants beyond Python's years; more rows may come meanwhile
        newest = table.offset(max(0, table.count() - most)).toArrow()
        return python_rows(newest.slice(max(0, newest.num_rows - most)))

    def check(self, verb: str, *, name: str | None, finish: bool) -> None:
        """Raise PlanError for ``finish=True``, and for a run without a name, which the table would have."""
        if finish:
            reason = "flushing the last windows starts the query again, which Spark does not allow with that sink"
            hint = "Use a path, or leave the trigger out and call run.finish()."
            raise PlanError(verb, "finish=True with the memory sink", reason, hint)
        if not name:
            raise PlanError(verb, "the memory sink needs a name", "", "Give name='...': the table is called that.")


class MicroBatchSink(Sink):
    """A sink that Python writes, each micro-batch by its number."""

    calls_python: ClassVar[bool] = True

    def start(self, writer: DataStreamWriter) -> DataStreamWriter:

        def write(rows: DataFrame, number: int) -> None:
            with persisted(rows):
                throw_away(rows)
                with raised_in_sink(self.title):
                    self.write(rows, number)

        return writer.foreachBatch(write)


@dataclass(frozen=True)
class FunctionSink(MicroBatchSink):
    """A sink given as a function of (DataFrame, number of the micro-batch)."""

    function: Write
    title: ClassVar[str] = "the sink's function"

    def write(self, rows: DataFrame, number: int) -> None:
        """Call the user's function with the rows and the micro-batch's number."""
        self.function(rows, number)
