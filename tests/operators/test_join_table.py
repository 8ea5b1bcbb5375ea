"""join_table: every event with the matching rows of a static table; lifetimes stay as they are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamq as sq
from streamq.connectors.refreshed_rows import RefreshedRows
from streamq.errors import PlanError, TimeError
from streamq.operators.input_table import static_table
from streamq.testing.generate import without_surroundings
from tests.judged import answer

S = sq.events([(1, 5, {"zone": 1, "v": 3}), (2, None, {"zone": 2, "v": 4}), (3, 4, {"zone": None, "v": 5})], name="s")
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


def test_a_table_to_be_read_again(tmp_path: Path) -> None:
    pq.write_table(CITIES, tmp_path / "1.parquet")
    cities = sq.files(tmp_path)
    joined = S.join_table(cities, "zone", refresh="10 minutes", name="cities")
    assert joined.to_arrow().equals(S.join_table(CITIES, "zone").to_arrow())
    assert "join_table cities on zone, refresh=10 minutes" in joined.explanation("logical")
    assert "refresh=each batch" in S.join_table(cities, "zone", refresh="each batch").explanation("logical")
    assert '"refresh": 600000000' in joined.to_json()
    assert sq.from_json(joined.to_json(), S.tables).to_json() == joined.to_json()
    # a verification has the table once
    assert without_surroundings(joined.plan) == S.join_table(cities, "zone", name="cities").plan


def test_refresh_is_refused_for_what_is_not_read_again(tmp_path: Path) -> None:
    with pytest.raises(
        PlanError, match="join_table: refresh is of a table that is read again; found pyarrow Table. Say"
    ):
        S.join_table(CITIES, "zone", refresh="each batch")
    cities = sq.files(tmp_path, schema="zone bigint")
    with pytest.raises(PlanError, match="join_table: refresh is 'each batch' or a duration; found '-1 minutes'"):
        S.join_table(cities, "zone", refresh="-1 minutes")
    with pytest.raises(PlanError, match="join_table: refresh is 'each batch' or a duration; found 'every batch'"):
        S.join_table(cities, "zone", refresh="every batch")
    with pytest.raises(TimeError, match="join_table: .*; found 'each row'"):
        S.join_table(cities, "zone", refresh="each row")


def test_rows_are_kept_as_long_as_is_said(tmp_path: Path) -> None:
    zones = sq.files(tmp_path, schema="zone bigint")
    each, hourly = RefreshedRows(zones, 0), RefreshedRows(zones, 3600)

    def counts() -> list[int]:
        return [sum(batch.num_rows for batch in reader([pa.record_batch({"id": [0]})])) for reader in (each, hourly)]

    pq.write_table(CITIES.select(["zone"]), tmp_path / "1.parquet")
    assert counts() == [4, 4]
    pq.write_table(CITIES.select(["zone"]), tmp_path / "2.parquet")
    assert counts() == [8, 4]
    hourly.read_at -= 3600
    assert counts() == [8, 8]
