"""Files of checkpoints and sinks as Spark reads and writes them, and the offsets in its log of micro-batches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from streamq.errors import CheckpointError
from streamq.run.failure import spark_errors
from streamq.runtime.hosts.identity import Identity

WRITABLE = "A checkpoint is a folder that all of Spark can write into."
"""The hint of an error about a checkpoint that Spark cannot read or write."""


def path_exists(spark: SparkSession, path: str) -> bool:
    """Return True if a path, or one that matches its wildcards, exists.

    Raises QueryFailed if Spark cannot read there.
    """
    with spark_errors("run", f"Spark cannot read {path}", "Use a sink that all of Spark can write into."):
        return _table(spark.read.format("binaryFile"), path) is not None


def read_line(spark: SparkSession, path: str) -> str | None:
    """Return the line in a checkpoint's file; None if there is no such file, or no line in it.

    Raises CheckpointError if Spark cannot read it.
    """
    with spark_errors("run", f"Spark cannot read {path}", WRITABLE, CheckpointError):
        table = _table(spark.read.format("text"), path)
        row = None if table is None else table.select("value").first()
    return None if row is None else str(row[0])


def last_number(spark: SparkSession, folder: str) -> int:
    """Return the greatest number that is the name of a file in a folder of Spark's log; -1 if there is none."""
    with spark_errors("run", f"Spark cannot read {folder}", WRITABLE, CheckpointError):
        table = _table(spark.read.format("binaryFile"), f"{folder}/*")
        paths = [] if table is None else [row[0] for row in table.select("path").collect()]
    names = [path.rpartition("/")[2] for path in paths]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def write_line(spark: SparkSession, path: str, line: str) -> None:
    """Write a line to a checkpoint's file, replacing its content; raise CheckpointError if Spark cannot write it."""
    with spark_errors("run", f"Spark cannot write {path}", WRITABLE, CheckpointError):
        spark.range(0, 1, 1, 1).select(F.lit(line).alias("value")).write.mode("overwrite").text(path)


def _table(reader: DataFrameReader, path: str) -> DataFrame | None:
    """Return the files of a path as a table; None if the path does not exist.

    The path is passed twice: for a single missing path Spark first looks for a sink's log, and logs a warning with a Java stack
    trace. Spark reads no rows from a folder whose name begins with an underscore.
    """
    try:
        table = reader.load([path, path])
        # Spark Connect looks for the files when their schema is asked for
        _ = table.schema
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
    return table


FORMAT = "v1"
"""The format of the log that streamq can read and write."""

UNREAD = "-"
"""The offset of a source of which nothing has been read."""

CLOCK, CONTROL = "the clock", "the control folder"
"""The names of the sources that are no table's."""


def spark_sources(identity: Identity) -> list[str]:
    """Return the names of the sources that Spark reads for a query, in its order: tables, and streamq's own."""
    return [*([CLOCK] if identity.clock else []), *identity.sources, CONTROL]


@dataclass(frozen=True)
class Offsets:
    """The offsets of a micro-batch, by source; ``settings`` are Spark's of that micro-batch, as JSON."""

    settings: Mapping[str, Any]
    by_source: Mapping[str, str]

    @staticmethod
    def read(content: bytes, sources: list[str], verb: str) -> Offsets:
        """Return the offsets in a file of Spark's log; raise CheckpointError if it is of another format."""
        form, settings, *offsets = content.decode().split("\n")
        if form != FORMAT or len(offsets) != len(sources):
            wrong = "Spark's log of offsets is of another format"
            raise CheckpointError(verb, wrong, f"found {form} with {len(offsets)} source(s)")
        return Offsets(json.loads(settings), dict(zip(sources, offsets, strict=True)))

    def to_bytes(self, sources: list[str], partitions: str) -> bytes:
        """Return a file of Spark's log with these sources, for a query with so many shuffle partitions."""
        conf = {**self.settings["conf"], "spark.sql.shuffle.partitions": partitions}
        lines = [FORMAT, json.dumps({**self.settings, "conf": conf}), *(self.by_source.get(s, UNREAD) for s in sources)]
        return "\n".join(lines).encode()
