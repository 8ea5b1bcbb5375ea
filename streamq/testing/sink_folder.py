"""Read the folder of Parquet files that a sink wrote, and find the micro-batch of each file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamq.errors import SourceError, sentence
from streamq.plan.schema import MICRO_BATCH

if TYPE_CHECKING:
    import pyarrow as pa


def read_folder(path: Path, batches: bool, verb: str) -> tuple[pa.Table, str | None]:
    """Return the rows of a folder of Parquet files, and the name of their column of micro-batches or None.

    Micro-batches are known from Spark's log (used only if ``batches``) or from folders ``streamq_batch=N``. If there is a log,
    files that it does not list are ignored; one without files gives a table without columns. Raises SourceError if the folder
    does not exist or is not that of one sink.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    if not path.exists():
        raise SourceError(sentence(verb, f"no folder {str(path)!r}"))
    written = _committed(path)
    if written is None:
        # a folder of several sinks' folders is not one stream
        inner = _folders_with(path, "_spark_metadata", f"{MICRO_BATCH}=*")
        if inner:
            raise _no_sink("a folder with the folder of a sink in it", path, inner, verb)
        try:
            dataset = ds.dataset(path, format="parquet", partitioning="hive")
            table = dataset.to_table()
        except pa.ArrowException as error:
            inner = _folders_with(path, "*.parquet")
            raise _no_sink("not all files in it are Parquet", path, inner, verb) from error
        if not dataset.files:
            raise _no_sink("a folder without Parquet files", path, [], verb)
        return table, MICRO_BATCH if any(path.glob(f"{MICRO_BATCH}=*")) else None
    files, numbers = written
    tables = [ds.dataset(path / name, format="parquet").to_table() for name in files]
    if not tables:
        return pa.table({}), None
    table = pa.concat_tables(tables)
    if not batches or numbers is None or MICRO_BATCH in table.column_names:
        return table, None
    return table.append_column(MICRO_BATCH, pa.array(np.repeat(numbers, [t.num_rows for t in tables]))), MICRO_BATCH


def _no_sink(wrong: str, path: Path, inner: Sequence[Path], verb: str) -> SourceError:
    own = f": {' or '.join(repr(str(p)) for p in inner)}" if inner else ""
    return SourceError(sentence(verb, wrong, f"found {str(path)!r}", f"Give the folder of one Parquet sink{own}."))


def _folders_with(path: Path, *patterns: str) -> list[Path]:
    """Return the subfolders, other than partitions, that contain something whose name matches a pattern."""
    folders = [p for p in sorted(path.iterdir()) if p.is_dir() and "=" not in p.name] if path.is_dir() else []
    return [p for p in folders if any(any(p.glob(pattern)) for pattern in patterns)]


def _committed(path: Path) -> tuple[list[str], list[int] | None] | None:
    """Return the files that Spark's file sink has committed, and the micro-batch of each; None if there is no log.

    The second part is None if the log no longer has it. A log entry N lists the files of micro-batch N, an entry N.compact those
    of all up to N; Spark deletes older entries after a while.
    """
    log = path / "_spark_metadata"
    if not log.is_dir():
        return None
    entries = {int(e.stem): e for e in log.iterdir() if e.stem.isdigit() and e.suffix in ("", ".compact")}
    batch_of: dict[str, int] = {}
    for number, entry in sorted(entries.items()):
        for line in entry.read_text(encoding="utf-8").splitlines()[1:]:
            entry_line = json.loads(line)
            if entry_line["action"] == "add" and not entry_line["isDir"]:
                batch_of.setdefault(Path(entry_line["path"]).name, number)
    return list(batch_of), list(batch_of.values()) if len(entries) == max(entries, default=-1) + 1 else None
