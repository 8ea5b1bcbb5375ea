"""The sinks that are Spark data sources: a folder of files, or a format with options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from streamq.plan.schema import MICRO_BATCH
from streamq.run.sinks.parquet_tail import last_parquet_rows
from streamq.run.sinks.sink import Row, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FILES = ("parquet", "json", "csv", "orc", "text", "avro", "xml")
"""File formats, for which Spark keeps a log of micro-batches in the folder.

Of these alone a folder may consist of others; a table of another format, such as Delta, keeps its own account of its files.
"""


@dataclass(frozen=True)
class DataSourceSink(Sink):
    """A sink given as a path, which is a folder of Parquet files, or as ``{"format": ..., option: ...}``."""

    format: str
    options: Mapping[str, Any]

    @classmethod
    def from_argument(cls, argument: object) -> Self | None:
        """Return the sink of a path, or of a mapping of a format and options; the format is Parquet if there is none.

        None for another argument.
        """
        if isinstance(argument, str):
            return cls("parquet", {"path": argument})
        if isinstance(argument, Mapping):
            options = {name: value for name, value in argument.items() if name != "format"}
            return cls(argument.get("format", "parquet"), options)
        return None

    @property
    def is_lasting(self) -> bool:
        return True

    @property
    def folders(self) -> Sequence[str]:
        return [self.options["path"]] if self.takes_micro_batches else []

    @property
    def takes_micro_batches(self) -> bool:
        return "path" in self.options and self.format.lower() in FILES

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


__all__ = ["DataSourceSink"]
