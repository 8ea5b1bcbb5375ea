"""A function of a user's own in-process, in batch and as a stream: one answer, in a filter, a column and a join's condition."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from tests.own_function import call, digit_sum
from tests.spark.replay import check_on_every_host

pytestmark = pytest.mark.usefixtures("plain")

READINGS = pa.schema([("t", pa.int64()), ("v", pa.int64())])
DIGITS = digit_sum()


def query(points: sq.Stream) -> sq.Stream:
    """A filter and a column on the path of each side, and a condition that the hosted join evaluates on executors."""
    lasting = points.where(call(DIGITS, sq.col("v")) > 2).set_duration(9)
    left = lasting.select("v", digits=call(DIGITS, sq.col("v")))
    right = lasting.select(w=sq.col("v"))
    return left.join(right, where=lambda a, b: call(DIGITS, a.v) == call(DIGITS, b.w), how="left")


def test_it_gives_one_answer_on_every_host(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    readings = pa.Table.from_pylist([{"t": 3 * i, "v": (i * 37) % 120 - 40} for i in range(40)], schema=READINGS)
    check_on_every_host(spark, tmp_path, readings, query, cut=25)
