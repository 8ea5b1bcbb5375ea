"""A query that is killed, again and again, and started anew gives what an undisturbed one gives: nothing lost, nothing twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t
from streamq.compiler.hosting import HOSTED
from streamq.compiler.plan import nodes
from streamq.expr import Expr

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys

import streamq as sq
from tests.conftest import INTERPRETED, NO_ORIGINS
from tests.spark.test_kill import QUERIES

folder, name, last = sys.argv[1:]
config = {"spark.sql.shuffle.partitions": 2, **INTERPRETED, **NO_ORIGINS}
spark = sq.session(master="local[2]", config=config)
files = spark.readStream.schema("start bigint, end bigint, k string, v int").option("maxFilesPerTrigger", 1)
stream = files.parquet(f"{folder}/in")
stays = sq.intervals(stream, start="start", end="end", name="stays", progress=sq.generate(20))
QUERIES[name](stays).run(
    sink=f"{folder}/out", checkpoint=f"{folder}/checkpoint", trigger="available_now", finish=last == "last", buckets=2
)
"""


def value(name: str) -> Expr:
    return sq.col(name).cast("double")


def together(first: sq.Stream, *rest: sq.Stream) -> sq.Stream:
    """Results of one number each, as one."""
    return first.select(x=value(first.columns[-1])).union(*(r.select(x=value(r.columns[-1])) for r in rest))


def joins(s: sq.Stream) -> sq.Stream:
    later, on = s.shift(3).where(sq.col("v") > 2), {"on": "k"}
    return together(
        s.join(later, **on, suffixes=("", "_r")).select("v"),
        s.join(later, **on, how="left", suffixes=("", "_r")).select("v_r"),
        s.join(later, **on, how="semi").select("v"),
        s.left_anti_join(later, **on).select("v"),
    )


QUERIES = {
    "windows": lambda s: s.group_by("k").hopping_window(12, 4).select(n=sq.count(), most=sq.max("v")),
    "joins": joins,
    "spans": lambda s: together(
        s.except_(s.shift(2)), s.clip(s.shift(5), on="k"), s.to_signal("k"), s.chop(7), s.distinct_ids(4, id="k")
    ),
    "windows of events": lambda s: together(
        s.group_by("k").count_window(2).select(n=sq.count()),
        s.group_by("k").rows_window(3, 2).select(x=sq.sum("v")),
        s.landmark_window(10, period=30).select(x=sq.sum("v")),
        s.group_by("k").session_window(3).select(n=sq.count()),
    ),
    "windows of ends": lambda s: together(
        s.snapshot_window().select(n=sq.count()),
        s.sliding_window(3).select(n=sq.sum("v")),
        s.tumbling_window(6).select(x=sq.time_weighted_avg("v")),
        s.tumbling_window(6).select(x=sq.median("v")),
    ),
    "pairs": lambda s: together(
        s.windowed_join(s, on="k", size=6, hop=6, suffixes=("", "_r")).select("v_r"),
        s.group_by("k").tumbling_window(6).top_k(1, by="v").select("v"),
    ),
    "snapshots over windows": lambda s: (
        s.tumbling_window(6).select(n=sq.sum("v")).snapshot_window().select(most=sq.max("n"))
    ),
}
SOAK = bool(os.environ.get("STREAMQ_SOAK"))
KILLS = 3
FILES = 6


@pytest.mark.parametrize("name", QUERIES if SOAK else ["windows"])
def test_killed_and_started_again(name: str, spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(None if SOAK else 4)
    everything = []
    (tmp_path / "in").mkdir()
    for i in range(FILES):
        starts = [10 * i + chance.randrange(-15, 10) for _ in range(12)]
        rows = [(s, s + chance.randrange(1, 20), chance.choice("ab"), chance.randrange(9)) for s in starts]
        everything += rows
        path = tmp_path / "in" / f"{i:02}.parquet"
        pq.write_table(t.table("start bigint, end bigint, k string, v int", rows), path)
        # files are taken in order of their age
        os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    for kill in range(KILLS):
        # the last one as it ends the stream
        job = started(script, tmp_path, name, "last" if kill == KILLS - 1 else "not yet")
        after = FILES if kill == KILLS - 1 else (kill + 1) * (FILES - 2) // (KILLS - 1) + chance.randrange(2)
        while job.poll() is None and commits(tmp_path) < after:
            time.sleep(0.05)
        time.sleep(2 * chance.random())
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    last = started(script, tmp_path, name, "last")
    done = (tmp_path / "checkpoint" / "streamq" / "ended").exists()
    assert last.wait(timeout=240) == (1 if done else 0)
    assert ("the checkpoint's stream has ended" in (tmp_path / "log").read_text()) == done
    found = spark.read.parquet(str(tmp_path / "out")).toArrow()
    table = t.table("start bigint, end bigint, k string, v int", everything)
    whole = QUERIES[name](sq.intervals(table, start="start", end="end", name="stays"))
    t.assert_same_history(found, whole.to_arrow())
    assert found.num_rows > 10 and isinstance(found, pa.Table)


def test_no_operator_with_state_is_left_out() -> None:
    s = sq.intervals(t.table("start bigint, end bigint, k string, v int", []), start="start", end="end")
    assert {type(n) for query in QUERIES.values() for n in nodes(query(s).plan)} >= set(HOSTED)


def started(script: Path, folder: Path, name: str, last: str) -> subprocess.Popen[bytes]:
    """The job in a process group of its own, with its JVM and workers."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "log").open("ab") as log:
        command = [sys.executable, str(script), str(folder), name, last]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def commits(folder: Path) -> int:
    """How many micro-batches have been done."""
    return len([p for p in (folder / "checkpoint" / "commits").glob("*") if p.name.isdigit()])
