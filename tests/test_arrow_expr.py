"""Expressions without Spark: golden cases; ``spark/test_expressions.py`` compares every function with Spark itself."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from streamq import functions as f
from streamq.aggregates.basic import SUM
from streamq.errors import NeedsSpark, PlanError, StreamqError, TypeMismatch, UnknownColumn
from streamq.expressions import col, duration, end, lit, start, when
from streamq.functions.text import java_pattern
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Expr
from streamq.plan.function import BUILT_IN
from streamq.plan.passes import infer
from streamq.plan.schema import Field, Schema
from streamq.runtime.arrow.arrow_expr import arrow_type, check_in_process, evaluate

NAN = float("nan")
COLUMNS: dict[str, tuple[t.DataType, list[Any]]] = {
    "i": (t.IntegerType(), [1, 0, None, 2**31 - 1]),
    "b": (t.ByteType(), [-128, 127, None, 1]),
    "d": (t.DoubleType(), [0.5, NAN, None, -0.0]),
    "s": (t.StringType(), ["a", "Straße", None, "12"]),
    "p": (t.BooleanType(), [True, False, None, True]),
    "m": (t.DecimalType(5, 2), [Decimal("1.25"), Decimal("-0.50"), None, Decimal("999.99")]),
    "e": (t.DateType(), [dt.date(2024, 2, 29), dt.date(1969, 12, 31), None, dt.date(1, 1, 1)]),
}
SCHEMA = Schema(tuple(Field(n, kind) for n, (kind, _) in COLUMNS.items()), "timestamp")
ARRAYS = {n: pa.array(values, arrow_type(kind)) for n, (kind, values) in COLUMNS.items()}
i, b, d, s, p, m, e = (col(n) for n in COLUMNS)


def lifetime(part: str) -> pa.Array:
    ticks = {"start": [0, 10, -1, 5], "end": [60_000_000, 20, 1, None], "duration": [60_000_000, 10, 2, None]}[part]
    return pa.array(ticks, pa.int64() if part == "duration" else pa.timestamp("us", "UTC"))


def run(expr: Expr) -> list[Any]:
    found = evaluate(expr, SCHEMA, ARRAYS, lifetime, 4)
    assert found.type == arrow_type(infer(expr, SCHEMA, "test"))
    assert len(found) == 4
    return found.to_pylist()


VALUES: list[tuple[Expr, list[Any]]] = [
    (m * 2 + Decimal("0.001"), [Decimal("2.501"), Decimal("-0.999"), None, Decimal("1999.981")]),
    (d > 1e300, [False, True, None, False]),
    (d >= NAN, [False, True, None, False]),
    (p & None, [None, False, None, None]),
    (i.isin(1, None), [True, None, None, None]),
    (when(i >= 0, "first").when(i > 0, "second"), ["first", "first", None, "first"]),
    (f.least("d", lit(0.25)), [0.25, 0.25, 0.25, -0.0]),
    (m.cast("decimal(5,1)"), [Decimal("1.3"), Decimal("-0.5"), None, Decimal("1000.0")]),
    (f.upper("s"), ["A", "STRASSE", None, "12"]),
    (f.second(start()), [0, 0, 59, 0]),
    (end() - start(), [dt.timedelta(minutes=1), dt.timedelta(microseconds=10), dt.timedelta(microseconds=2), None]),
    (duration() / 1_000_000, [60.0, 1e-05, 2e-06, None]),
    ((start() + dt.timedelta(seconds=1)).cast("long"), [1, 1, 0, 1]),
    (start() >= dt.datetime(1970, 1, 1), [True, True, False, True]),
    (i.alias("n"), [1, 0, None, 2**31 - 1]),
    (when(s == "12", s.cast("int") + 1).otherwise(0), [0, 0, 0, 13]),
    (when(lit(False), lit(1) / lit(0)), [None] * 4),
]


def test_values() -> None:
    """One of each kind, an error where Spark does not look, and lifetimes, which the test on Spark has not."""
    for expr, values in VALUES:
        assert repr(run(expr)) == repr(values)


@pytest.mark.parametrize(
    ("expr", "code", "words"),
    [
        (i + 1, "ARITHMETIC_OVERFLOW", "the result does not fit int; found i + 1. Cast the operands to a wider type."),
        (-b, "ARITHMETIC_OVERFLOW", "the result does not fit tinyint; found -b. Cast the operands to a wider type."),
        (m / d, "DIVIDE_BY_ZERO", "division by zero; found m / d. Guard it: sq.when(y != 0, x / y)."),
        (b % i, "REMAINDER_BY_ZERO", "remainder of a division by zero; found b % i. Guard it: sq.when(y != 0, x % y)."),
        (
            s.cast("int"),
            "CAST_INVALID_INPUT",
            "a value is no int; found cast(s as int). Guard the cast with sq.when(...).",
        ),
        (d.cast("int"), "CAST_OVERFLOW", "a value does not fit int; found cast(d as int). Cast to a wider type."),
        (
            m.cast("decimal(3,1)"),
            "NUMERIC_VALUE_OUT_OF_RANGE",
            "a value does not fit decimal(3,1); found cast(m as decimal(3,1)). Cast to a decimal with more digits.",
        ),
    ],
    ids=repr,
)
def test_what_raises_in_spark_raises(expr: Expr, code: str, words: str) -> None:
    with pytest.raises(StreamqError) as caught:
        run(expr)
    assert str(caught.value) == f"expression: [{code}] {words}"


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        (f.initcap("s"), r"where: initcap\(\) needs Spark, and this query runs in-process; found initcap\(s\)\."),
        (f.pow("d", 2.0), "pow"),
        (f.to_date("s"), r"to_date\(string\)"),
        (s.rlike("(?i)a"), r"rlike\(string, string\)"),
        (d.cast("string"), "a cast of double to string"),
        (when(p, m).otherwise(1), "Cast the values to one type"),
        (f.round("d", b), "needs Spark"),
    ],
    ids=repr,
)
def test_what_cannot_be_exact_needs_spark(expr: Expr, words: str) -> None:
    with pytest.raises(NeedsSpark, match=words):
        check_in_process(expr, SCHEMA, "where")


def test_plan_errors_come_first() -> None:
    with pytest.raises(UnknownColumn, match="Did you mean"):
        check_in_process(col("ss") + 1, SCHEMA.with_fields([Field("sss", t.StringType())]), "where")
    with pytest.raises(TypeMismatch, match="cannot compare"):
        check_in_process(s == 1, SCHEMA, "where")
    with pytest.raises(PlanError, match="an aggregate outside"):
        check_in_process(Aggregate(SUM, (i,)), SCHEMA, "where")


def test_no_rows() -> None:
    none = {n: a[:0] for n, a in ARRAYS.items()}
    for expr in (i / 0, f.upper("s"), when(p, i), m * 2, f.round("d", 1), i.isin(1, None), s.rlike("a")):
        found = evaluate(expr, SCHEMA, none, lambda _: pa.array([], pa.int64()), 0)
        assert (len(found), found.type) == (0, arrow_type(infer(expr, SCHEMA, "test")))


def test_arrow_types_of_the_input_do_not_matter() -> None:
    schema = Schema((Field("s", t.StringType()),), "integer")
    for texts in (pa.chunked_array([["a"], ["b"]], pa.large_string()), pa.array(["a", "b"]).dictionary_encode()):
        assert evaluate(f.upper("s"), schema, {"s": texts}, lifetime, 2).to_pylist() == ["A", "B"]


@pytest.mark.slow
def test_a_deep_tree_does_not_recurse() -> None:
    deep: Expr = f.coalesce("i", 0) * 0
    for k in range(5_000):
        deep = deep + k % 3
    assert run(deep) == [sum(k % 3 for k in range(5_000))] * 4


def test_arrow_type() -> None:
    assert arrow_type(t.ArrayType(t.StringType())) == pa.list_(pa.string())
    assert arrow_type(t.MapType(t.StringType(), t.LongType())) == pa.map_(pa.string(), pa.int64())
    assert arrow_type(t.StructType([t.StructField("a", t.DateType())])) == pa.struct([("a", pa.date32())])
    with pytest.raises(NeedsSpark, match="a type that only Spark has"):
        arrow_type(t.CalendarIntervalType())


BEYOND = r"(?i)a  a\b  a++  [a[b]]  [a&&b]  \p{L}  (a)\1  (?=a)  \x41  a{  *a  (a  a{2}{3}  [a-\d]  [z-a]"
"""Regular expressions whose meaning is Java's alone."""


@pytest.mark.parametrize("pattern", BEYOND.split())
def test_regular_expressions_beyond_the_shared_syntax_are_sparks(pattern: str) -> None:
    assert java_pattern(pattern) is None


def test_every_function_has_a_name_spark_knows() -> None:
    from pyspark.sql import functions as F

    operators = [n for n in BUILT_IN if not n.isidentifier()] + ["and", "or", "not", "isin", "getitem"]
    assert [n for n in BUILT_IN if n not in operators and not hasattr(F, n)] == []
