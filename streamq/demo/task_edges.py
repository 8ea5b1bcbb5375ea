"""The table that the demo queries, the starts and ends of an event log's tasks, and its files, for replay by Spark."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from streamq.demo.eventlog import LAST_MS, EventLog, is_within, part_of
from streamq.demo.lines import show_count
from streamq.errors import SourceError

EDGES: Final = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("edge", pa.string(), nullable=False),
        pa.field("task_id", pa.int64(), nullable=False),
        pa.field("stage_id", pa.int64(), nullable=False),
        pa.field("attempt", pa.int32()),
        pa.field("executor", pa.string()),
        pa.field("host", pa.string()),
        pa.field("locality", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("failed", pa.bool_()),
        pa.field("run_ms", pa.int64()),
        pa.field("records_read", pa.int64()),
        pa.field("bytes_read", pa.int64()),
        pa.field("shuffle_read", pa.int64()),
        pa.field("shuffle_write", pa.int64()),
    ]
)
"""The columns of `task_edges`: those from ``reason`` on are NULL in start edges; sizes are in bytes."""


def task_edges(log: EventLog) -> pa.Table:
    """Return the starts and ends of a log's tasks, in log order (the order of arrival), with the columns `EDGES`.

    A start edge is at the task's launch, an end edge at its finish; the driver stamps both, in milliseconds. Edges that
    the algebra does not allow are corrected here:

    * A task that ended in the millisecond of its launch ends one microsecond after its start, because an end must be later
      than its start. (So does a task during which the clock was set back.)
    * A task whose start is not in the log (a compacted one) gets a start edge before its end, at the launch that the end names.
    * Of several ends of a task (Spark reports a finished task again if the executor with its output is lost), or several
      starts, only the first is kept.

    A task without an end (the application still runs or was killed) stays open. Task events without an id or a time are
    skipped, and counted in the log's `damage`. Raises SourceError and OSError as `events` does.
    """
    columns: dict[str, list[Any]] = {name: [] for name in EDGES.names}
    launched: dict[int, int] = {}
    ended: set[int] = set()
    strange = 0
    for event in log.events("SparkListenerTaskStart", "SparkListenerTaskEnd"):
        info, ending = part_of(event, "Task Info"), event["Event"] == "SparkListenerTaskEnd"
        task, launch, finish = info.get("Task ID"), info.get("Launch Time"), info.get("Finish Time")
        if not (is_within(task, 2**63) and is_within(launch, LAST_MS) and (not ending or is_within(finish, LAST_MS))):
            strange += 1
            continue
        if task in ended:
            continue
        if task not in launched:
            launched[task] = launch * 1000
            _append(columns, event, info, "start", launch * 1000)
        if ending and finish:
            ended.add(task)
            _append(columns, event, info, "end", max(finish * 1000, launched[task] + 1))
    if strange:
        log.lose(f"{show_count(strange, 'task event')} without a task id or a time skipped")
    return pa.table(columns, schema=EDGES)


def disorder(edges: pa.Table) -> int:
    """Return the greatest time by which an edge is behind one before it, in microseconds, 0 if none is: a source's delay."""
    latest = worst = 0
    for ts in edges["ts"].cast(pa.int64()).to_pylist():
        latest = max(latest, ts)
        worst = max(worst, latest - ts)
    return worst


def _append(columns: dict[str, list[Any]], event: dict[str, Any], info: dict[str, Any], edge: str, ts: int) -> None:
    """Append an edge to the columns; values of the wrong type become None, a stage without a number -1.

    ``info`` is the part of the event on the task, ``edge`` "start" or "end", ``ts`` its instant in microseconds.
    """
    row: dict[str, Any] = {
        "ts": ts,
        "edge": edge,
        "task_id": info["Task ID"],
        "stage_id": event["Stage ID"] if is_within(event.get("Stage ID"), 2**63) else -1,
        "attempt": info.get("Attempt"),
        "executor": info.get("Executor ID"),
        "host": info.get("Host"),
        "locality": info.get("Locality"),
    }
    if edge == "end":
        metrics = part_of(event, "Task Metrics")
        read, fetched = part_of(metrics, "Input Metrics"), part_of(metrics, "Shuffle Read Metrics")
        remote, local = fetched.get("Remote Bytes Read"), fetched.get("Local Bytes Read")
        row |= {
            "reason": part_of(event, "Task End Reason").get("Reason"),
            "failed": bool(info.get("Failed")),
            "run_ms": metrics.get("Executor Run Time"),
            "records_read": read.get("Records Read"),
            "bytes_read": read.get("Bytes Read"),
            "shuffle_read": None if remote is None and local is None else (remote or 0) + (local or 0),
            "shuffle_write": part_of(metrics, "Shuffle Write Metrics").get("Shuffle Bytes Written"),
        }
    for column in EDGES:
        columns[column.name].append(_fitting(row.get(column.name), column.type))


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """Return a text or an integer if it fits its column, else None, as damaged lines may hold anything; others unchanged."""
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else None
    if pa.types.is_integer(kind):
        return value if is_within(value, 2 ** (kind.bit_width - 1)) else None
    return value


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
                "land",
                "a folder with Parquet files in it",
                f"found {folder}",
                "Choose an empty one: they would be replayed too.",
            )
        count = max(1, min(batches, edges.num_rows))
        borders = [edges.num_rows * n // count for n in range(count + 1)]
        begin = time.time_ns() - count * SPACING
        return [
            _write(edges.slice(a, b - a), folder / f"edges-{n:05d}.parquet", begin + n * SPACING)
            for n, (a, b) in enumerate(pairwise(borders))
        ]
    except OSError as error:
        raise SourceError("land", f"cannot write to {folder}", f"it gave: {error.strerror or error}") from error


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
