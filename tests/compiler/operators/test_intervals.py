"""Literal intervals: open ends, rows that are no events, axes."""

from __future__ import annotations

import datetime as dt

import pytest

import streamq as sq
from streamq.errors import InvalidEvent, SourceError


def test_a_null_end_is_still_alive() -> None:
    assert sq.events([(4, None, {"v": 8})]).to_arrow().to_pylist() == [{"v": 8, "start": 4, "end": None}]


def test_naive_datetimes_are_utc() -> None:
    found = sq.events([(dt.datetime(2024, 1, 1), None, {"v": 1})]).to_arrow().column("start").to_pylist()
    assert found == [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]


@pytest.mark.parametrize(
    ("start", "end", "reason"), [(5, 3, "end before start"), (5, 5, "end before start"), (None, 5, "null start")]
)
def test_rows_that_are_no_events(start: int | None, end: int, reason: str) -> None:
    rows = [(1, 2, {"v": 0}), (start, end, {"v": 1})]
    with pytest.raises(InvalidEvent, match=f"a row is no event: {reason}; first: {{'v': 1}}"):
        sq.events(rows).to_arrow()
    assert sq.events(rows, invalid="drop").to_arrow().num_rows == 1


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
