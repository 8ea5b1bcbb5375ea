"""Points and intervals: rows that are no events, axes, and what literal events are not."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import streamq as sq
from streamq.errors import InvalidEvent, PlanError, SourceError, TypeMismatch, UnknownColumn


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


def test_a_row_without_a_time_is_no_event() -> None:
    times = pa.table({"t": pa.array([3, None], pa.int64()), "v": [0, 1]})
    with pytest.raises(InvalidEvent, match="source p: a row is no event: null start"):
        sq.points(times, "t", name="p").to_arrow()


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


def test_columns_that_make_no_events() -> None:
    table = pa.table({"v": [1.5], "a": [1], "Start": [1]})
    with pytest.raises(PlanError, match="intervals: start and end are the same column; found 'a'"):
        sq.intervals(table, "a", "a")
    with pytest.raises(UnknownColumn, match="points: no column 't'; there are: v, a, Start"):
        sq.points(table, "t")
    with pytest.raises(TypeMismatch, match="points: column 'v' is no time; found double"):
        sq.points(table, "v")
    with pytest.raises(PlanError, match="points: a payload column called 'Start'"):
        sq.points(table, "a")
