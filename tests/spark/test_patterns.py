"""Patterns on Spark: each operator, nested, as one query in batch and as a stream of three micro-batches.

The stream has each kind of kernel, in a soak all texts of the batch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, reduce

import pytest
from hypothesis import HealthCheck, Phase, find, settings
from pyspark.sql import SparkSession

import streamq as sq
from streamq.choices import OutputForm
from streamq.testing.backends import execute, execute_on_spark
from streamq.testing.case import Case
from streamq.testing.execution import BATCH, LITERAL, SPARK, Execution
from tests.patterns.pattern_cases import CASES, STREAMS, bag, brute_force, histories

pytestmark = pytest.mark.usefixtures("one_task")

TEXTS = (
    "EVENT E WHEN UNLESS(SEQUENCE(A, B, 6), C, 1, 7) WHERE CorrelationKey(k, EQUAL) OUTPUT A.v AS x, B.v AS y",
    "EVENT E WHEN ATMOST(2, A, B, 4) WHERE A.v < B.v OUTPUT A.v AS x, B.v AS y",
    "EVENT E WHEN CANCEL_WHEN(SEQUENCE(ATLEAST(2, A, B, C, 5), A p, 9), B q) WHERE q.k = A.k OUTPUT A.v AS x, p.v AS y",
    "EVENT E WHEN NOT(ANY(B, C), ALL(A, A p, 6)) WHERE A.v <= p.v OUTPUT A.v AS x, p.v AS y",
    "EVENT E WHEN UNLESS(SEQUENCE(A FIRST CONSUME, B, 8), C, 4) OUTPUT A.v AS x, B.v AS y",
    "EVENT E WHEN UNLESS_BEFORE(REPEAT(A AS f CONSUME, 2, 6), C, 2) WHERE f.v >= 0 OUTPUT sum(f.v) AS x, last(f.v) AS y",
    "EVENT E WHEN SEQUENCE(ANY(A, B) AS s, C, 8) WHERE s.k = C.k AND s.v >= 0 OUTPUT s.v AS x, C.v AS y",
    "EVENT P WHEN SEQUENCE(A, B, 6) WHERE A.k = B.k OUTPUT A.k AS k, A.v AS v, B.v AS w; "
    "EVENT E WHEN UNLESS(P, C, 5) WHERE P.k = C.k OUTPUT P.v AS x, P.w AS y",
)


STREAMED = TEXTS if os.environ.get("STREAMQ_SOAK") else (TEXTS[2], TEXTS[4], TEXTS[5])
"""Each kind of kernel that patterns have: windows and joins, a scan that consumes, one that repeats."""


@cache
def arrivals() -> Case:
    """Return arrivals in three micro-batches in which each text has a match."""
    search = settings(
        max_examples=1_000, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    return find(CASES, lambda case: all(brute_force(text, histories(case)) for text in TEXTS), settings=search)


def check(spark: SparkSession, how: Execution, texts: Sequence[str]) -> None:
    case = arrivals()
    queries = [sq.cedr(text, **STREAMS).with_columns(text=sq.lit(n)) for n, text in enumerate(texts)]
    answers = [brute_force(text, histories(case)) for text in texts]
    assert all(answers)
    result = execute_on_spark(replace(case, plan=reduce(sq.Stream.union, queries).plan), how, spark)
    assert bag(result.to_pylist()) == bag({**row, "text": n} for n, rows in enumerate(answers) for row in rows)


def test_a_batch(spark: SparkSession) -> None:
    check(spark, Execution(BATCH), TEXTS)


def test_a_stream(spark: SparkSession) -> None:
    check(spark, Execution(SPARK, OutputForm.CHANGELOG, buckets=1), STREAMED)


def test_ids_and_functions_are_those_of_other_hosts(spark: SparkSession) -> None:
    output = "s.id AS id, s.contributors AS contributors, concat_ws('-', A.k, B.k) AS ks"
    query = sq.cedr(f"EVENT E WHEN SEQUENCE(A, UNLESS(B, C, 3) AS s, 7) OUTPUT {output}", **STREAMS)
    case = replace(arrivals(), plan=query.plan)
    expected = execute(case, Execution(LITERAL))
    assert expected.num_rows
    on_spark = execute_on_spark(case, Execution(BATCH), spark).select(expected.column_names)
    assert sorted(map(repr, on_spark.to_pylist())) == sorted(map(repr, expected.to_pylist()))
