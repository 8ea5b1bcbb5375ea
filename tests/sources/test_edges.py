"""Edges: what opens and closes a lifetime, and what is no event."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamq.errors import InvalidEvent, TypeMismatch
from streamq.operators.input_table import table_fields
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.expr import Lit
from streamq.sources.edges import Edges
from streamq.stream import Stream


def edges(
    rows: list[tuple[int, str, int, str]], payload: str = "start", invalid: str | None = None
) -> list[tuple[int, int | None, int, str]]:
    table = pa.table({n: [r[i] for r in rows] for i, n in enumerate(("t", "edge", "id", "v"))})
    node = Edges(
        "e", table_fields(table), "t", "edge", ("id",), Lit("start"), Lit("end"), payload, SourcePolicy(invalid=invalid)
    )
    found = Stream(node, {"e": table}).to_arrow().to_pylist()
    return [(r["start"], r["end"], r["id"], r["v"]) for r in found]


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
        edges(rows)
    assert len(edges([*rows, (50, "start", 7, "ok")], invalid="drop")) >= 1


def test_marks_of_another_type_than_the_column() -> None:
    table = pa.table({"t": [1], "edge": ["start"], "id": [1]})
    with pytest.raises(TypeMismatch, match="edges: open is no value of column 'edge'; found 1 for a column of string"):
        Edges("e", table_fields(table), "t", "edge", ("id",), Lit(1), Lit("end"))
