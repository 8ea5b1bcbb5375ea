"""The number of buckets changes on Spark: the state moves in the next micro-batch, or not at all if that is killed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamq as sq
from streamq.runtime.processor import STATE
from tests.spark.test_changed_query import FILES, answer, arrive, bag_of, run, stays, written
from tests.spark.test_kill import started


def chain(s: sq.Stream) -> sq.Stream:
    """Sessions by key, the pairs of these with what began shortly before, and snapshots of all, in two stages."""
    sessions = s.group_by("k").session_window(3).select(n=sq.count(), most=sq.max("v"))
    pairs = sessions.join(s.shift(1).select("k", w=sq.col("v")), on="k", how="left", suffixes=("", "_r"))
    return pairs.snapshot_window().select(n=sq.sum("n"), most=sq.max("most"), w=sq.sum("w"))


def buckets_with_state(spark: SparkSession, checkpoint: Path, stages: int) -> set[int]:
    """The numbers of buckets that have state in the stages."""
    state = spark.read.format("statestore").option("stateVarName", STATE)
    tables = [state.option("operatorId", number).load(str(checkpoint)) for number in range(stages)]
    return {table.select(F.col("key")["__to"]).distinct().count() for table in tables}


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
    """The last stage, which adds CTIs, needs one bucket; the key of its first one of three is that of a second one of two."""
    for first, end, buckets in ((0, 2, 3), (2, 3, 2), (3, 4, None), (4, FILES, 1)):
        arrive(tmp_path, first, end)
        how: dict[str, Any] = {"output": "changelog", "ctis": True, "finish": end == FILES}
        run(chain(stays(spark, tmp_path)), tmp_path, buckets=buckets, **how)
        # a bucket that there is no more leaves nothing
        assert buckets_with_state(spark, tmp_path / "checkpoint", 3) == {buckets or 2}
    rows = spark.read.parquet(str(tmp_path / "out")).toArrow().to_pylist()
    assert folded(rows) == bag_of(answer(chain))


MOVING = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pathlib import Path
import streamq as sq
from tests.conftest import INTERPRETED, NO_ORIGINS, WARM_WORKERS
from tests.spark.test_buckets import chain, stays
from tests.spark.test_changed_query import run

settings = {"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"}
spark = sq.session(config=settings | INTERPRETED | NO_ORIGINS | WARM_WORKERS)
run(chain(stays(spark, Path(sys.argv[1]))), Path(sys.argv[1]), buckets=3)
print("done", flush=True)
"""


def test_a_move_that_is_killed_begins_anew(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """Killed once Spark has planned the micro-batch that brings the state, which is then done in the old buckets."""
    arrive(tmp_path, 0, 3)
    run(chain(stays(spark, tmp_path)), tmp_path, buckets=2)
    arrive(tmp_path, 3, FILES)
    number = max(int(path.name) for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*")) + 1
    script, log = tmp_path / "job.py", tmp_path / "log"
    script.write_text(MOVING)
    job = started(script, log, str(tmp_path))
    while job.poll() is None and not (tmp_path / "checkpoint" / "offsets" / str(number)).exists():
        time.sleep(0.02)
    assert job.poll() is None, log.read_text()
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    assert not (tmp_path / "checkpoint" / "commits" / str(number)).exists()
    run(chain(stays(spark, tmp_path)), tmp_path, buckets=3, finish=True)
    assert buckets_with_state(spark, tmp_path / "checkpoint", 2) == {3}
    assert written(spark, tmp_path / "out") == bag_of(answer(chain))
