"""Tables written down: types by their Spark names, values as they are, and what is wrong told by row and column."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from streamq.errors import SourceError, StreamqError, TypeMismatch
from streamq.testing.table import fields_of, table

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
        ("a b", t.LongType()),
        ("k", t.StringType()),
        ("x`y", t.MapType(t.StringType(), t.IntegerType())),
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
        ("a", [], SourceError, "not a column; found 'a' in 'a'. Write names and types"),
        ("", [], SourceError, "not a column; found '' in ''."),
        ("a int,", [], SourceError, "not a column; found '' in 'a int,'."),
        ("a int, a string", [], SourceError, "column 'a' twice; found 'a int, a string'."),
        ("a lung", [], TypeMismatch, "no such type; found 'lung'. Give a pyspark DataType or one of boolean"),
        ("a map<int>", [], TypeMismatch, "no such type; found 'map<int>'."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(columns: str, rows: list[Any], error: type[StreamqError], message: str) -> None:
    with pytest.raises(error, match=f"^table: {re.escape(message)}"):
        table(columns, rows)
