"""The keys under which Spark groups buckets."""

from __future__ import annotations

import pytest

from streamq.compiler.streaming import bucket_keys, spark_hash


def test_the_hash_is_that_of_spark() -> None:
    # SELECT hash(key)
    assert [spark_hash(key) for key in (0, 1, 2)] == [933211791, -559580957, 1765031574]


@pytest.mark.parametrize("buckets", [1, 2, 3, 8, 32])
def test_every_task_gets_one_bucket(buckets: int) -> None:
    tasks = [spark_hash(key) % buckets for key in bucket_keys(buckets)]
    assert tasks == list(range(buckets))


def test_state_lies_under_these_keys() -> None:
    """Other keys need another version of checkpoints."""
    assert [bucket_keys(n) for n in (1, 2, 3, 4)] == [[0], [2, 0], [0, 1, 11], [12, 6, 2, 0]]
