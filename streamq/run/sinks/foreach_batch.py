"""The sink that is a user's function, called with the rows of each micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from streamq.run.failure import raised_in_sink
from streamq.run.sinks.sink import Sink, Write, computed_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


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


__all__ = ["FunctionSink"]
