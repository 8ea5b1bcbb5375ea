"""Histories, folded from physical rows, compared as bags and drawn; and literal tables."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import types

import streamq as sq
from streamq import testing as t
from streamq.errors import InvalidEvent, PlanError, SourceError, StreamqError, TypeMismatch
from streamq.testing.arrival import comparable
from streamq.testing.backends import check_ends
from streamq.testing.history import Axis, WrongOutput, assert_same_history, history, same_history
from streamq.testing.table import fields_of, table
from streamq.time import INFINITY
from tests.testing.by_oracle import INF, NAN

COLUMNS = "kind string, start bigint, end bigint, new_end bigint, v int"
ROWS = [("insert", 1, None, None, 3), ("retract", 1, None, 10, 3), ("cti", 5, None, None, None)]
CHANGES = t.table(COLUMNS, ROWS)
LEFT = t.table("start bigint, end bigint, v int", [(1, 10, 3)])


@pytest.mark.parametrize("rows", [CHANGES, CHANGES.to_pandas(), CHANGES.to_pylist(), iter(CHANGES.to_pylist())])
def test_rows_and_tables_fold(rows: Any) -> None:
    assert t.fold_physical(rows).to_pylist() == LEFT.to_pylist()


def test_columns_of_a_table_keep_their_types() -> None:
    assert t.fold_physical(CHANGES).schema == LEFT.schema
    assert t.fold_physical(CHANGES.slice(0, 0)).schema == LEFT.schema


def test_instants_of_a_table_are_ticks() -> None:
    at = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    columns = COLUMNS.replace("bigint", "timestamp")
    found = t.fold_physical(t.table(columns, [("insert", at, None, None, 3), ("retract", at, None, 3_000_000, 3)]))
    assert found.to_pylist() == [{"start": 1_000_000, "end": 3_000_000, "v": 3}]


def test_a_history_of_physical_rows_is_what_they_leave() -> None:
    assert t.history(CHANGES).equals(LEFT)
    t.assert_same_history(CHANGES, LEFT)
    # a payload may have columns of these names
    named = t.table("start bigint, end bigint, kind string, new_end bigint", [(1, 4, "taxi", 7)])
    assert t.history(named).equals(named)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"kind": "move", "start": 1, "end": 2}, "a kind that is not insert, retract, cti or end"),
        ({"kind": "insert", "start": None, "end": 2}, "a start of NULL or infinity"),
        ({"kind": "insert", "start": 2, "end": 2}, "an end that is not after the start"),
    ],
)
def test_rows_that_are_no_events(row: Any, message: str) -> None:
    with pytest.raises(InvalidEvent, match=f"fold_physical: a row that is not an event; {message}"):
        t.fold_physical([row])


def test_what_is_no_table() -> None:
    stream: Any = sq.events([(1, 5, {"v": 3})])
    for read, verb in (
        (t.history, "history"),
        (lambda given: t.same_history(given, LEFT), "same_history"),
        (lambda given: t.assert_same_history(LEFT, given), "same_history"),
    ):
        with pytest.raises(SourceError, match=f"^{verb}: takes .*; found Stream. Pass its answer: .to_arrow()"):
            read(stream)
        with pytest.raises(SourceError, match=f"^{verb}: takes .*; found int. Fold physical rows with t.fold_physical"):
            read(5)
    with pytest.raises(SourceError, match="history: takes an Arrow table or a pandas frame; found list"):
        t.history(CHANGES.to_pylist())
    with pytest.raises(SourceError, match="fold_physical: not a row; found 3. Give dicts"):
        t.fold_physical([3])
    with pytest.raises(SourceError, match="fold_physical: not a physical stream; found int"):
        t.fold_physical(5)
    with pytest.raises(PlanError, match="stream: not iterable. Its rows are stream.to_arrow()"):
        t.fold_physical(stream)
    with pytest.raises(SourceError, match="fold_physical: no column 'no'"):
        t.fold_physical(CHANGES, id="no")


def test_a_value_is_equal_to_no_other_kind_of_value() -> None:
    nan = float("nan")
    assert comparable(nan) == comparable(-nan)
    assert comparable(-0.0) == comparable(0.0) == comparable(0)
    for one, other in ((nan, "NaN"), (True, 1), (False, 0.0), ([True], [1]), ([nan], ["NaN"]), ({"a": True}, {"a": 1})):
        assert comparable(one) == comparable(one)
        assert comparable(one) != comparable(other)


@pytest.mark.parametrize("wrong", [[(1, 5)], 5, LEFT, pd.DataFrame(), pa.table({})])
def test_transformations_take_streams(wrong: Any) -> None:
    for transform in (t.make_speculative, t.inject_duplicates):
        with pytest.raises(
            PlanError, match=f"{transform.__name__}: takes a stream; found {type(wrong).__name__}. Make"
        ):
            transform(wrong)


def test_a_scenario_says_what_its_data_are_like() -> None:
    scenario: Any = t.stream()
    with pytest.raises(PlanError, match=r"found Scenario. Write t.stream\(speculation=True\)"):
        t.make_speculative(scenario)
    with pytest.raises(PlanError, match=r"found Scenario. Write t.stream\(duplicates=True\)"):
        t.inject_duplicates(scenario)


# differences


def test_equal_histories() -> None:
    a = pa.table({"start": [1, 1, 2], "end": [5, 5, INFINITY], "k": ["a", "a", None], "v": [0.1 + 0.2, NAN, -0.0]})
    b = pa.table({"v": [0.0, 0.3, NAN], "start": [2, 1, 1], "end": [None, 5, 5], "k": [None, "a", "a"]})
    assert same_history(a, b) is None
    assert same_history(a, b.to_pandas()) is not None, "in pandas a NaN is a NULL"
    assert_same_history(a.slice(0, 0), b.slice(0, 0))


def test_answers_as_users_get_them_are_histories() -> None:
    instants = pa.array([1, None], pa.timestamp("us", "UTC"))
    lifetimes = history(pa.table({"v": [1, 2], "start": instants.fill_null(7), "end": instants}))
    assert lifetimes.to_pylist() == [{"start": 1, "end": 1, "v": 1}, {"start": 7, "end": INFINITY, "v": 2}]


def test_floats_are_matched_as_bags() -> None:
    def made(*values: float) -> pa.Table:
        return pa.table({"start": [1] * len(values), "end": [2] * len(values), "v": pa.array(values, pa.float64())})

    assert same_history(made(1.0, 1.0 + 6e-10), made(1.0 + 1.2e-9, 1.0)) is None
    assert same_history(made(1.0, 1.0), made(1.0, 1.1)) is not None
    assert same_history(made(INF), made(1e308)) is not None
    assert same_history(made(1e300, 5e-324), made(1e300 * (1 + 1e-12), 0.0)) is None
    assert same_history(made(1.0), made(1.0, 1.0)) is not None


def test_kinds_of_types_are_compared() -> None:
    a = pa.table({"start": [1], "end": [2], "v": pa.array([1], pa.int32())})
    assert same_history(a, a.set_column(2, "v", pa.array([1], pa.int64()))) is None
    assert "v is int32, expected double" in str(same_history(a, a.set_column(2, "v", pa.array([1.0]))))
    assert "columns" in str(same_history(a, a.rename_columns(["start", "end", "w"])))


def test_a_difference_is_drawn() -> None:
    answer = pa.table({"start": [1, 2, 9], "end": [5, 3, INFINITY], "v": [1, 2, 3]})
    expected = pa.table({"start": [1, 2], "end": [5, 4], "v": [1, 2]})
    assert str(same_history(answer, expected)) == (
        "missing (only in the expected history): 1 row\n"
        "  |-)        [2, 4)    v=2\n"
        "extra (only in the one found): 2 rows\n"
        "  |)         [2, 3)    v=2\n"
        "         |>  [9, inf)  v=3"
    )
    many = pa.table({"start": range(30), "end": range(1, 31)})
    assert "... and 10 more" in str(same_history(many, many.slice(0, 0)))
    with pytest.raises(AssertionError, match="missing"):
        assert_same_history(answer, expected)


# timelines


def test_a_lifetime_that_begins_at_the_end_of_time_is_drawn_there() -> None:
    axis = Axis([(1, 5), (INFINITY, INFINITY)])
    assert axis.draw(1, 5) == "|---)  "
    assert axis.draw(INFINITY, INFINITY) == "     |>"
    assert axis.mark(INFINITY) == "     ! "


# outputs as a user gets them


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us", "UTC")])
@pytest.mark.parametrize("name", ["end", "new_end"])
def test_an_end_that_never_comes_is_null(name: str, kind: pa.DataType) -> None:
    check_ends(pa.table({name: pa.array([None, 5], pa.int64()).cast(kind)}))
    with pytest.raises(WrongOutput, match=f"the {name} of a row that never ends is not NULL"):
        check_ends(pa.table({name: pa.array([5, INFINITY], pa.int64()).cast(kind)}))


def test_a_payload_may_have_an_end_of_its_own() -> None:
    check_ends(pa.table({"end": ["never"]}))


# literal tables


NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
TICKS = 1_714_564_800_000_000


@pytest.mark.parametrize(
    ("kind", "arrow", "given", "held"),
    [
        ("boolean", pa.bool_(), True, True),
        ("tinyint", pa.int8(), -1, -1),
        ("int", pa.int32(), 7, 7),
        ("bigint", pa.int64(), 2**62, 2**62),
        ("float", pa.float32(), 1, 1.0),
        ("double", pa.float64(), float("inf"), float("inf")),
        ("decimal(5,2)", pa.decimal128(5, 2), Decimal("1.5"), Decimal("1.50")),
        ("decimal(5, 2)", pa.decimal128(5, 2), 3, Decimal("3.00")),
        ("string", pa.string(), "ü", "ü"),
        ("binary", pa.binary(), b"\x00", b"\x00"),
        ("date", pa.date32(), NOON.date(), NOON.date()),
        ("timestamp", pa.timestamp("us", "UTC"), NOON, NOON),
        ("timestamp", pa.timestamp("us", "UTC"), TICKS, NOON),
        ("timestamp", pa.timestamp("us", "UTC"), NOON.replace(tzinfo=None), NOON),
        ("timestamp", pa.timestamp("us", "UTC"), NOON.astimezone(dt.timezone(dt.timedelta(hours=9))), NOON),
        ("timestamp_ntz", pa.timestamp("us"), TICKS, NOON.replace(tzinfo=None)),
        ("array<int>", pa.list_(pa.int32()), (1, None), [1, None]),
        ("ARRAY<decimal(3,1)>", pa.list_(pa.decimal128(3, 1)), [1], [Decimal("1.0")]),
        ("map<string,array<int>>", pa.map_(pa.string(), pa.list_(pa.int32())), {"a": [1]}, [("a", [1])]),
        ("struct<a:int,`b c`:string>", pa.struct([("a", pa.int32()), ("b c", pa.string())]), {"a": 1},
         {"a": 1, "b c": None}),
        ("interval day to second", pa.duration("us"), dt.timedelta(hours=1), dt.timedelta(hours=1)),
    ],
)  # fmt: skip
def test_types_and_values(kind: str, arrow: pa.DataType, given: Any, held: Any) -> None:
    made = table(f"v {kind}", [(given,), (None,)])
    assert made.schema.field("v").type == arrow
    assert made["v"].to_pylist() == [held, None]


def test_nan_is_not_null() -> None:
    assert table("v double", [(float("nan"),)])["v"].null_count == 0


def test_columns_are_read_as_spark_reads_them() -> None:
    found = fields_of(" `a b`  bigint,k:STRING ,\n `x``y` map< string , int >")
    assert [(f.name, f.type) for f in found] == [
        ("a b", types.LongType()),
        ("k", types.StringType()),
        ("x`y", types.MapType(types.StringType(), types.IntegerType())),
    ]
    assert table("a int, b string", []).schema.names == ["a", "b"]


@pytest.mark.parametrize(
    ("columns", "rows", "error", "message"),
    [
        ("a int, b int", [(1, 2), (1,)], SourceError, "row 1 has 1 values; the columns are: a, b."),
        ("a int", [1], SourceError, "row 0 is not a tuple; found 1. Write a tuple: (1,)."),
        ("a string", ["x"], SourceError, "row 0 is not a tuple; found 'x'. Write a tuple: ('x',)."),
        ("a int, b string", [(1, "x"), (2, 3)], SourceError, "column 'b' is string; row 1 has 3."),
        ("a int", [(1.0,)], SourceError, "column 'a' is int; row 0 has 1.0."),
        ("a int", [(True,)], SourceError, "column 'a' is int; row 0 has True."),
        ("a int", [(2**31,)], SourceError, "column 'a' is int; row 0 has 2147483648."),
        ("a double", [(True,)], SourceError, "column 'a' is double; row 0 has True."),
        ("a boolean", [(1,)], SourceError, "column 'a' is boolean; row 0 has 1."),
        ("a decimal(3,1)", [(Decimal("1.55"),)], SourceError, "column 'a' is decimal(3,1); row 0 has Decimal('1.55')."),
        ("a decimal(3,1)", [(1.5,)], SourceError, "column 'a' is decimal(3,1); row 0 has 1.5."),
        ("a date", [(NOON,)], SourceError, "column 'a' is date; row 0 has datetime.datetime("),
        ("a timestamp", [("2024-05-01",)], SourceError, "column 'a' is timestamp; row 0 has '2024-05-01'."),
        ("a timestamp", [(2**63,)], SourceError, "column 'a' is timestamp; row 0 has 9223372036854775808."),
        ("a array<int>", [([1.5],)], SourceError, "column 'a' is array<int>; row 0 has [1.5]."),
        ("a struct<b:int>", [({"c": 1},)], SourceError, "column 'a' is struct<b:int>; row 0 has {'c': 1}."),
        ("a", [], TypeMismatch, "not the columns of rows; found 'a'. Write names and types"),
        ("a int,", [], TypeMismatch, "not the columns of rows; found 'a int,'."),
        ("a int, a string", [], SourceError, "column 'a' twice; found 'a int, a string'."),
        ("a lung", [], TypeMismatch, "no such type; found 'lung'. Give a pyspark DataType or one of boolean"),
        ("a map<int>", [], TypeMismatch, "no such type; found 'map<int>'."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(columns: str, rows: list[Any], error: type[StreamqError], message: str) -> None:
    with pytest.raises(error, match=f"^table: {re.escape(message)}"):
        table(columns, rows)
