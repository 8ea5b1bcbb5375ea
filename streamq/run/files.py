"""One-line files, read and written by Spark, so that they can be wherever a checkpoint or a sink is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamq.errors import CheckpointError
from streamq.run.failure import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

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
    from pyspark.sql import functions as F

    with spark_errors("run", f"Spark cannot write {path}", WRITABLE, CheckpointError):
        spark.range(0, 1, 1, 1).select(F.lit(line).alias("value")).write.mode("overwrite").text(path)


def _table(reader: DataFrameReader, path: str) -> DataFrame | None:
    """Return the files of a path as a table; None if the path does not exist.

    The path is passed twice: for a single missing path Spark first looks for a sink's log, and logs a warning with a Java stack
    trace. Spark reads no rows from a folder whose name begins with an underscore.
    """
    from pyspark.errors import AnalysisException

    try:
        table = reader.load([path, path])
        # Spark Connect looks for the files when their schema is asked for
        _ = table.schema
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
    return table
