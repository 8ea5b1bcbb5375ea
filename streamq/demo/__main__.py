"""``python -m streamq.demo [LOG]``: query what Spark's tasks did, in batch and as a stream, and compare.

The queries read the starts and ends of an event log's tasks, as a table and as files for replay.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console

import streamq as sq
from streamq.demo import job
from streamq.demo.eventlog import EventLog, application_title, find_log, part_of, stage_labels
from streamq.errors import SourceError, StreamqError, counted
from streamq.screens import ProgressBar, TableSection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MICRO_BATCHES = 8
"""The greatest number of micro-batches in which a log is replayed."""

SERIES = 8
"""The greatest number of stages that the table shows."""

BLOCKS, ASCII = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
WIDTH = 40
"""The number of characters of a strip."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if batch and streaming agree, 1 if they do not, 2 for an error, such as no log to query.

    Returns 130 if it is interrupted, 141 if the reader of its output has ended.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(
        prog="python -m streamq.demo",
        description="Reads a Spark event log as a stream of task starts and ends; asks it in batch and streaming.",
    )
    parser.add_argument(
        "log",
        nargs="?",
        help="a log file, a rolled log directory, or a folder with one log (default: run a Spark job and read its log)",
    )
    log = parser.parse_args(arguments).log
    try:
        with tempfile.TemporaryDirectory(prefix="streamq-demo-", ignore_cleanup_errors=True) as folder:
            return _demo(log, Path(folder))
    except StreamqError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def _demo(path: str | None, folder: Path) -> int:
    """Read the log at a path, or that of a job of our own, land its edges in a folder, and answer the questions.

    Return 0 if the answers in batch and as a stream agree, else 1. Raises SourceError if there is no log, or no task in it.
    """
    log = find_log(path or _own_log(folder))
    edges = task_edges(log)
    _describe(log, edges)
    if edges.num_rows == 0:
        early = (
            "Spark writes the log in portions: try again later."
            if log.in_progress
            else "Did the application run a job?"
        )
        raise SourceError("demo", "a log without tasks", f"{log.path} has none", early)

    span = pc.min_max(edges["ts"]).as_py()
    size, hop = windows((span["max"] - span["min"]).total_seconds())
    ask = functools.partial(asked, delay=timedelta(microseconds=disorder(edges)), size=size, hop=hop)
    landed = folder / "edges"
    return _answer(ask, landed, land(edges, landed, MICRO_BATCHES), folder, stage_labels(log))


def _own_log(folder: Path) -> Path:
    """Run a Spark job below ``folder``, with a progress bar, and return the path of its event log."""
    print("Running a Spark job with event logging on (about half a minute) ...")
    logs = folder / "job" / "events"
    with ProgressBar("job") as bar:
        return job.run_job(folder / "job", each=lambda: bar.update(0, None, _written(logs)))


def _written(logs: Path) -> str:
    size = sum(file.stat().st_size for file in logs.glob("*/events_*") if file.exists())
    return f"{size / 1000:,.0f} kB of log" if size else "Spark starts"


def _describe(log: EventLog, edges: pa.Table) -> None:
    """Print the log, its application, its numbers of tasks and its disorder; print damage to standard error."""
    damage = log.damage  # of reading its tasks
    print(f"Log: {log.describe()}")
    print(f"Application: {application_title(log)}")
    ends = edges.filter(pc.equal(edges["edge"], "end"))
    starts, failed = edges.num_rows - ends.num_rows, pc.sum(ends["failed"]).as_py() or 0
    print(f"Tasks: {starts:,} started, {ends.num_rows:,} ended ({failed:,} failed), {starts - ends.num_rows:,} open")
    print(f"Disorder: {disorder(edges) / 1000:g} ms at most, in order of arrival")
    for harm in damage:
        print(f"warning: {harm}", file=sys.stderr)


def _answer(ask: Any, landed: Path, batches: int, folder: Path, labels: dict[int, str]) -> int:
    """Answer each question in batch and as a stream; print the batch's answer and whether they agree; return 0 if all do, else 1.

    ``ask`` returns the questions over a DataFrame of edges; ``landed``: the folder of their files;
    ``batches``: the number of micro-batches; ``labels``: those of the stages.
    """
    import streamq as sq

    with child_output_to(folder / "spark.log"):
        spark = sq.session()
    files = str(landed.resolve())
    in_batch = ask(spark.read.schema(DDL).parquet(files))
    streaming = ask(spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(files))
    print("\nThe plan of the first question:\n")
    in_batch[0].query.explain()
    agreed = True
    for number, (question, streamed) in enumerate(zip(in_batch, streaming, strict=True)):
        print(f"\n{question.title}\n")
        began = time.monotonic()
        rows = question.query.to_df().toArrow().to_pylist()  # collect() would give instants without a zone
        batch_took = time.monotonic() - began
        began = time.monotonic()
        streamed_rows = _stream(spark, streamed.query, folder / f"answer-{number}")
        stream_took = time.monotonic() - began
        _show(question, rows, labels)
        differences = answer_differences(rows, streamed_rows)
        took = f"batch {batch_took:.1f} s, streaming {stream_took:.1f} s in {batches} micro-batches"
        if differences:
            agreed = False
            print(f"\nBatch and streaming DISAGREE ({took}):", *differences, sep="\n  ")
        else:
            print(f"\nBatch and streaming agree on all {counted(len(rows), 'row')} ({took}).")
    return 0 if agreed else 1


def _stream(spark: SparkSession, query: Any, folder: Path) -> list[dict[str, Any]]:
    """Replay the log through a query, which shows its progress, and return the rows it wrote."""
    sink, checkpoint = folder / "rows", folder / "checkpoint"
    query.run(output="final", sink=str(sink), checkpoint=str(checkpoint), trigger="available_now", finish=True)
    # through Spark, which honours the sink's commit log
    return spark.read.parquet(str(sink)).toArrow().to_pylist()


@contextmanager
def child_output_to(path: Path) -> Iterator[None]:
    """Append this process's standard error to a file meanwhile; children started then, such as Spark's JVM, keep that file."""
    own_stderr = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(own_stderr, 2)
            os.close(own_stderr)


def answer_differences(
    batch: Sequence[dict[str, Any]], streaming: Sequence[dict[str, Any]], most: int = 10
) -> list[str]:
    """Return a line for each of the first ``most`` rows that only one of two bags of rows has, and the number of the others.

    Floats and decimals are compared to nine significant digits, instants in UTC.
    """
    bags = [
        Counter(tuple((name, _plain(row[name])) for name in sorted(row)) for row in rows) for rows in (batch, streaming)
    ]
    surplus = {"batch": bags[0] - bags[1], "streaming": bags[1] - bags[0]}
    lines = [
        f"only in {answer}: {', '.join(f'{name}={value}' for name, value in row)}"
        for answer, rows in surplus.items()
        for row in rows.elements()
    ]
    return lines[:most] + ([f"... and {len(lines) - most:,} more"] if len(lines) > most else [])


def _plain(value: Any) -> Any:
    """Return a value in the form in which answers are compared: text of nine digits for fractions, an instant in UTC."""
    match value:
        case float() | Decimal():
            return f"{value + 0:.9g}"
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    return value


def _show(question: Any, rows: list[dict[str, Any]], labels: dict[int, str]) -> None:
    """Print a table of the SERIES series with the greatest sums, with peaks and values over time, and the number of others."""
    series: dict[Any, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["start"]):
        series.setdefault(row[question.series], []).append(row)
    greatest = sorted(series, key=lambda key: -sum(row[question.value] or 0 for row in series[key]))[:SERIES]
    if not greatest:
        print("(no rows)")
        return
    console = Console(highlight=False)
    shown = [row for key in greatest for row in series[key]]
    top = max(row[question.value] or 0 for row in shown) or 1
    low, high = min(row["start"] for row in shown), max(row["end"] for row in shown)
    figures = [name for name in rows[0] if name not in ("start", "end", question.series)]
    peaks = (f"peak {name}" for name in figures)
    glyphs = ASCII if console.options.ascii_only else BLOCKS
    lines, strips = [], []
    for key in sorted(greatest):
        own, label = series[key], labels.get(key, str(key))
        values = ([row[name] for row in own if row[name] is not None] for name in figures)
        span = (f"{own[0]['start']:%H:%M:%S}", f"{own[-1]['end']:%H:%M:%S}")
        lines.append([label, len(own), *span, *(max(v, default=None) for v in values)])
        steps = [(row["start"], row["end"], row[question.value] or 0) for row in own]
        strips.append([label, strip(steps, low, high, top, glyphs)])
    for table in (
        TableSection(["stage", "windows", "from", "to", *peaks], lines),
        TableSection(["", f"{question.value} over time"], strips),
    ):
        console.print(table.rich(), "")
    if len(series) > len(greatest):
        print(f"... and {len(series) - len(greatest):,} more, with less in them")


def strip(
    steps: Sequence[tuple[datetime, datetime, float]], low: datetime, high: datetime, top: float, glyphs: str = BLOCKS
) -> str:
    """Return values over the time from ``low`` to ``high`` as WIDTH characters, each as high as the greatest value in it.

    ``steps``: the start and the end of each window, and its value. One of ``top`` fills its character; even a small one is seen.
    """
    heights = [0.0] * WIDTH
    for start, end, value in steps:
        first, last = ((at - low) / (high - low) * WIDTH for at in (start, end))
        for place in range(min(int(first), WIDTH - 1), min(math.ceil(last - 1e-9), WIDTH)):
            heights[place] = max(value, heights[place])
    return "".join(glyphs[math.ceil(height / top * (len(glyphs) - 1)) if height > 0 else 0] for height in heights)


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


if __name__ == "__main__":
    sys.exit(main())
