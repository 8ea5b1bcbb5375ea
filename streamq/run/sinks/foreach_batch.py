"""A function of the user's own, called with the rows of each micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from streamq.run.sinks.sink import Sink, Write, computed_once, throw_away

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class FunctionSink(Sink):
    """A function of (DataFrame, number of the micro-batch)."""

    function: Write

    @classmethod
    def from_argument(cls, argument: object) -> Self | None:
        return cls(argument) if callable(argument) else None

    def start(self, writer: DataStreamWriter) -> DataStreamWriter:
        return writer.foreachBatch(computed_once(self.write))

    def write(self, rows: DataFrame, number: int) -> None:
        # only a job over all rows commits state, and a user's function need not read any
        throw_away(rows)
        self.function(rows, number)


__all__ = ["FunctionSink"]
