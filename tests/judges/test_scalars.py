"""The oracle's definitions of functions and casts give what streamq computes, over odd values too, and fail where it does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from streamq import functions as f
from streamq.errors import QueryFailed
from streamq.expressions import col, lit
from streamq.plan.expr import Call, Expr
from streamq.plan.schema import Field, Schema
from streamq.runtime.arrow.arrow_expr import attempt
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.testing.intent import ANYTHING
from streamq.testing.oracle.python_functions import PythonFunctions
from streamq.testing.oracle.run import Run, database
from streamq.testing.oracle.values import to_duckdb
from streamq.testing.payload_values import odd, pool
from streamq.time import INTEGER
from tests.judges.by_value import ByValue
from tests.judges.expressions import sql
from tests.judges.scalars import DEFINED

TEXT, BYTES, DAY, INSTANT, LOCAL = t.StringType(), t.BinaryType(), t.DateType(), t.TimestampType(), t.TimestampNTZType()
INT, LONG, DOUBLE, PRICE = t.IntegerType(), t.LongType(), t.DoubleType(), t.DecimalType(8, 2)
A, B, C = col("a"), col("b"), col("c")
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "age")
MOST, FEW = 400, 10

CALLS: dict[tuple[t.DataType, ...], list[Expr]] = {
    (TEXT,): [
        *(getattr(f, name)(A) for name in ("upper", "lower", "ucase", "lcase", "length", "char_length")),
        *(getattr(f, name)(A) for name in ("character_length", "octet_length", "btrim", "trim", "ltrim", "rtrim")),
        *(f.lpad(A, n, by) for n in (-1, 1, 4) for by in ("*x", "")),
        *(f.rpad(A, n, by) for n in (-1, 1, 4) for by in ("*x", "")),
        f.reverse(A), f.repeat(A, lit(2)), f.regexp_like(A, lit("a.")), f.substring(A, 2, 1),
    ],
    (BYTES,): [f.octet_length(A), f.length(A), f.substring(A, -1, 1)],
    (TEXT, TEXT): [f.btrim(A, B), f.instr(A, B), f.replace(A, B), f.equal_null(A, B)],
    (TEXT, TEXT, TEXT): [f.replace(A, B, C)],
    (TEXT, INT): [f.substr(A, B), f.left(A, B), f.right(A, B)],
    (TEXT, INT, INT): [f.substring(A, B, C)],
    (DOUBLE,): [
        f.floor(A), f.ceil(A), f.ceiling(A), f.round(A), f.round(A, 1), f.round(A, -1), f.rint(A), f.signum(A),
        f.sign(A), f.log(A),
    ],
    (DOUBLE, DOUBLE): [f.nanvl(A, B)],
    (PRICE, PRICE): [A / B],
    (t.DecimalType(38, 4), PRICE): [A / B],
    (INT,): [f.floor(A), f.round(A, -1), f.date_from_unix_date(A)],
    (LONG,): [f.timestamp_seconds(A), f.timestamp_millis(A)],
    (t.ByteType(),): [f.round(A, -1)],
    (DAY, INT): [f.date_add(A, B), f.date_sub(A, B)],
    (DAY, DAY): [f.datediff(A, B), f.date_diff(A, B)],
    (INSTANT, DAY): [f.datediff(A, B)],
    (DAY,): [
        *(getattr(f, name)(A) for name in ("dayofyear", "last_day", "quarter", "weekday", "weekofyear", "unix_date")),
        *(f.date_trunc(unit, A) for unit in UNITS),
    ],
    (INSTANT,): [
        *(getattr(f, name)(A) for name in ("dayofyear", "last_day", "quarter", "weekday", "weekofyear", "to_date")),
        *(f.date_trunc(unit, A) for unit in UNITS), f.unix_seconds(A), f.unix_millis(A),
    ],
}  # fmt: skip

CASTS: dict[t.DataType, str] = {
    TEXT: "date binary int double boolean decimal(8,2)",
    DAY: "string timestamp timestamp_ntz",
    INSTANT: "string int bigint double date timestamp_ntz",
    LOCAL: "string date timestamp",
    PRICE: "string int",
    LONG: "timestamp string decimal(8,2) int",
    DOUBLE: "timestamp int",
    t.BooleanType(): "decimal(8,2) string int",
}

TEXTS = ["2024-02-30", "2024-2-9", " 2024 ", "-0044-03-15", "2024-12-31T", "12", "12.5", "yes", "abcabc"]
FURTHER: dict[t.DataType, list[Any]] = {
    TEXT: TEXTS,
    DOUBLE: [2.5, -2.5, 0.125, 1e18, 12345678.05],
    INT: [-1, 2, 60, -700_000],
    LONG: [86_400 * 365 * 60],
}


def over(kinds: Sequence[t.DataType]) -> dict[str, pa.Array]:
    """Columns a, b and c of all values of these types with one another, or the first of them."""
    values = [[None, *FURTHER.get(kind, []), *pool(kind, ANYTHING), *odd(kind, ANYTHING)] for kind in kinds]
    rows = list(itertools.islice(itertools.product(*values), MOST))
    columns = zip("abc", zip(*rows, strict=True), kinds, strict=False)
    return {name: pa.array(list(column), arrow_type(kind)) for name, column, kind in columns}


def plain(column: Any) -> list[Any]:
    """A column's values, instants as ticks, because Python has no year 10000."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    column = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    return list((column.cast(pa.int32()) if pa.types.is_date(column.type) else column).to_pylist())


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-12)
    return bool(one == other)


def check(expr: Expr, kinds: Sequence[t.DataType]) -> None:
    """Compare what an expression over columns a, b and c gives, and where it fails."""
    schema = Schema(tuple(Field(name, kind) for name, kind in zip("abc", kinds, strict=False)), INTEGER)
    columns = over(kinds)
    count = len(columns["a"])
    value = attempt(expr, schema, columns, columns.__getitem__, count)
    failing = {i for fault in value.faults for i, fails in enumerate(fault.rows) if fails}
    with database().cursor() as connection:
        functions = PythonFunctions(connection)
        run = Run(connection, {}, None, functions)
        inside = {f"c{i}": to_duckdb(columns[f.name], f.type) for i, f in enumerate(schema.fields)}
        rows = run.registered(pa.table({"n": pa.array(range(count)), **inside}))
        call = sql(expr, schema, ByValue(functions).sql)
        good = run.registered(pa.table({"good": pa.array(sorted(set(range(count)) - failing), pa.int64())}))
        answer = run.arrow(f"SELECT n, {call} AS x FROM {rows} SEMI JOIN {good} ON n = good ORDER BY n")
        numbers, expected = plain(answer.column("n")), plain(value.array)
        wrong = [
            (expr, {name: column[i].as_py() for name, column in columns.items()}, defined, expected[i])
            for i, defined in zip(numbers, plain(answer.column("x")), strict=True)
            if not is_same(defined, expected[i])
        ]
        assert not wrong
        for i in sorted(failing)[:FEW]:
            with pytest.raises(QueryFailed):
                run.table(f"SELECT {call} AS x FROM {rows} WHERE n = {i}")
        functions.forget()


@pytest.mark.parametrize("kinds", CALLS, ids=lambda kinds: " ".join(kind.simpleString() for kind in kinds))
def test_functions(kinds: tuple[t.DataType, ...]) -> None:
    for expr in CALLS[kinds]:
        check(expr, kinds)


@pytest.mark.parametrize("kind", CASTS, ids=lambda kind: kind.simpleString())
def test_casts(kind: t.DataType) -> None:
    for to in CASTS[kind].split():
        check(A.cast(to), [kind])


def test_every_function_is_compared() -> None:
    called = {expr.function.identity for exprs in CALLS.values() for expr in exprs if isinstance(expr, Call)}
    assert called >= DEFINED
