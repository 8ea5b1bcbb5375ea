"""The sink that writes nothing: rows are computed and dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from streamq.run.sinks.sink import Sink, throw_away

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
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


__all__ = ["NoopSink"]
