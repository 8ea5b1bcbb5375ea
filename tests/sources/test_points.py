"""Points: one tick of life; what a time column may be."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from streamq.errors import InvalidEvent, PlanError, TypeMismatch, UnknownColumn
from streamq.operators.input_table import table_fields
from streamq.plan.schema import Field
from streamq.sources.insert_only import Points
from streamq.stream import Stream


def points(times: list[int | None]) -> Stream:
    table = pa.table({"t": pa.array(times, pa.int64()), "v": list(range(len(times)))})
    return Stream(Points("p", table_fields(table), "t"), {"p": table})


def test_a_point_lives_for_one_tick() -> None:
    assert points([3]).to_arrow().to_pylist() == [{"v": 0, "start": 3, "end": 4}]


def test_a_row_without_a_time_is_no_event() -> None:
    with pytest.raises(InvalidEvent, match="source p: a row is no event: null start"):
        points([3, None]).to_arrow()


def test_errors() -> None:
    value = Field("v", t.DoubleType())
    with pytest.raises(UnknownColumn, match="points: no column 't'; there are: v"):
        Points("p", (value,), "t")
    with pytest.raises(TypeMismatch, match="column 'v' is no time; found double"):
        Points("p", (value,), "v")
    with pytest.raises(PlanError, match="a payload column called 'Start'"):
        Points("p", (Field("t", t.LongType()), Field("Start", t.LongType())), "t")
