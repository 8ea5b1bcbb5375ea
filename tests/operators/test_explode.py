"""explode: a row for each element of an array, on the event's lifetime."""

from __future__ import annotations

import pyarrow as pa

import streamq as sq
from tests.judged import answer


def test_the_fields_of_structs_become_columns() -> None:
    rows = pa.table(
        {"start": [1, 2], "end": [4, 5], "n": [0, 1], "s": [[{"a": 1, "b": "x"}, {"a": None, "b": "y"}], []]}
    )
    s = sq.intervals(rows, start="start", end="end")
    flat = s.explode("s", flatten=True)
    assert flat.columns == ["n", "a", "b"]
    assert answer(flat) == [(1, 4, 0, 1, "x"), (1, 4, 0, None, "y")]
