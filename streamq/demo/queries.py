"""The demo's queries: the starts and ends of an event log's tasks, as a table and as files for replay, and questions."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import pyarrow as pa
import pyarrow.parquet as pq

import streamq as sq
from streamq.demo.eventlog import EventLog, part_of
from streamq.errors import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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


_HOPS: Final = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 86400)


@dataclass(frozen=True)
class Question:
    """A query with its title; ``value`` is the column that is drawn over time for each value of the column ``series``."""

    title: str
    query: Any
    value: str
    series: str = "stage_id"


def windows(seconds: float) -> tuple[str, str]:
    """Return size and hop of windows that fit a log of this length, as durations: at most 75 hops, four to a window.

    A hop lasts from 0.1 seconds to a day, so a log of more than 75 days has more of them.
    """
    hop = next((hop for hop in _HOPS if seconds / hop <= 75), _HOPS[-1])
    return _words(4 * hop), _words(hop)


def tasks(edges: DataFrame, delay: timedelta) -> Any:
    """Return the tasks as events that last while the task runs; ``delay`` is the log's greatest disorder."""
    return sq.edges(
        edges,
        time="ts",
        edge="edge",
        key=["task_id"],
        open="start",
        close="end",
        payload="end",
        name="tasks",
        progress=sq.generate(delay=delay),
    )


def running(edges_stream: Any, size: str, hop: str) -> Question:
    """Return the question how many tasks run and how long they take, over a stream of tasks (see `tasks`)."""
    windows = (
        edges_stream.group_by("stage_id")
        .hopping_window(size, hop)
        .select(running=sq.count(), mean_ms=sq.avg(sq.duration()) / sq.lit(1000))
    )
    return Question(f"Tasks running and mean task time per stage, in windows of {size} every {hop}", windows, "running")


def stuck(starts: Any, ends: Any, limit: str, step: str) -> Question:
    """Return the question how many tasks had not ended within a limit, counted by their start, over starts and ends as points."""
    text = f"""
        EVENT Stuck
        WHEN UNLESS(TASK_START AS task, TASK_END AS done, {limit})
        WHERE task.task_id = done.task_id
        OUTPUT task.stage_id AS stage_id
    """
    tasks = sq.cedr(text, TASK_START=starts, TASK_END=ends)
    counted = tasks.to_points().group_by("stage_id").tumbling_window(step).select(stuck=sq.count())
    return Question(f"Tasks per stage that had not ended {limit} after their start, every {step}", counted, "stuck")


def asked(frame: DataFrame, delay: timedelta, size: str, hop: str) -> list[Question]:
    """Return the questions in order, over a DataFrame of edges, batch or streaming.

    ``delay`` is the log's greatest disorder. ``size`` and ``hop`` are those of the first question's windows, and the limit and
    the step of the second.
    """
    progress = sq.generate(delay=delay)
    starts, ends = (
        sq.points(frame.where(frame.edge == edge), time="ts", name=f"task_{edge}s", progress=progress)
        for edge in ("start", "end")
    )
    return [running(tasks(frame, delay), size, hop), stuck(starts, ends, size, hop)]


def _words(seconds: float) -> str:
    number, unit = (seconds, "second") if seconds >= 1 else (seconds * 1000, "millisecond")
    return f"{number:g} {unit}" + ("" if number == 1 else "s")
