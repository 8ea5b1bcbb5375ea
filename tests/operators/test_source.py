"""Sources: one axis for all time columns, ticks whatever the time zone, policies checked at the user's line."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

import streamq as sq
from streamq.errors import TypeMismatch
from streamq.expressions import col
from streamq.operators.alter_lifetime import instant_as_ticks
from streamq.operators.source import axis_of
from streamq.operators.source_arguments import source_policy
from streamq.plan.expr import show
from streamq.plan.schema import Field
from streamq.progress_policies import ExplicitCtis, GeneratedCtis


def test_one_axis() -> None:
    fields = (Field("a", t.TimestampType()), Field("b", t.LongType()), Field("c", t.DateType()))
    assert axis_of(fields, ("a", "c"), "intervals") == "timestamp"
    with pytest.raises(TypeMismatch, match="time columns on different axes; found a, b"):
        axis_of(fields, ("a", "b"), "intervals")


def test_ticks_do_not_ask_the_sessions_time_zone() -> None:
    assert show(instant_as_ticks(col("a"), t.TimestampType())) == "unix_micros(a)"
    assert "unix_date" in show(instant_as_ticks(col("a"), t.TimestampNTZType()))
    assert show(instant_as_ticks(col("a"), t.DateType())) == "cast(unix_date(a) as bigint) * 86400000000"


def test_policies() -> None:
    policy = source_policy("points", "timestamp", sq.generate("5 minutes"), "drop", None)
    assert policy.progress == GeneratedCtis(300_000_000)
    assert source_policy("points", "integer", None, "drop", None).progress == GeneratedCtis()
    assert source_policy("points", "integer", sq.explicit(), "drop", None).progress == ExplicitCtis()
