"""The sinks that leave no files: noop, Spark's console and memory, and a user's function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from streamq.errors import PlanError, sentence
from streamq.run.failure import raised_in_sink
from streamq.run.sinks.sink import Row, Sink, Write, computed_once, throw_away

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class NoopSink(Sink):
    """The sink for the arguments None and "noop"."""

    @classmethod
    def from_argument(cls, argument: object) -> Self | None:
        return cls() if argument is None or argument == "noop" else None

    def start(self, writer: DataStreamWriter) -> DataStreamWriter:
        return writer.format("noop")

    def write(self, rows: DataFrame, number: int) -> None:
        throw_away(rows)


class DisplaySink(Sink):
    """A Spark sink for looking at rows, chosen by the name of its ``format``; it takes whole streams only."""

    format: ClassVar[str]

    @classmethod
    def from_argument(cls, argument: object) -> Self | None:
        return cls() if argument == cls.format else None

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
        from streamq.runtime.arrow.rendering import python_rows

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
            raise PlanError(sentence(verb, "finish=True with the memory sink", reason, hint))
        if not name:
            raise PlanError(
                sentence(verb, "the memory sink needs a name", "", "Give name='...': the table is called that.")
            )


@dataclass(frozen=True)
class FunctionSink(Sink):
    """A sink given as a function of (DataFrame, number of the micro-batch)."""

    function: Write

    @classmethod
    def from_argument(cls, argument: object) -> Self | None:
        return cls(argument) if callable(argument) else None

    @property
    def calls_python(self) -> bool:
        return True

    def start(self, writer: DataStreamWriter) -> DataStreamWriter:
        return writer.foreachBatch(computed_once(self.write))

    def write(self, rows: DataFrame, number: int) -> None:
        """Call the user's function with the rows and the micro-batch's number."""
        with raised_in_sink("the sink's function"):
            self.function(rows, number)
