"""The number of buckets changes on a checkpoint on Spark: the state moves in the next micro-batch, or not at all if that is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamq as sq
from streamq.runtime.processor import STATE
from tests.spark.test_changed_query import FILES, answer, arrive, bag_of, run, stays, written


def chain(s: sq.Stream) -> sq.Stream:
    """Sessions by key, snapshots of all, and the pairs of these with what began shortly before: three stages."""
    sessions = s.group_by("k").session_window(3).select(n=sq.count(), most=sq.max("v"))
    both = sessions.snapshot_window().select(n=sq.sum("n"), most=sq.max("most"))
    return both.join(s.shift(1).select(w=sq.col("v")), suffixes=("", "_r"))


def buckets_with_state(spark: SparkSession, checkpoint: Path, operator: int) -> int:
    state = spark.read.format("statestore").option("stateVarName", STATE).option("operatorId", operator)
    return state.load(str(checkpoint)).select(F.col("key")["__to"]).distinct().count()


def test_a_run_goes_on_in_other_buckets(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    for number, buckets in enumerate((2, 3, None, 1, 2, 2)):
        arrive(tmp_path, number, number + 1)
        last: dict[str, Any] = {"finish": True} if number == FILES - 1 else {}
        run(chain(stays(spark, tmp_path)), tmp_path, buckets=buckets, **last)
        # a bucket that there is no more leaves nothing
        assert buckets_with_state(spark, tmp_path / "checkpoint", 0) == (buckets or 3)
    assert written(spark, tmp_path / "out") == bag_of(answer(chain))
