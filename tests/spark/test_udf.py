"""Functions of a user's own on Spark: their errors are told as in-process (their files travel: ``test_elsewhere.py``)."""

from __future__ import annotations

import datetime as dt
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.errors import ModuleFailed, PlanError
from streamq.testing.backends import land, stream
from tests.host_cases import inverse

pytestmark = pytest.mark.usefixtures("plain")

READINGS = pa.schema([("t", pa.timestamp("us", "UTC")), ("v", pa.int64())])

LOCK = threading.Lock()
"""What cannot be sent anywhere."""

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def test_its_error_is_told_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    readings = pa.Table.from_pylist([{"t": NOON, "v": 0}], schema=READINGS)
    land(tmp_path / "in", [readings])
    message = r"^inverse: it failed; ZeroDivisionError: float division by zero; of v = 0\.$"

    def failing(frame: Any) -> sq.Stream:
        return sq.points(frame, time="t").select(x=inverse("v"))

    with pytest.raises(ModuleFailed, match=message):
        failing(readings).to_arrow()
    with pytest.raises(ModuleFailed, match=message):
        failing(spark.read.parquet(str(tmp_path / "in"))).to_arrow()
    locked = sq.udf("int")(lambda v: v if LOCK else 0)
    with pytest.raises(
        PlanError, match="it cannot be sent to Spark's workers; TypeError: cannot pickle '_thread.lock'"
    ):
        sq.points(spark.read.parquet(str(tmp_path / "in")), time="t").select(x=locked("v")).to_df()
    with pytest.raises(ModuleFailed, match=message):
        failing(stream(spark, tmp_path / "in", READINGS)).run(trigger="available_now")


def test_what_would_end_a_worker_fails_like_any_error(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path / "in", [pa.Table.from_pylist([{"t": NOON, "v": 4}], schema=READINGS)])
    readings = sq.points(spark.read.parquet(str(tmp_path / "in")), time="t")
    window = readings.tumbling_window("1 hour")

    def leaving(*values: Any) -> Any:
        sys.exit(3)

    for query in (
        readings.select(x=sq.udf("int")(leaving)("v")),
        window.select(x=sq.uda("int")(leaving)("v")),
        window.select(sq.udo("x int")(leaving)("v")),
        readings.scan(sq.udso("x int", initial=0)(leaving)("v")),
    ):
        with pytest.raises(ModuleFailed, match=r"^leaving: it failed; SystemExit: 3; .*4"):
            query.to_arrow()
