"""Input tables: all that has rows as Arrow gives the answer of literal rows; columns are cast to the types that queries use."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streamq as sq
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


NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
CARS = pa.table(
    {
        "since": pa.array([NOON, NOON, NOON + dt.timedelta(hours=1)], pa.timestamp("us", "UTC")),
        "zone": ["a", None, "a"],
        "cars": [1, 2, 3],
    }
)


def in_polars(rows: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(rows).with_columns(pl.col("zone").cast(pl.Categorical), pl.col("cars").cast(pl.UInt32))


def in_duckdb(rows: pa.Table) -> duckdb.DuckDBPyRelation:
    relation = duckdb.from_arrow(rows, connection=duckdb.connect())
    return relation.select("since, zone::ENUM('a') AS zone, cars::UINTEGER AS cars")


def in_views(rows: pa.Table) -> pa.Table:
    types = {"zone": pa.string_view(), "cars": pa.uint32()}
    return rows.cast(pa.schema([(f.name, types.get(f.name, f.type)) for f in rows.schema]))


def in_numpy(rows: pa.Table) -> pd.DataFrame:
    """Return a frame as a filter leaves it: its index has no name, and is not 0, 1, 2."""
    return rows.to_pandas().set_axis([9 - n for n in range(rows.num_rows)])


FORMS: tuple[Callable[[pa.Table], Any], ...] = (
    in_polars, in_duckdb, in_views, in_numpy, lambda rows: rows.to_pandas(types_mapper=pd.ArrowDtype),
    lambda rows: rows.to_pandas().set_index("since"), lambda rows: rows.combine_chunks().to_batches()[0],
    lambda rows: rows.to_reader(1), lambda rows: rows.cast(rows.schema.set(1, pa.field("zone", pa.large_string()))),
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_answer_is_that_of_literal_rows(form: Callable[[pa.Table], Any]) -> None:
    literal = sq.events([(row.pop("since"), None, row) for row in CARS.to_pylist()]).to_points()
    answers = []
    for cars in (sq.points(form(CARS), time="since"), literal):
        per_hour = cars.group_by("zone").tumbling_window("1 hour").select(n=sq.sum("cars"))
        answers.append(per_hour.join_table(form(CARS.slice(1)), on="zone", how="left").select("zone", "n", "cars"))
    read, expected = (answer.to_arrow() for answer in answers)
    assert read.equals(expected) and read.column("cars").to_pylist() == [3, None, 3]


def test_rows_in_place_of_those_of_a_query() -> None:
    query = sq.points(CARS, time="since").group_by("zone").tumbling_window("1 hour").select(n=sq.sum("cars"))
    causes = repr(query.trace(CARS).causes({"zone": "a"}))
    for form in FORMS:
        assert repr(query.trace(form(CARS)).causes({"zone": "a"})) == causes


WIDER = [
    (pa.uint8(), 255, "smallint"), (pa.uint16(), 65535, "int"), (pa.uint32(), 2**32 - 1, "bigint"),
    (pa.uint64(), decimal.Decimal(2**64 - 1), "decimal(20,0)"), (pa.float16(), 1.5, "float"),
    (pa.binary_view(), b"x", "binary"), (pa.date64(), dt.date(2024, 5, 1), "date"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "spark"), WIDER, ids=lambda one: str(one))
def test_types_that_spark_lacks_become_wider_ones(kind: pa.DataType, value: Any, spark: str) -> None:
    plain = pa.array([int(value) if isinstance(value, decimal.Decimal) else value, None], kind)
    nested = pa.StructArray.from_arrays([pa.ListArray.from_arrays(pa.array([0, 1, 2]), plain)], ["x"])
    table = input_table(pa.table({"x": plain, "s": nested}), "points")
    assert [column.type.simpleString() for column in table.columns] == [spark, f"struct<x:array<{spark}>>"]
    assert table.rows.to_pylist() == [{"x": value, "s": {"x": [value]}}, {"x": None, "s": {"x": [None]}}]


def test_nan_is_null_in_pandas_alone_and_an_index_with_a_name_is_a_column() -> None:
    nan = float("nan")
    frame = pd.DataFrame({"v": [1.5, nan], "o": ["x", nan]}, index=pd.RangeIndex(2, name="at"))
    table = input_table(frame, "points").rows
    assert table.sort_by("at").to_pylist() == [{"v": 1.5, "o": "x", "at": 0}, {"v": None, "o": None, "at": 1}]
    assert repr(input_table(pl.DataFrame({"v": [nan]}), "points").rows.to_pylist()) == "[{'v': nan}]"
