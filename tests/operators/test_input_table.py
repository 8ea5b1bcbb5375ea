"""Input tables: Arrow columns are cast to the types that queries use."""

from __future__ import annotations

import pyarrow as pa

from streamq.operators.input_table import input_table


def test_instants_of_pandas_keep_their_microseconds() -> None:
    nanoseconds = pa.array([1_250_125_999, 1_000_000_750, None], pa.timestamp("ns"))
    rows = input_table(pa.table({"since": nanoseconds}), "join_table").rows
    assert rows["since"].type == pa.timestamp("us")
    assert rows["since"].cast("int64").to_pylist() == [1_250_125, 1_000_000, None]


def test_plain_strings_stand_for_dictionaries_and_large_strings() -> None:
    words = pa.array(["crane", None, "ibis"])
    for column in (words.dictionary_encode(), words.cast(pa.large_string())):
        rows = input_table(pa.table({"word": column}), "join_table").rows
        assert rows["word"].to_pylist() == words.to_pylist() and rows["word"].type == pa.string()
