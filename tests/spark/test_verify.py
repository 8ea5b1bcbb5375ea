"""Verification by default runs every backend; what only Spark evaluates is verified on Spark."""

from __future__ import annotations

from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t

TRIPS = sq.events([(1, 5, {"zone": "a", "fare": 3.0})], name="trips")


def test_by_default_every_backend_runs(spark: SparkSession, plain: None) -> None:
    query = TRIPS.where(sq.col("fare") > 1).group_by("zone").session_window(5).select(n=sq.count(), most=sq.max("fare"))
    # a changelog has a column of that name itself
    report = t.verify(query.rename(zone="kind"), examples=5, profile="default")
    default = t.PROFILES["default"]
    assert report.cases == 5 + default.batch + default.streams and not report.left_out
    assert report.executions["batch"] == default.batch and report.executions["spark stream"] == default.streams


def test_what_only_spark_evaluates_is_verified_on_spark(spark: SparkSession, plain: None) -> None:
    query = TRIPS.select("fare", sound=sq.functions.soundex("zone")).union(TRIPS.select("fare", sound=sq.lit("zone")))
    report = t.verify(query, profile=t.Profile(examples=5, batch=2, streams=0))
    assert report.executions["batch"] == 2 and "soundex" in report.left_out["in-process"]
