"""Verification by default runs every backend; what only Spark evaluates is verified on Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t
from streamq.choices import CountReason
from streamq.testing.arrival import Item
from streamq.testing.backends import execute_on_spark
from streamq.testing.case import Case
from streamq.testing.execution import SPARK, Execution
from streamq.testing.expectation import expectation
from streamq.testing.history import WrongOutput
from streamq.testing.sources.room import SetAsideItem
from streamq.testing.trial import with_late_sinks

TRIPS = sq.events([(1, 5, {"zone": "a", "fare": 3.0})], name="trips")


def test_by_default_every_backend_runs(spark: SparkSession, plain: None) -> None:
    query = TRIPS.where(sq.col("fare") > 1).group_by("zone").session_window(5).select(n=sq.count(), most=sq.max("fare"))
    # a changelog has a column of that name itself
    report = t.verify(query.rename(zone="kind"), examples=5, profile="default")
    default = t.PROFILES["default"]
    assert report.cases == 5 + default.batch + default.streams and not report.left_out
    assert report.executions["batch"] == default.batch and report.executions["spark stream"] == default.streams


def test_queries_run_side_by_side(spark: SparkSession, plain: None) -> None:
    """``run_all`` runs them as one stream; one has a column that the output of another one would add."""
    windows = TRIPS.group_by("zone").tumbling_window(5)
    queries = [windows.select(n=sq.count()), windows.select(kind=sq.max("fare")), TRIPS.where(sq.col("fare") > 1)]
    report = t.verify(queries, profile=t.Profile(examples=1, batch=1, streams=2))
    assert report.executions["batch"] == 1 and report.executions["spark stream"] == 2


def test_what_a_run_sets_aside_is_compared(spark: SparkSession, plain: None) -> None:
    """Its counts, and the rows of its late sink: an item that is late must stand in it, as it came and as late as it was."""
    late = Item("insert", 2, 15, payload={"k": "b"})
    items = [Item("insert", 10, 20, payload={"k": "a"}), late, Item("insert", 1, 5, payload={"k": "c"})]
    stays = sq.intervals(
        t.table("start bigint, end bigint, k string", []), start="start", end="end", name="s", late="adjust"
    )
    case = Case(stays.plan, tuple(("s", item) for item in items), (1, 2))
    case, (how,) = with_late_sinks((case, (Execution(SPARK, buckets=2),)))
    expected = expectation(case, how)
    assert how.late_output and execute_on_spark(case, how, spark, expected).num_rows == 2
    earlier = SetAsideItem(CountReason.ADJUSTED, late, late_by=7)
    seen = expected.seen["s"]
    wrong = replace(expected, seen={"s": replace(seen, set_aside=[earlier, *seen.set_aside[1:]])})
    with pytest.raises(
        WrongOutput, match=r"the late output has the row \[2, 15\) of s, counted as adjusted, 8 ticks late"
    ):
        execute_on_spark(case, how, spark, wrong)


def test_what_only_spark_evaluates_is_verified_on_spark(spark: SparkSession, plain: None) -> None:
    query = TRIPS.select("fare", sound=sq.functions.soundex("zone")).union(TRIPS.select("fare", sound=sq.lit("zone")))
    report = t.verify(query, profile=t.Profile(examples=5, batch=2, streams=0))
    assert report.executions["batch"] == 2 and "soundex" in report.left_out["in-process"]
