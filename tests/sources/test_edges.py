"""Edges: what opens and closes a lifetime, and what is no event."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.errors import InvalidEvent, TypeMismatch


def edges(rows: list[tuple[int, str, int, str]], **options: Any) -> sq.Stream:
    columns = dict(zip(("t", "edge", "id", "v"), zip(*rows, strict=True), strict=True))
    return sq.edges(pa.table(columns), "t", edge="edge", key="id", name="e", **options)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([(3, "end", 1, "x")], "an end without an open start"),
        ([(3, "start", 1, "x"), (3, "end", 1, "x")], "an end without an open start"),
        ([(1, "start", 1, "x"), (2, "end", 1, "x"), (3, "end", 1, "x")], "an end without an open start"),
        (
            [(1, "start", 1, "x"), (1, "start", 1, "y")],
            "two edges of one key at one instant that differ, without order_by",
        ),
        ([(1, "begin", 1, "x")], "neither a start nor an end"),
    ],
)
def test_rows_that_are_no_events(rows: list[tuple[int, str, int, str]], reason: str) -> None:
    with pytest.raises(InvalidEvent, match=rf"source e: a row is no event: {reason} \(start \d+\)"):
        edges(rows).to_arrow()
    assert edges([*rows, (50, "start", 7, "ok")], invalid="drop").to_arrow().num_rows >= 1


def test_marks_of_another_type_than_the_column() -> None:
    with pytest.raises(TypeMismatch, match="edges: open is no value of column 'edge'; found 1 for a column of string"):
        edges([(1, "start", 1, "x")], open=1)
