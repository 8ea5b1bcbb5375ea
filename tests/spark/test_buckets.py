"""The number of buckets changes on Spark: the state moves in the next micro-batch, or again if that fails or is killed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import streamq as sq
from streamq.errors import QueryFailed
from streamq.run.checkpoint import Checkpoint
from tests.spark.replay import land
from tests.spark.test_changed_query import FILES, SOAK, answer, arrive, bag_of, run, stays, table, written
from tests.spark.test_kill import started


def chain(s: sq.Stream) -> sq.Stream:
    """Sessions by key, the pairs of these with what began shortly before, and snapshots of all, in two stages."""
    sessions = s.group_by("k").session_window(3).select(n=sq.count(), most=sq.max("v"))
    pairs = sessions.join(s.shift(1).select("k", w=sq.col("v")), on="k", how="left", suffixes=("", "_r"))
    return pairs.snapshot_window().select(n=sq.sum("n"), most=sq.max("most"), w=sq.sum("w"))


def buckets_with_state(spark: SparkSession, checkpoint: Path, stages: int) -> set[int]:
    """The numbers of buckets that have state in the stages."""
    tables = (Checkpoint(spark, str(checkpoint)).chunks(number) for number in range(stages))
    return {table.select("key").distinct().count() for table in tables}


def folded(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The history of a changelog, in the order of :func:`written`."""
    weights = Counter[tuple[Any, ...]]()
    for row in rows:
        if row["kind"] != "cti":
            payload = row["most"], row["n"], row["start"], row["w"]
            weights[row["end"], *payload] += 1 if row["kind"] == "insert" else -1
            if row["kind"] == "retract" and row["new_end"] > row["start"]:
                weights[row["new_end"], *payload] += 1
    assert min(weights.values()) >= 0
    return bag_of(list(weights.elements()))


def test_a_run_goes_on_in_other_buckets(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """The last stage, which adds CTIs, needs one bucket; the key of its first one of three is that of a second one of two.

    In a soak with the number left out, and into one bucket, too.
    """
    numbers = (3, 2, None, 1) if SOAK else (3, 2)
    for part, buckets in enumerate(numbers):
        first, end = part, FILES if part == len(numbers) - 1 else part + 1
        land(tmp_path / "in", [table(first, end)], part)
        run(
            chain(stays(spark, tmp_path)), tmp_path, buckets=buckets, finish=end == FILES, output="changelog", ctis=True
        )
        if part:
            # a bucket that there is no more leaves nothing
            assert buckets_with_state(spark, tmp_path / "checkpoint", 3) == {buckets or 2}
    rows = spark.read.parquet(str(tmp_path / "out")).toArrow().to_pylist()
    assert folded(rows) == bag_of(answer(chain))


MOVING = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pathlib import Path
import streamq as sq
from tests.conftest import INTERPRETED, WARM_WORKERS
from tests.spark.test_buckets import chain, stays
from tests.spark.test_changed_query import run

settings = {"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"}
spark = sq.session(config=settings | INTERPRETED | WARM_WORKERS)
run(chain(stays(spark, Path(sys.argv[1]))), Path(sys.argv[1]), buckets=3)
print("done", flush=True)
"""


@pytest.mark.parametrize("way", ["fails", "is killed"] if SOAK else ["fails"])
def test_a_move_that_is_not_committed_is_repeated(spark: SparkSession, plain: None, tmp_path: Path, way: str) -> None:
    """Spark has planned the micro-batch that brings the state, and perhaps written it in the new buckets, in which it is done."""
    arrive(tmp_path, 0, 3)
    run(chain(stays(spark, tmp_path)), tmp_path, buckets=2)
    arrive(tmp_path, 3, FILES)
    number = max(int(path.name) for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*")) + 1
    {"fails": fail, "is killed": kill}[way](spark, tmp_path, tmp_path / "checkpoint" / "offsets" / str(number))
    assert not (tmp_path / "checkpoint" / "commits" / str(number)).exists()
    # into the same number again; or into another one, once the micro-batch is done in those for which it was planned
    then = 3 if way == "fails" else 1
    run(chain(stays(spark, tmp_path)), tmp_path, buckets=then, finish=True)
    assert buckets_with_state(spark, tmp_path / "checkpoint", 2) == {then}
    assert written(spark, tmp_path / "out") == bag_of(answer(chain))


def fail(spark: SparkSession, folder: Path, planned: Path) -> None:
    """Run into a sink that fails as it gets the micro-batch."""

    def sink(rows: DataFrame, number: int) -> None:
        raise OSError("the disk is full")

    query, checkpoint = chain(stays(spark, folder)), str(folder / "checkpoint")
    with pytest.raises(QueryFailed, match="the disk is full"):
        query.run(sink=sink, checkpoint=checkpoint, trigger="available_now", buckets=3)
    assert planned.exists()


def kill(spark: SparkSession, folder: Path, planned: Path) -> None:
    """Run in a process that is killed as soon as the micro-batch is planned."""
    script, log = folder / "job.py", folder / "log"
    script.write_text(MOVING)
    job = started(script, log, str(folder))
    while job.poll() is None and not planned.exists():
        time.sleep(0.02)
    assert job.poll() is None, log.read_text()
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
