"""The base class of sinks, and the writer of one stream into several: those of its results, and the late sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from streamq.compiler.egress import ResultColumns, user_late_rows
from streamq.run.failure import raised_in_sink
from streamq.run.pacing import Pacer, readings_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


Row = Mapping[str, Any]
"""A row of a sink, by its columns."""

Write = Callable[["DataFrame", int], None]
"""A function that writes the rows of the micro-batch with a number."""

SinkArgument = str | Mapping[str, Any] | Write | None
"""The argument by which a user chooses a sink: a path, a format with options, a name, a function; None: rows are not written."""


class Sink(ABC):
    """The place where the rows of a result go; subclasses are frozen dataclasses with the user's options."""

    @classmethod
    @abstractmethod
    def from_argument(cls, argument: object) -> Self | None:
        """Return the sink that an argument chooses; None if it chooses another kind."""

    @property
    def is_lasting(self) -> bool:
        """True if written rows outlast this process, so that the run needs a checkpoint."""
        return False

    @property
    def folders(self) -> Sequence[str]:
        """The folders that hold the sink's files."""
        return ()

    @property
    def takes_micro_batches(self) -> bool:
        """True if ``write`` can be called, so that rows of one micro-batch may go into several sinks."""
        return True

    @property
    def calls_python(self) -> bool:
        """True if Spark calls a function of Python's with each micro-batch."""
        return False

    def check(self, verb: str, *, name: str | None, finish: bool) -> None:
        """Raise PlanError if a run with this name and this ``finish`` cannot write into the sink."""
        del verb, name, finish

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


def computed_once(write: Write) -> Write:
    """Return ``write`` with rows persisted and computed before, so that Spark computes them once however often they are read.

    So an exception from ``write`` is one of writing. And only a job over all rows commits state: ``write`` may read none.
    """

    def persist_and_write(rows: DataFrame, number: int) -> None:
        rows.persist()
        try:
            throw_away(rows)
            write(rows, number)
        finally:
            rows.unpersist()

    return persist_and_write


def throw_away(rows: DataFrame) -> None:
    """Compute rows without writing them."""
    rows.write.mode("append").format("noop").save()


@dataclass(frozen=True)
class SplitWriter:
    """Writes the rows of each result, and the late rows, of each micro-batch into their own sinks.

    ``sinks`` are those of the results, in order, ``columns`` those of their rows. Each micro-batch has its own folder, so that a
    micro-batch that is processed again overwrites its earlier rows. A ``pacer`` pauses after each micro-batch. Spark Connect
    sends all of this to the server, where streamq need not be installed: its functions import nothing of streamq when called.
    """

    columns: Sequence[ResultColumns]
    sinks: Sequence[Sink]
    late_sink: Sink | None
    pacer: Pacer | None

    def start(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Return a ``writeStream`` that writes into all the sinks."""
        write, pacer = computed_once(self._write), self.pacer
        if pacer is None:
            return writer.foreachBatch(write)

        def write_and_pause(batch: DataFrame, number: int) -> None:
            write(batch, number)
            pacer.pause()

        return writer.foreachBatch(write_and_pause)

    def _write(self, batch: DataFrame, number: int) -> None:
        """Write one micro-batch into all sinks in their order, late rows last; after one that fails no other is written."""
        for place, (columns, sink) in enumerate(zip(self.columns, self.sinks, strict=True), start=1):
            with raised_in_sink("the sink" if len(self.sinks) == 1 else f"the sink of result {place}"):
                sink.write(columns.read(batch), number)
        if self.late_sink is not None:
            with raised_in_sink("the late sink"):
                self.late_sink.write(user_late_rows(batch), number)
        if self.pacer is not None:
            self.pacer.observe(readings_in(batch))
