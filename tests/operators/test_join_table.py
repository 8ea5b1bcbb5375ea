"""join_table: every event with the matching rows of a static table; lifetimes stay as they are."""

from __future__ import annotations

import pyarrow as pa

import streamq as sq
from streamq.operators.input_table import static_table
from tests.judged import answer

S = sq.events([(1, 5, {"zone": 1, "v": 3}), (2, None, {"zone": 2, "v": 4}), (3, 4, {"zone": None, "v": 5})])
CITIES = pa.table({"zone": [1, 1, None, 9], "city": ["Ulm", "Bonn", "Rom", "Wien"]})


def test_keys_of_different_numeric_types_meet_in_the_wider_one() -> None:
    table = pa.table({"zone": pa.array([1.0, 2.5]), "w": ["x", "y"]})
    assert answer(S.join_table(table, "zone")) == [(1, 5, 1, 3, "x")]
    narrow = pa.table({"zone": pa.array([2], pa.int32()), "w": ["x"]})
    assert answer(S.join_table(narrow, "zone")) == [(2, None, 2, 4, "x")]


def test_suffixes_name_the_tables_columns() -> None:
    table = pa.table({"zone": [1], "v": ["x"]})
    joined = S.join_table(table, "zone", suffixes=("", "_t"))
    assert joined.columns == ["zone", "v", "v_t"]
    assert answer(joined) == [(1, 5, 1, 3, "x")]


def test_an_integer_beyond_doubles_meets_the_double_that_it_rounds_to() -> None:
    """A join with a table compares numbers as a join of streams does."""
    s = sq.events([(1, 2, {"k": 2**53 + 1}), (1, 2, {"k": 7}), (1, 2, {"k": None})])
    table = pa.table({"k": [float(2**53), 7.0, 1.5], "n": ["big", "seven", "none"]})
    rows = s.join_table(table, on="k").to_arrow().to_pylist()
    assert sorted((row["k"], row["n"]) for row in rows) == [(7, "seven"), (2**53 + 1, "big")]
    pairs = s.join(sq.points(table.append_column("t", pa.array([1, 1, 1])), "t"), on="k").to_arrow()
    assert sorted(zip(pairs["k"].to_pylist(), pairs["n"].to_pylist(), strict=True)) == [
        (7, "seven"),
        (2**53 + 1, "big"),
    ]


def test_instants_keep_their_microseconds_whatever_their_unit() -> None:
    instants = [0, -1, 1_767_592_800_250_125, None]
    for unit, factor in (("us", 1), ("ns", 1_000)):
        column = pa.array([None if at is None else at * factor for at in instants], pa.timestamp(unit))
        rows = static_table(pa.table({"at": column})).rows
        assert rows["at"].cast(pa.int64()).to_pylist() == instants
