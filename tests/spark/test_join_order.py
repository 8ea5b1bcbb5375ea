"""On Spark, too, another order of joins gives the answer: of a batch, and of a stream that starts again."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from pyspark.sql import SparkSession

from streamq import testing as t
from streamq.choices import OutputForm
from streamq.testing.case import Case
from streamq.testing.execution import BATCH, SPARK, Execution
from streamq.testing.trial import check
from tests.laws.test_join_order import DATA, Kind, chain, sequence, some


@pytest.mark.parametrize(("kind", "seed"), [(chain, 1), (sequence, 1)], ids=["chain", "sequence"])
def test_another_order_gives_the_answer(spark: SparkSession, kind: Kind, seed: int) -> None:
    rates = (20_000, 3_000, 50, 1, 5, 400)
    ways = [Execution(BATCH, rates=rates), Execution(SPARK, OutputForm.CHANGELOG, buckets=2, restart=True, rates=rates)]

    @some(1)
    @given(t.concrete(kind(random.Random(seed)), DATA))
    def judge(case: Case) -> None:
        check(case, ways, spark)

    judge()
