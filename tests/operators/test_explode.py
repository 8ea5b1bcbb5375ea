"""explode: a row for each element of an array, on the event's lifetime."""

from __future__ import annotations

import pyarrow as pa
import pytest

import streamq as sq
from streamq.errors import AmbiguousColumn, TypeMismatch, UnknownColumn
from tests.judged import answer


def lists(*rows: tuple[int, int | None, list[int | None] | None]) -> sq.Stream:
    """A stream of arrays, beside a number that tells events apart."""
    return sq.events([(le, re, {"n": i, "v": v}) for i, (le, re, v) in enumerate(rows)], schema={"v": "array<bigint>"})


def test_the_fields_of_structs_become_columns() -> None:
    rows = pa.table(
        {"start": [1, 2], "end": [4, 5], "n": [0, 1], "s": [[{"a": 1, "b": "x"}, {"a": None, "b": "y"}], []]}
    )
    s = sq.intervals(rows, start="start", end="end")
    flat = s.explode("s", flatten=True)
    assert flat.columns == ["n", "a", "b"]
    assert answer(flat) == [(1, 4, 0, 1, "x"), (1, 4, 0, None, "y")]


def test_what_is_no_array_is_refused() -> None:
    s = lists((1, 2, [1]))
    with pytest.raises(TypeMismatch, match="explode: not an array; column 'n' is bigint"):
        s.explode("n")
    with pytest.raises(UnknownColumn):
        s.explode("w")
    with pytest.raises(TypeMismatch, match="flatten is for arrays of structs"):
        s.explode("v", flatten=True)
    rows = pa.table({"start": [1], "end": [4], "a": [0], "s": [[{"a": 1}]]})
    with pytest.raises(AmbiguousColumn):
        sq.intervals(rows, start="start", end="end").explode("s", flatten=True)
