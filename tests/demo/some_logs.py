"""Event logs of Spark's, written in every form that Spark gives them."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamq.demo.__main__ import task_edges
from streamq.demo.eventlog import find_log

DATA = Path(__file__).parent / "data"
EPOCH = 1_700_000_000_000


def started(task: int, at: int, stage: int = 0) -> dict[str, Any]:
    return {
        "Event": "SparkListenerTaskStart",
        "Stage ID": stage,
        "Stage Attempt ID": 0,
        "Task Info": {
            "Task ID": task,
            "Launch Time": EPOCH + at,
            "Finish Time": 0,
        },
    }


def ended(task: int, start: int, end: int, stage: int = 0, failed: bool = False) -> dict[str, Any]:
    event = started(task, start, stage) | {"Event": "SparkListenerTaskEnd", "Task Type": "ResultTask"}
    event["Task Info"] |= {"Finish Time": EPOCH + end, "Failed": failed}
    return event


LOG_START = {"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"}
APP_START = {"Event": "SparkListenerApplicationStart", "App Name": "a", "App ID": "app-1", "Timestamp": EPOCH}
APP_END = {"Event": "SparkListenerApplicationEnd", "Timestamp": EPOCH + 9000}


def text(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)


def some_log(tasks: int = 200) -> bytes:
    draw = random.Random(7)
    events = [LOG_START, APP_START]
    for task in range(tasks):
        length = draw.randrange(1, 900)
        events += [started(task, task * 10, task % 3), ended(task, task * 10, task * 10 + length, task % 3)]
    return text(*events, APP_END)


LOG = some_log()


def zstd(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)


def zstd_frames(data: bytes, size: int = 5000) -> bytes:
    return b"".join(zstd(data[at : at + size]) for at in range(0, len(data), size))


def zstd_flushed(data: bytes, size: int = 5000) -> bytes:
    """One frame that has no end, flushed now and then: what a running Spark has written so far."""
    sink = io.BytesIO()
    stream = pa.CompressedOutputStream(pa.PythonFile(sink, "w"), "zstd")
    for at in range(0, len(data), size):
        stream.write(data[at : at + size])
        stream.flush()
    frames = sink.getvalue()
    stream.close()
    return frames


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def rows(log_bytes: bytes, tmp_path: Path) -> list[dict[str, Any]]:
    return task_edges(find_log(put(tmp_path / "plain-reference", log_bytes))).to_pylist()
