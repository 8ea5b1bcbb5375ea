"""A query that is killed, again and again, and started anew gives what an undisturbed one gives: nothing lost, nothing twice.

By ``run``, and by ``to_stream`` with a plain ``writeStream``, whose checkpoint streamq does not know; on a SparkSession that
streamq did not make, in which it sets what a stream cannot do without and leaves the rest as it is.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

import streamq as sq
from streamq import testing as t
from streamq.errors import CheckpointError
from streamq.operators import written_operators
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.plan.expr import Expr
from streamq.plan.node import nodes
from streamq.run.storage.checkpoint import END_OF_INPUT, Checkpoint

ROOT = Path(__file__).parents[2]

SCRIPT = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from tests.conftest import INTERPRETED, WARM_WORKERS
from tests.spark.test_kill import CHANGELOG, QUERIES, run_to_the_end, stays, write

runs, own, name, how = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "Asia/Tokyo")
own_settings = {"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"}
for key, value in (own_settings | INTERPRETED | WARM_WORKERS).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.conf.set(CHANGELOG, "false")
plain = write(QUERIES[name](stays(spark, own)), own).start()
print("settings:", spark.conf.get("spark.sql.session.timeZone"), spark.conf.get(CHANGELOG), flush=True)
run_to_the_end(QUERIES[name](stays(spark, runs)), runs, finish=how == "last")
if how != "last":
    plain.awaitTermination()
"""
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
SCHEMA = "start bigint, end bigint, k string, v int"


def stays(spark: SparkSession, folder: object) -> sq.Stream:
    """The files in a folder, one a micro-batch."""
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
    return sq.intervals(files, start="start", end="end", name="stays", progress=sq.generate(20))


def write(query: sq.Stream, folder: object) -> DataStreamWriter:
    """A writeStream as a user has it."""
    rows = query.to_stream(buckets=2).writeStream.format("parquet").option("path", f"{folder}/out")
    return rows.option("checkpointLocation", f"{folder}/checkpoint")


def run_to_the_end(query: sq.Stream, folder: object, *, finish: bool) -> None:
    """Run over what there is, on the folder's checkpoint."""
    where = {"sink": f"{folder}/out", "checkpoint": f"{folder}/checkpoint"}
    query.run(**where, trigger="available_now", finish=finish, buckets=2)


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


def windows_that_meet(s: sq.Stream) -> sq.Stream:
    """Count windows of a key, and those of it that have begun shortly before: one stage, with state in bins by group alone."""
    windows = s.group_by("k").count_window(2).select(most=sq.max("v"))
    later = windows.shift(3).where(sq.col("most") > 4)
    return windows.join(later, on="k", how="left", suffixes=("", "_r"))


@sq.udso("x bigint", name="growth")
class Growth:
    """How much more a value is than the one before."""

    def initial(self) -> int:
        return 0

    def step(self, last: int, value: int) -> tuple[int, list[tuple[int]]]:
        return value, [(value - last,)]


QUERIES = {
    "windows": lambda s: s.group_by("k").hopping_window(12, 4).select(n=sq.count(), most=sq.max("v")),
    "windows that meet": windows_that_meet,
    "joins": joins,
    "spans": lambda s: together(
        s.except_(s.shift(2)),
        s.clip(s.shift(5), on="k"),
        s.to_signal("k"),
        s.chop(7),
        s.distinct_ids(4, id="k"),
        s.last_rows(3, 2, key="k"),
    ),
    "windows of events": lambda s: together(
        s.group_by("k").count_window(2).select(n=sq.count()),
        s.group_by("k").rows_window(3, 2).select(x=sq.sum("v")),
        s.rows_window(3, 2).group_by("k").select(x=sq.sum("v")),
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
        s.to_points().group_by("k").scan(Growth("v")),
    ),
    "snapshots over windows": lambda s: (
        s.tumbling_window(6).select(n=sq.sum("v")).snapshot_window().select(most=sq.max("n"))
    ),
}
SOAK = bool(os.environ.get("STREAMQ_SOAK"))
ENDED = [False, False, True] if SOAK else [False]
"""For each kill, True if it comes as the run ends the stream."""

FILES = 6 if SOAK else 4


@pytest.mark.parametrize("name", QUERIES if SOAK else ["windows that meet"])
def test_killed_and_started_again(name: str, spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """A run and a plain writeStream of one process, killed with it."""
    chance = random.Random(None if SOAK else 4)
    runs, own = tmp_path / "runs", tmp_path / "own"
    everything, others = (land(folder / "in", chance) for folder in (runs, own))
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    for kill, is_last in enumerate(ENDED):
        log = tmp_path / f"log{kill}"
        job = started(script, log, str(runs), str(own), name, "last" if is_last else "not yet")
        after = FILES if is_last else (kill + 1) * (FILES - 2) // ENDED.count(False) + chance.randrange(2)
        while job.poll() is None and (commits(runs) < after or commits(own) < kill + 1):
            time.sleep(0.05)
        time.sleep(2 * chance.random())
        assert is_last or job.poll() is None, log.read_text()
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    _check_the_log((tmp_path / "log0").read_text())
    _check_the_run(QUERIES[name](stays(spark, runs)), runs, answer(name, everything))
    # progress beyond all that there is, as nobody can say that the input of a writeStream has ended
    others += land(own / "in", chance, [(FAR, FAR + 1, "a", 1)])
    changed = QUERIES[name](stays(spark, own).where(sq.col("v") > 0))
    _check_the_write_stream(QUERIES[name](stays(spark, own)), changed, own, answer(name, others))


LAST_FILES = ("checkpoint/offsets/N", "out/_spark_metadata/N", "checkpoint/commits/N", "checkpoint/streamq/ended")
"""The last files that a finishing run writes, in this order: micro-batch N is planned, written, committed; the end is marked."""


def test_killed_at_each_step_of_finishing(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """What it writes from a step on is taken away, as if it had not come to that; after the last one the end is sent again."""
    everything = land(tmp_path / "in", random.Random(2))

    def asked(s: sq.Stream) -> sq.Stream:
        return together(s.chop(7), s.landmark_window(10, period=30).select(x=sq.sum("v")))

    expected = asked(sq.intervals(t.table(SCHEMA, everything), start="start", end="end", name="stays")).to_arrow()
    query = asked(stays(spark, tmp_path))
    run_to_the_end(query, tmp_path, finish=True)
    for step in range(len(LAST_FILES)):
        _take_away(tmp_path, LAST_FILES[step:])
        if step == len(LAST_FILES) - 1:
            Checkpoint(spark, f"{tmp_path}/checkpoint").control.send(spark, END_OF_INPUT)
        run_to_the_end(query, tmp_path, finish=True)
        t.assert_same_history(output(tmp_path), expected)
        assert (tmp_path / "checkpoint/streamq/ended").exists()


def _take_away(folder: Path, names: Sequence[str]) -> None:
    """Remove files of a run that is over, with their checksums; N is its last micro-batch."""
    last = max(int(p.name) for p in (folder / "checkpoint/commits").glob("*") if p.name.isdigit())
    for name in names:
        path = folder / name.replace("N", str(last))
        if path.is_dir():
            shutil.rmtree(path)
            continue
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _check_the_log(log: str) -> None:
    """The user's settings stay, and stages of a stream that has just begun say nothing."""
    assert "settings: Asia/Tokyo false" in log.splitlines(), log
    assert "doesn't contain key" not in log and "FileNotFoundException" not in log
    chatter = [line for line in log.splitlines() if "Python worker" in line]
    assert all("Starting Streaming" in line for line in chatter), "the first line is PySpark's before it reads ours"


def _check_the_run(query: sq.Stream, folder: Path, expected: pa.Table) -> None:
    """Let the run go on to its end, if it has not ended, and compare what it wrote."""
    if (folder / "checkpoint" / "streamq" / "ended").exists():
        with pytest.raises(CheckpointError, match="the checkpoint's stream has ended"):
            run_to_the_end(query, folder, finish=True)
    else:
        run_to_the_end(query, folder, finish=True)
    written = output(folder)
    t.assert_same_history(written, expected)
    assert written.num_rows > 10


def _check_the_write_stream(query: sq.Stream, changed: sq.Stream, folder: Path, expected: pa.Table) -> None:
    """Let it go on, and compare. It has no control folder, and no run that knows its checkpoint: the state is all there is."""
    with pytest.raises(StreamingQueryException) as refused:
        write(changed, folder).trigger(availableNow=True).start().awaitTermination()
    assert "CheckpointError: query: the checkpoint cannot go on with this query; " in str(refused.value)
    with pytest.raises(CheckpointError, match="run: the checkpoint is that of a writeStream; found"):
        query.run(checkpoint=str(folder / "checkpoint"))
    write(query, folder).trigger(availableNow=True).start().awaitTermination()
    written = output(folder)
    t.assert_same_history(before(written), before(expected))
    assert written.num_rows > 10


def output(folder: Path) -> pa.Table:
    """Read what was written, as Spark does: by the commit log."""
    return SparkSession.active().read.parquet(str(folder / "out")).toArrow()


FAR = 1_000


def before(rows: pa.Table, end: int = FAR // 2) -> pa.Table:
    """The rows that start before an instant."""
    return rows.filter(pc.less(rows.column("start"), end))


def land(folder: Path, chance: random.Random, rows: list[tuple[int, int, str, int]] | None = None) -> list[Any]:
    """Write files of events, or one more of those rows; give what they hold."""
    folder.mkdir(parents=True, exist_ok=True)
    everything = []
    first = len(list(folder.iterdir()))
    for i in range(first, FILES if rows is None else first + 1):
        starts = [10 * i + chance.randrange(-15, 10) for _ in range(12)]
        drawn = [(s, s + chance.randrange(1, 20), chance.choice("ab"), chance.randrange(9)) for s in starts]
        everything += drawn if rows is None else rows
        path = folder / f"{i:02}.parquet"
        pq.write_table(t.table(SCHEMA, drawn if rows is None else rows), path)
        # files are taken in order of their age
        os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))
    return everything


def answer(name: str, rows: list[Any]) -> pa.Table:
    """What a query gives of them all at once."""
    return QUERIES[name](sq.intervals(t.table(SCHEMA, rows), start="start", end="end", name="stays")).to_arrow()


def test_no_operator_with_state_is_left_out() -> None:
    s = sq.intervals(t.table(SCHEMA, []), start="start", end="end")
    with_state = {kind for kind in written_operators() if issubclass(kind, EvaluatedOperator)}
    assert {type(n) for query in QUERIES.values() for n in nodes(query(s).plan)} >= with_state


def started(script: Path, log_file: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start the job in a process group of its own, with its JVM and workers."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log_file.open("ab") as log:
        command = [sys.executable, str(script), *arguments]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def commits(folder: Path) -> int:
    """How many micro-batches have been done."""
    return len([p for p in (folder / "checkpoint" / "commits").glob("*") if p.name.isdigit()])
