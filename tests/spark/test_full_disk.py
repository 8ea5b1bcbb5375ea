"""Runs into places that take no more bytes end with an error that says it; when they do again, each row is there once."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamq as sq
from streamq.errors import QueryFailed

SIZE = 600_000
"""The most bytes of a file: more than those that Spark keeps of a micro-batch, and fewer than its rows have in the sink."""

EVENTS = 4_000


def ours() -> list[psutil.Process]:
    """This process and those that it has started, but for servers that another user runs."""
    me = psutil.Process()
    return [one for one in (me, *me.children(recursive=True)) if one.uids() == me.uids()]


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Let no file of this process, of Spark's and of the workers' have more bytes: what is more is refused, as by a full disk."""
    before = {one.pid: resource.prlimit(one.pid, resource.RLIMIT_FSIZE) for one in ours()}
    try:
        for pid, (_, most) in before.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))
        yield
    finally:
        # processes that have started meanwhile have the limit of their parents
        for one in ours():
            resource.prlimit(one.pid, resource.RLIMIT_FSIZE, before.get(one.pid, before[os.getpid()]))


def query(folder: Path) -> sq.Stream:
    events = sq.points(sq.files(folder), time="at", progress=sq.generate(0))
    long = F.concat(*(F.sha2(F.concat("k", F.lit(part)), 512) for part in "abc"))
    return events.group_by("k").tumbling_window(10).select(n=sq.count()).select("k", "n", long=long)


def in_files(q: sq.Stream, folder: Path, **options: Any) -> object:
    return q.run(sink=sq.files(folder / "out"), **options)


def in_delta(q: sq.Stream, folder: Path, **options: Any) -> object:
    return q.run(sink=sq.merge_into("delta", str(folder / "out")), **options)


def published(q: sq.Stream, folder: Path, **options: Any) -> object:
    return sq.publish(q, "out", store=str(folder), **options)


PLACES: dict[str, tuple[Callable[..., object], Callable[[Path], sq.Stream]]] = {
    "files": (in_files, lambda folder: sq.intervals(sq.files(folder / "out"), "start", "end")),
    "delta": (in_delta, lambda folder: sq.intervals(sq.table("delta", str(folder / "out")), "start", "end")),
    "publication": (published, lambda folder: sq.subscribe("out", store=str(folder))),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_takes_no_more(spark: SparkSession, tmp_path: Path, place: str) -> None:
    write, read = PLACES[place]
    source = tmp_path / "in"
    source.mkdir()
    keys = [f"{number * 7919 % EVENTS:032x}" for number in range(EVENTS)]

    def land(start: int, number: int) -> None:
        at = pa.array(range(start, start + number))
        pq.write_table(pa.table({"at": at, "k": keys[:number]}), source / f"{start}.parquet")

    options: dict[str, Any] = {"checkpoint": str(tmp_path / "checkpoint"), "trigger": "available_now", "buckets": 2}
    # state, of which Spark unpacks a library when it first keeps some
    land(0, 10)
    write(query(source), tmp_path, **options)
    land(1_000_000, EVENTS)
    land(2_000_000, EVENTS)
    # rows of a changelog pass through files of Spark's own before
    where = "it ended with an error" if place == "publication" else "sink failed"
    with at_most(SIZE), pytest.raises(QueryFailed, match=f"{where}; .*File too large"):
        write(query(source), tmp_path, finish=True, **options)
    write(query(source), tmp_path, finish=True, **options)
    assert read(tmp_path).to_arrow().column("n").to_pylist() == [1] * (10 + 2 * EVENTS)
