"""Cost goes with change on Spark, too: what is open costs a micro-batch nothing. Operators are drawn at random."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import streamq as sq
from tests.laws.cost_operators import EACH, FAR, HOT, NEW, OPERATORS
from tests.spark.replay import land, stream

SCHEMA = pa.schema([(name, pa.int64()) for name in ("start", "end", "k", "v")])
BATCHES = 2
GROUPS = 4_000
"""So many that the bins of an inner join are split by group."""
DRAWN = sorted(OPERATORS if os.environ.get("STREAMQ_SOAK") else random.Random(7).sample(list(OPERATORS), 2))


def events(rows: list[tuple[int, int, int, int]]) -> pa.Table:
    return pa.table(dict(zip(SCHEMA.names, zip(*rows, strict=True), strict=True)), schema=SCHEMA)


def work_of_trickle(spark: SparkSession, folder: Path, groups: int) -> tuple[int, int]:
    """The rows that all operators together evaluate, and the bins they read, in micro-batches that touch HOT of the groups."""
    folder.mkdir()
    s = sq.intervals(stream(spark, folder, SCHEMA), start="start", end="end", name="s", progress=sq.generate(0))
    results = [sq.result(OPERATORS[name](s, s), sink="noop", output="changelog") for name in DRAWN]
    work = []
    with sq.run_all(results, checkpoint=f"{folder}-checkpoint", buckets=2) as run:
        for number in range(2 + BATCHES):
            rows = [(10 + number, FAR, (number + i) % HOT, number) for i in range(NEW)]
            if number == 0:
                rows = [(i, FAR + k * EACH + i, k, i) for k in range(groups) for i in range(EACH)]
            land(folder, [events(rows)], first=number)
            run.process_all_available()
            kernels = [kernel for stage in run.metrics["stages"] for kernel in stage["operators"]]
            work.append((sum(k["evaluated"] for k in kernels), sum(k["bins_read"] for k in kernels)))
    # the bulk falls due in the micro-batch after it
    return work[-1][0] - work[1][0], work[-1][1] - work[1][1]


def test_what_is_open_costs_nothing(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    evaluated, bins = work_of_trickle(spark, tmp_path / "s", GROUPS)
    # all that a micro-batch touches is read by each port of each operator; all that is open would be 12,000 rows
    ports = 2 * len(DRAWN)
    assert 0 < evaluated <= BATCHES * ports * HOT * (EACH + (2 + BATCHES) * NEW)
    assert bins <= BATCHES * ports * 4 * HOT, "each group may lie in a bin of its own, in a basket of its own"
