"""Read the last rows of a micro-batch from a folder of Parquet files on this computer, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamq.plan.schema import MICRO_BATCH
from streamq.run.file_log import log_lines, logged_file
from streamq.run.local_paths import local_path

MOST_FILES = 4
"""The greatest number of files that are read: a micro-batch writes one for each task, and some are empty."""


LARGEST = 16_000_000
"""The size in bytes of the largest file that is read."""


def last_parquet_rows(folder: str, number: int, most: int) -> list[dict[str, Any]] | None:
    """Return up to ``most`` rows of a micro-batch, from its last files; None if this program cannot read them there.

    Files that are damaged, that Spark is writing, or that somebody has deleted, cannot be read either.
    """
    import pyarrow.parquet as pq

    from streamq.runtime.rendering import python_rows

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
    lines = log_lines(folder / "_spark_metadata", number)
    if lines is None:
        return None
    return [path for path, _ in map(logged_file, lines[-MOST_FILES:]) if path is not None]


__all__ = ["last_parquet_rows"]
