"""Literal intervals: open ends, rows that are no events, axes."""

from __future__ import annotations

import datetime as dt

import pytest
from pyspark.sql import types as t

import streamq as sq
from streamq.errors import InvalidEvent, PlanError, SourceError
from streamq.plan.schema import Field
from streamq.sources.insert_only import Intervals


def test_a_null_end_is_still_alive() -> None:
    assert sq.events([(4, None, {"v": 8})]).to_arrow().to_pylist() == [{"v": 8, "start": 4, "end": None}]


def test_naive_datetimes_are_utc() -> None:
    found = sq.events([(dt.datetime(2024, 1, 1), None, {"v": 1})]).to_arrow().column("start").to_pylist()
    assert found == [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (5, 3, r"end not after start \(start 5, end 3\)"),
        (5, 5, r"end not after start \(start 5, end 5\)"),
        (None, 5, r"null start \(start NULL, end 5\)"),
        (None, None, r"null start \(start NULL, end NULL\)"),
    ],
)
def test_rows_that_are_no_events(start: int | None, end: int | None, reason: str) -> None:
    rows = [(1, 2, {"v": 0}), (start, end, {"v": 1})]
    with pytest.raises(InvalidEvent, match=f"a row is no event: {reason}; first: {{'v': 1}}"):
        sq.events(rows).to_arrow()
    assert sq.events(rows, invalid="drop").to_arrow().num_rows == 1


def test_a_lifetime_on_the_timestamp_axis_is_shown_as_timestamps() -> None:
    day = dt.datetime(2024, 1, 1)
    with pytest.raises(InvalidEvent, match=r"start 2024-01-01T00:00:00.000000Z, end 2024-01-01T00:00:00.000000Z"):
        sq.events([(day, day, {"v": 1})]).to_arrow()


def test_errors() -> None:
    with pytest.raises(SourceError, match="starts and ends are all integers or all datetimes"):
        sq.events([(1, dt.datetime(2024, 1, 1), {"v": 1})])
    with pytest.raises(SourceError, match="column 'v' mixes types"):
        sq.events([(1, 2, {"v": 1}), (1, 2, {"v": "x"})])
    with pytest.raises(SourceError, match="column 'v' has only NULLs"):
        sq.events([(1, 2, {"v": None})])
    assert sq.events([(1, 2, {"v": None})], schema={"v": "double"}).columns == ["v"]
    with pytest.raises(SourceError, match="not an event; found 7"):
        sq.events([7])  # type: ignore[list-item]
    with pytest.raises(SourceError, match=r"not an event; found \(1, {'v': 1}\). Write \(start, end, {...}\)"):
        sq.events([(1, {"v": 1})])  # type: ignore[list-item]
    column = Field("a", t.LongType())
    with pytest.raises(PlanError, match="intervals: start and end are the same column; found 'a'"):
        Intervals("s", (column,), "a", "a")
