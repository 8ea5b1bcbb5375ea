"""Modules over windows on Spark: a sample in which every two choices meet, as one query, in batch and as a stream."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession

from streamq.choices import OutputForm
from streamq.testing.case import Case
from streamq.testing.execution import BATCH, SPARK, Execution
from streamq.testing.trial import Answers, check_answers
from tests.window_modules import CASES, SAMPLE, Choice, over

pytestmark = pytest.mark.usefixtures("one_task")

ONCE = settings(
    max_examples=1,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def check_sample(spark: SparkSession, how: Execution, sample: Sequence[Choice]) -> None:
    @ONCE
    @given(CASES)
    def law(case: Case) -> None:
        n = len(case.arrival)
        case = over(case, sample).with_cut(n // 2, n - n // 2)
        check_answers(case, [how], Answers(case), spark)

    law()


def test_a_batch(spark: SparkSession) -> None:
    """Every fourth choice, others than as a stream; all of them run in-process."""
    check_sample(spark, Execution(BATCH), SAMPLE[1::4])


def test_a_stream(spark: SparkSession) -> None:
    """Of the changelog, from which more can be wrong than from final rows."""
    check_sample(spark, Execution(SPARK, OutputForm.CHANGELOG, buckets=1), SAMPLE[::8])
