"""The sinks that are Spark data sources: a folder of files, whose last rows can be read back, or a format with options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from streamq.plan.schema import MICRO_BATCH
from streamq.run.sinks.sink import Row, Sink
from streamq.run.storage.files import local_path, logged_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


MOST_FILES = 4
"""The greatest number of files that are read: a micro-batch writes one for each task, and some are empty."""


LARGEST = 16_000_000
"""The size in bytes of the largest file that is read."""


def last_parquet_rows(folder: str, number: int, most: int) -> list[dict[str, Any]] | None:
    """Return up to ``most`` rows of a micro-batch, from its last files; None if this program cannot read them there.

    Files that are damaged, that Spark is writing, or that somebody has deleted, cannot be read either.
    """
    import pyarrow.parquet as pq

    from streamq.runtime.arrow.rendering import python_rows

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
