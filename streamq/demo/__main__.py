"""``python -m streamq.demo [LOG]``: query what Spark's tasks did, in batch and as a stream, and compare."""

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
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from streamq.demo import job
from streamq.demo.eventlog import EventLog, application_title, find_log, stage_labels
from streamq.demo.queries import DDL, asked, disorder, land, task_edges, windows
from streamq.errors import SourceError, StreamqError, counted
from streamq.screens import ProgressBar, TableSection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    with _child_output_to(folder / "spark.log"):
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
def _child_output_to(path: Path) -> Iterator[None]:
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


if __name__ == "__main__":
    sys.exit(main())
