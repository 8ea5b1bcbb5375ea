"""Where the rows of a run go: its sink and its late sink."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamq.plan.schema import MICRO_BATCH
from streamq.run.failure import SINK_NOTE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from streamq.compiler.results import Result

NAMED = ("memory", "console", "noop")
"""Spark's sinks that have a name; every other text is a path."""

FILES = ("parquet", "json", "csv", "orc", "text", "avro")
"""Formats of folders that Spark keeps a log of micro-batches in."""

Write = Callable[["DataFrame", int], None]
"""Writes the rows of the micro-batch with that number."""

Sink = str | Mapping[str, Any] | Write | None
"""A path, a format with options, a name of Spark's, a function; None: rows are thrown away."""


def folder_name(path: str) -> str:
    """Return the one name of a folder, however its path is written; a path with a scheme is its own name."""
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


def is_lasting(sink: Sink) -> bool:
    """Return True if what is written into a sink outlives this process."""
    return sink is not None and sink not in NAMED and not callable(sink)


def sink_folders(sink: Sink) -> list[str]:
    """Return the folder that a sink's files stand in, if it writes files."""
    if isinstance(sink, str) and sink not in NAMED:
        return [sink]
    if isinstance(sink, Mapping) and sink.get("format", "parquet") in FILES and "path" in sink:
        return [sink["path"]]
    return []


def write_to(writer: DataStreamWriter, sink: Sink) -> DataStreamWriter:
    """Return a ``writeStream`` that writes into a sink."""
    match sink:
        case None | "noop":
            return writer.format("noop")
        case "memory" | "console":
            return writer.format(sink)
        case str():
            return writer.format("parquet").option("path", sink)
        case Mapping():
            options = {name: value for name, value in sink.items() if name != "format"}
            return writer.format(sink.get("format", "parquet")).options(**options)
    return writer.foreachBatch(_computed_once(_computed_first(sink)))


def _computed_once(write: Write) -> Write:
    """Return ``write`` over persisted rows, which Spark computes once however often they are read."""

    def persist_and_write(rows: DataFrame, number: int) -> None:
        rows.persist()
        try:
            write(rows, number)
        finally:
            rows.unpersist()

    return persist_and_write


def _computed_first(write: Write) -> Write:
    """Return ``write`` after a job over all rows: only such a job commits state, and a user's function need not read any."""

    def compute_and_write(rows: DataFrame, number: int) -> None:
        _throw_away(rows)
        write(rows, number)

    return compute_and_write


def _throw_away(rows: DataFrame) -> None:
    rows.write.mode("append").format("noop").save()


@dataclass(frozen=True)
class SplitWriter:
    """Writes the rows of each result of a micro-batch, and the late ones, into sinks of their own.

    ``sinks`` are those of ``results``, in their order. Each micro-batch has its own folder, so that one that is processed again
    overwrites what it had written.
    """

    results: Sequence[Result]
    sinks: Sequence[Sink]
    late_sink: str | None

    def write_to(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Return a ``writeStream`` that writes into all the sinks."""
        return writer.foreachBatch(_computed_once(self._write))

    def _write(self, batch: DataFrame, number: int) -> None:
        from streamq.compiler.egress import late_rows, user_rows

        for place, (result, sink) in enumerate(zip(self.results, self.sinks, strict=True), start=1):
            try:
                _write_result(user_rows(batch, result), sink, number)
            except Exception as error:
                if len(self.results) > 1:
                    error.add_note(SINK_NOTE.format(place, len(self.results)))
                raise
        if self.late_sink is not None:
            late_rows(batch).write.mode("overwrite").parquet(f"{self.late_sink}/{MICRO_BATCH}={number}")


def _write_result(rows: DataFrame, sink: Sink, number: int) -> None:
    if callable(sink):
        _computed_first(sink)(rows, number)
    elif isinstance(sink, str) and sink not in NAMED:
        rows.write.mode("overwrite").parquet(f"{sink}/{MICRO_BATCH}={number}")
    elif isinstance(sink, Mapping):
        options = {name: value for name, value in sink.items() if name not in ("format", "path")}
        folder = f"{sink['path']}/{MICRO_BATCH}={number}"
        rows.write.mode("overwrite").format(sink.get("format", "parquet")).options(**options).save(folder)
    else:
        _throw_away(rows)
