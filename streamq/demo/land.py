"""Write edges to a folder of Parquet files, in order of arrival, for replay by Spark's file source."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from streamq.errors import SourceError, sentence

SPACING: Final = 1_000_000_000
"""Nanoseconds between the modification times of two files; Spark orders them by milliseconds."""

_SQL: Final = {
    "timestamp[us, tz=UTC]": "timestamp",
    "string": "string",
    "int64": "bigint",
    "int32": "int",
    "bool": "boolean",
    "double": "double",
}


def land(edges: pa.Table, folder: str | Path, batches: int) -> list[Path]:
    """Write a table to at most ``batches`` files of consecutive rows, and return the files in order.

    The order of rows is that of arrival. With ``maxFilesPerTrigger=1`` each file becomes one micro-batch, because modification
    times, by which Spark's file source orders files, increase from file to file; they are in the past. A file gets its name only
    when it is complete. A table without rows gives one file without rows, so that batch readers find a schema. Raises SourceError
    if the folder already has Parquet files, or cannot be written to; ValueError if ``batches`` < 1.
    """
    if batches < 1:
        raise ValueError(f"batches must be at least 1, not {batches}")
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.glob("*.parquet")):
            raise SourceError(
                sentence(
                    "land",
                    "a folder with Parquet files in it",
                    f"found {folder}",
                    "Choose an empty one: they would be replayed too.",
                )
            )
        count = max(1, min(batches, edges.num_rows))
        borders = [edges.num_rows * n // count for n in range(count + 1)]
        begin = time.time_ns() - count * SPACING
        return [
            _write(edges.slice(a, b - a), folder / f"edges-{n:05d}.parquet", begin + n * SPACING)
            for n, (a, b) in enumerate(pairwise(borders))
        ]
    except OSError as error:
        raise SourceError(
            sentence("land", f"cannot write to {folder}", f"it gave: {error.strerror or error}")
        ) from error


def ddl(schema: pa.Schema) -> str:
    """Return a schema as DDL for Spark's file source: ``ts timestamp, edge string, ...``."""
    return ", ".join(f"{field.name} {_SQL[str(field.type)]}" for field in schema)


def _write(rows: pa.Table, path: Path, modified: int) -> Path:
    """Write rows to a file that gets its name when it is complete, and the modification time ``modified``, in nanoseconds."""
    hidden = path.with_name(f".{path.name}.part")  # Spark ignores names that begin with a dot
    pq.write_table(rows, hidden)
    os.utime(hidden, ns=(modified, modified))
    os.replace(hidden, path)
    return path
