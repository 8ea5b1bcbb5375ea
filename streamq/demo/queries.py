"""The demo's queries: the stream of tasks of a log, and the questions about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import streamq as sq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
