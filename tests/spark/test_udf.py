"""Functions of a user's own on Spark: their errors are told as in-process, and their files travel with the query."""

from __future__ import annotations

import datetime as dt
import importlib
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
from tests.spark.replay import ended

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


def test_a_function_in_a_file_of_the_users_runs_on_workers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers cannot import the file, nor another one that it imports."""
    folder = tmp_path / "users_own"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "rates.py").write_text("def rate(v):\n    return v * 2.5\n")
    (folder / "prices.py").write_text("from users_own.rates import rate\n\n\ndef price(v):\n    return rate(v) + 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    prices = importlib.import_module("users_own.prices")
    land(tmp_path / "in", [pa.table({"t": [1, 3], "v": [2, 4]})])
    rows = stream(spark, tmp_path / "in", pa.schema([("t", pa.int64()), ("v", pa.int64())]))
    price = sq.udf("double")(prices.price)
    points = sq.points(rows, time="t").set_duration(9).select("v", p=price("v"))
    # the map side computes p, and the kernel of the join the condition
    pairs = points.join(points, where=lambda a, b: price(a.v) < price(b.v), how="left", suffixes=("", "_r"))
    places = {"checkpoint": str(tmp_path / "checkpoint"), "sink": str(tmp_path / "out")}
    ended(pairs, **places)
    assert sorted(spark.read.parquet(places["sink"]).toArrow().column("p").to_pylist()) == [6.0, 6.0, 11.0]
