"""Cost goes with change on Spark, too: what is open costs a micro-batch nothing, and a bin nobody touched is not read."""

from __future__ import annotations

import os
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.run import prepared_stream
from streamq.testing.backends import land, stream
from tests.laws.cost_operators import EACH, FAR, HOT, NEW, OPERATORS, SMALL
from tests.mutation.faults import FAULTS
from tests.programs import with_sizes

SCHEMA = pa.schema([(name, pa.int64()) for name in ("start", "end", "k", "v")])
BATCHES = 2
GROUPS = 400
"""The groups that have events open, of which a bin holds some ten."""
SOAK = bool(os.environ.get("STREAMQ_SOAK"))
TRIED = list(OPERATORS) if SOAK else ["session", "left join"]
"""Operators on one input and on two; in a soak, all."""
BINS = BATCHES * len(TRIED) * 3 * HOT
"""The bins that may be read: of each operator those of the touched groups, of two inputs and of the rows sent."""


def events(rows: list[tuple[int, int, int, int]]) -> pa.Table:
    return pa.table(dict(zip(SCHEMA.names, zip(*rows, strict=True), strict=True)), schema=SCHEMA)


def in_small_bins(right: Any) -> Any:
    """The compiler of a run, which gives kernels the sizes of the law in-process: a run has no argument for them."""

    def compiled(*args: Any) -> StagedPlan:
        return with_sizes(right(*args), SMALL)

    return compiled


def work_of_trickle(spark: SparkSession, folder: Path) -> tuple[int, int]:
    """The rows that all operators together evaluate, and the bins they read, in micro-batches that touch HOT of the groups."""
    folder.mkdir()
    s = sq.intervals(stream(spark, folder, SCHEMA), start="start", end="end", name="s", progress=sq.generate(0))
    results = [sq.result(OPERATORS[name](s, s), sink="noop", output="changelog") for name in TRIED]
    work = []
    with (
        patch.object(prepared_stream, "compile_stages", in_small_bins(compile_stages)),
        sq.run_all(results, checkpoint=f"{folder}-checkpoint", buckets=2) as run,
    ):
        for number in range(2 + BATCHES):
            rows = [(10 + number, FAR, (number + i) % HOT, number) for i in range(NEW)]
            if number == 0:
                rows = [(i, FAR + k * EACH + i, k, i) for k in range(GROUPS) for i in range(EACH)]
            land(folder, [events(rows)], first=number)
            run.process_all_available()
            kernels = [kernel for stage in run.metrics["stages"] for kernel in stage["operators"]]
            work.append((sum(k["evaluated"] for k in kernels), sum(k["bins_read"] for k in kernels)))
    # the bulk falls due in the micro-batch after it
    return work[-1][0] - work[1][0], work[-1][1] - work[1][1]


@pytest.mark.parametrize("reads_every_bin", [False, True] if SOAK else [False])
def test_what_is_open_costs_nothing(spark: SparkSession, plain: None, tmp_path: Path, reads_every_bin: bool) -> None:
    with FAULTS["every bin"].in_place() if reads_every_bin else nullcontext():
        evaluated, bins = work_of_trickle(spark, tmp_path / "s")
    # all that a micro-batch touches is read by each port of each operator; all that is open would be 1,200 rows
    assert 0 < evaluated <= BATCHES * 2 * len(TRIED) * HOT * (EACH + (2 + BATCHES) * NEW)
    assert bins > BINS if reads_every_bin else 0 < bins <= BINS


def check_compilations() -> None:
    """Spark compiles no code for a micro-batch of a query once some have run."""
    spark: Any = sq.session()
    compilations = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "s"
        folder.mkdir()
        s = sq.intervals(stream(spark, folder, SCHEMA), start="start", end="end", name="s")
        counts = s.group_by("k").tumbling_window(10).select(n=sq.count())
        numbers = []
        with counts.run(sink="noop", checkpoint=f"{place}/checkpoint") as run:
            for number in range(5):
                land(folder, [events([(10 * number, 10 * number + 1, k, k) for k in range(NEW)])], first=number)
                run.process_all_available()
                numbers.append(compilations.getCount())
    assert numbers[-1] == numbers[2], numbers


@pytest.mark.parametrize("is_faulty", [False, True])
def test_a_micro_batch_compiles_no_code(spark: SparkSession, is_faulty: bool) -> None:
    with FAULTS["a constant of the micro-batch"].in_place() if is_faulty else nullcontext():
        with pytest.raises(AssertionError) if is_faulty else nullcontext():
            check_compilations()
