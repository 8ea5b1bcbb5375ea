"""Spark's sinks for looking at rows: the console, and a table in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from streamq.errors import PlanError, sentence
from streamq.run.sinks.sink import Row, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


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
        from streamq.runtime.rendering import python_rows

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


__all__ = ["ConsoleSink", "MemorySink"]
