"""Windows of a zone's days and months on Spark, whose time zones are Java's: the oracle's windows, in batch and as a stream."""

from __future__ import annotations

import datetime as dt

from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t


def test_months_and_days_are_those_of_the_oracle(spark: SparkSession, plain: None) -> None:
    events = t.stream(columns="k string, v bigint", axis="timestamp")
    by_month = events.group_by("k").calendar_window("1 month", zone="Europe/Berlin").select(n=sq.count(), s=sq.sum("v"))
    report = t.verify(by_month, profile=t.Profile(examples=1, batch=1, streams=1))
    assert report.executions["batch"] == 1 and report.executions["spark stream"] == 1
    by_day = events.calendar_window("1 day", zone="America/Havana", stamp="point_at_end").top_k(1, by="v")
    assert t.verify(by_day, profile=t.Profile(examples=1, batch=1, streams=0)).executions["batch"] == 1


def test_clock_changes_and_days_skipped_or_repeated_are_those_in_process(spark: SparkSession, plain: None) -> None:
    hour = dt.timedelta(hours=1)
    changes = [
        ("Europe/Berlin", dt.datetime(2026, 3, 28, 12)),
        ("Europe/Berlin", dt.datetime(2026, 10, 24, 12)),
        ("America/Havana", dt.datetime(2026, 3, 7, 12)),
        ("Pacific/Apia", dt.datetime(2011, 12, 29, 12)),
        ("Pacific/Kwajalein", dt.datetime(1969, 9, 29, 12)),
        ("America/St_Johns", dt.datetime(2006, 10, 28, 12)),
        ("America/Toronto", dt.datetime(1919, 3, 30, 12)),
    ]
    for zone, first in changes:
        rows = [(first + i * 5 * hour, first + i * 5 * hour + 30 * hour, i) for i in range(4)]
        query = sq.events([(start, end, {"v": v}) for start, end, v in rows])
        frame = spark.createDataFrame(query.to_arrow().to_pandas())
        on_spark = sq.intervals(frame, start="start", end="end")
        both = [s.calendar_window("1 day", zone=zone).select(n=sq.count(), s=sq.sum("v")) for s in (query, on_spark)]
        t.assert_same_history(both[1].to_df().toArrow(), both[0].to_arrow())
