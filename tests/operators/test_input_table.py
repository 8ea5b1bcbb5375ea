"""Input tables: Arrow columns are cast to the types that queries use."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest

from streamq.errors import SourceError
from streamq.operators.input_table import input_table

TIMES = (pa.timestamp("ns"), pa.timestamp("ns", "Asia/Tokyo"), pa.duration("ns"))


@pytest.mark.parametrize("kind", TIMES, ids=str)
@pytest.mark.parametrize("nested", [False, True])
def test_times_are_read_to_the_microsecond_or_refused(kind: pa.DataType, nested: bool) -> None:
    def read(nanoseconds: int) -> Any:
        column = pa.array([nanoseconds, None], kind)
        if nested:
            column = pa.StructArray.from_arrays([pa.ListArray.from_arrays(pa.array([0, 1, 2]), column)], ["x"])
        return input_table(pa.table({"since": column}), "join_table").rows["since"]

    exact = read(1_250_125_000).combine_chunks()
    ticks = exact.field("x").flatten() if nested else exact
    assert ticks.cast("int64").to_pylist() == [1_250_125, None]
    with pytest.raises(SourceError, match=r"join_table: column 'since' does not fit .* Round it to microseconds first"):
        read(1_250_125_999)


def test_decimals_of_more_digits_than_sparks_are_refused() -> None:
    numbers = pa.array([decimal.Decimal("1.10")])
    assert input_table(pa.table({"x": numbers.cast(pa.decimal256(38, 2))}), "points").rows["x"].type == pa.decimal128(
        38, 2
    )
    for column in (
        numbers.cast(pa.decimal256(50, 2)),
        pa.array([[decimal.Decimal("1.10")]], pa.list_(pa.decimal256(50, 2))),
    ):
        with pytest.raises(
            SourceError, match=r"column 'x' is of a type that Spark does not have; found .*decimal256\(50, 2\)"
        ):
            input_table(pa.table({"x": column}), "points")


def test_plain_strings_stand_for_dictionaries_and_large_strings() -> None:
    words = pa.array(["crane", None, "ibis"])
    for column in (words.dictionary_encode(), words.cast(pa.large_string())):
        rows = input_table(pa.table({"word": column}), "join_table").rows
        assert rows["word"].to_pylist() == words.to_pylist() and rows["word"].type == pa.string()
