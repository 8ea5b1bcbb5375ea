"""The table that the demo queries, the starts and ends of an event log's tasks, and its files, for replay by Spark."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeGuard

import pyarrow as pa
import pyarrow.parquet as pq

from streamq.demo.eventlog import EventLog, part_of
from streamq.errors import counted

LAST_MS: Final = 253_402_300_800_000
"""The end of the year 9999, in milliseconds; later instants in a log are invalid."""

EDGES: Final = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("edge", pa.string(), nullable=False),
        pa.field("task_id", pa.int64(), nullable=False),
        pa.field("stage_id", pa.int64(), nullable=False),
        pa.field("failed", pa.bool_()),
    ]
)
"""The columns of `task_edges`; ``failed`` is NULL in start edges."""
DDL: Final = "ts timestamp, edge string, task_id bigint, stage_id bigint, failed boolean"
"""The same for Spark's file source."""


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
    skipped, and counted in the log's `damage`. Raises SourceError as `events` does.
    """
    rows: list[tuple[int, str, int, int, bool | None]] = []
    launched: dict[int, int] = {}
    ended: set[int] = set()
    strange = 0
    for event in log.events("SparkListenerTaskStart", "SparkListenerTaskEnd"):
        info, is_end = part_of(event, "Task Info"), event["Event"] == "SparkListenerTaskEnd"
        task, launch, finish = info.get("Task ID"), info.get("Launch Time"), info.get("Finish Time")
        if not (
            _is_within(task, 2**63) and _is_within(launch, LAST_MS) and (not is_end or _is_within(finish, LAST_MS))
        ):
            strange += 1
            continue
        if task in ended:
            continue
        stage = event["Stage ID"] if _is_within(event.get("Stage ID"), 2**63) else -1
        if task not in launched:
            launched[task] = launch * 1000
            rows.append((launched[task], "start", task, stage, None))
        if is_end and finish:
            ended.add(task)
            rows.append((max(finish * 1000, launched[task] + 1), "end", task, stage, bool(info.get("Failed"))))
    if strange:
        log.damage.append(f"{counted(strange, 'task event')} without a task id or a time skipped")
    columns = zip(*rows, strict=True) if rows else [()] * len(EDGES)
    return pa.table([list(column) for column in columns], schema=EDGES)


def _is_within(value: Any, limit: int) -> TypeGuard[int]:
    """True for an integer from 0 to below ``limit``; damaged lines may hold any other value."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit


def disorder(edges: pa.Table) -> int:
    """Return the greatest time by which an edge is behind one before it, in microseconds, 0 if none is: a source's delay."""
    latest = worst = 0
    for ts in edges["ts"].cast(pa.int64()).to_pylist():
        latest = max(latest, ts)
        worst = max(worst, latest - ts)
    return worst


SPACING: Final = 1_000_000_000
"""Nanoseconds between the modification times of two files; Spark orders them by milliseconds."""


def land(edges: pa.Table, folder: Path, batches: int) -> int:
    """Write a table to at most ``batches`` files of consecutive rows in a new folder, and return the number of files.

    The order of rows is that of arrival. With ``maxFilesPerTrigger=1`` each file becomes one micro-batch, because modification
    times, by which Spark's file source orders files, increase from file to file; they are in the past. A table without rows gives
    one file without rows, so that batch readers find a schema.
    """
    folder.mkdir()
    count = max(1, min(batches, edges.num_rows))
    borders = [edges.num_rows * n // count for n in range(count + 1)]
    begin = time.time_ns() - count * SPACING
    for n, (a, b) in enumerate(pairwise(borders)):
        path = folder / f"edges-{n:05d}.parquet"
        pq.write_table(edges.slice(a, b - a), path)
        os.utime(path, ns=(begin + n * SPACING,) * 2)
    return count
