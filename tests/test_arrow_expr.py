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
from streamq.plan.expr import Expr, Lit
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
    (i - 1, [0, -1, None, 2**31 - 2]),
    (i / 2, [0.5, 0.0, None, 1073741823.5]),
    (b % 10, [-8, 7, None, 1]),
    (b + lit(1000), [872, 1127, None, 1001]),
    (m * 2 + Decimal("0.001"), [Decimal("2.501"), Decimal("-0.999"), None, Decimal("1999.981")]),
    (i + lit(None), [None] * 4),
    (d == NAN, [False, True, None, False]),
    (d > 1e300, [False, True, None, False]),
    (d >= NAN, [False, True, None, False]),
    (d == 0.0, [False, False, None, True]),
    (d.eq_null_safe(None), [False, False, True, False]),
    (s < "a", [False, True, None, True]),
    (p & None, [None, False, None, None]),
    (p | None, [True, None, None, True]),
    (~p, [False, True, None, False]),
    (i.isin(1, 7), [True, False, None, False]),
    (i.isin(1, None), [True, None, None, None]),
    (d.isin(NAN, 0.5), [True, True, None, False]),
    (i.isin(), [False] * 4),
    (when(i == 0, "zero").when(i > 0, "more").otherwise("unknown"), ["more", "zero", "unknown", "more"]),
    (when(i >= 0, "first").when(i > 0, "second"), ["first", "first", None, "first"]),
    (when(p, i), [1, None, None, 2**31 - 1]),
    (f.coalesce(i, b, -1), [1, 0, -1, 2**31 - 1]),
    (f.greatest(i, b), [1, 127, None, 2**31 - 1]),
    (f.least("d", lit(0.25)), [0.25, 0.25, 0.25, -0.0]),
    (s.cast("string"), ["a", "Straße", None, "12"]),
    (i.cast("string"), ["1", "0", None, "2147483647"]),
    (m.cast("int"), [1, 0, None, 999]),
    (m.cast("decimal(5,1)"), [Decimal("1.3"), Decimal("-0.5"), None, Decimal("1000.0")]),
    (e.cast("string"), ["2024-02-29", "1969-12-31", None, "0001-01-01"]),
    (f.upper("s"), ["A", "STRASSE", None, "12"]),
    (f.length("s"), [1, 6, None, 2]),
    (f.substring("s", -2, 1), ["", "ß", None, "1"]),
    (s.like("%a_e"), [False, True, None, False]),
    (s.rlike("^[a-z]|ß"), [True, True, None, False]),
    (f.concat_ws("-", "s", lit("x")), ["a-x", "Straße-x", "x", "12-x"]),
    (f.round("d"), [1.0, NAN, None, 0.0]),
    (f.ln(d), [-0.6931471805599453, NAN, None, None]),
    (f.year("e"), [2024, 1969, None, 1]),
    (f.weekofyear("e"), [9, 1, None, 1]),
    (f.second(start()), [0, 0, 59, 0]),
    (end() - start(), [dt.timedelta(minutes=1), dt.timedelta(microseconds=10), dt.timedelta(microseconds=2), None]),
    (duration() / 1_000_000, [60.0, 1e-05, 2e-06, None]),
    ((start() + dt.timedelta(seconds=1)).cast("long"), [1, 1, 0, 1]),
    (start() >= dt.datetime(1970, 1, 1), [True, True, False, True]),
    (lit("x"), ["x"] * 4),
    (Lit(1, t.LongType()), [1] * 4),
    (i.alias("n"), [1, 0, None, 2**31 - 1]),
]


def check_values() -> None:
    for expr, values in VALUES:
        assert repr(run(expr)) == repr(values)


@pytest.mark.parametrize(("expr", "values"), VALUES, ids=repr)
def test_value(expr: Expr, values: list[Any]) -> None:
    assert repr(run(expr)) == repr(values)


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (
            i + 1,
            "[ARITHMETIC_OVERFLOW] the result does not fit int; found i + 1. Cast the operands to a wider type.",
        ),
        (
            -b,
            "[ARITHMETIC_OVERFLOW] the result does not fit tinyint; found -b. Cast the operands to a wider type.",
        ),
        (
            m / i.cast("double"),
            "[DIVIDE_BY_ZERO] division by zero; found m / cast(i as double). Guard it: sq.when(y != 0, x / y).",
        ),
        (
            b % i,
            "[REMAINDER_BY_ZERO] remainder of a division by zero; found b % i. Guard it: sq.when(y != 0, x % y).",
        ),
        (
            s.cast("int"),
            "[CAST_INVALID_INPUT] a value is no int; found cast(s as int). Guard the cast with sq.when(...).",
        ),
        (
            d.cast("int"),
            "[CAST_OVERFLOW] a value does not fit int; found cast(d as int). Cast to a wider type.",
        ),
        (
            m.cast("decimal(3,1)"),
            "[NUMERIC_VALUE_OUT_OF_RANGE] a value does not fit decimal(3,1); found cast(m as decimal(3,1)). "
            "Cast to a decimal with more digits.",
        ),
    ],
    ids=repr,
)
def test_what_raises_in_spark_raises(expr: Expr, message: str) -> None:
    with pytest.raises(StreamqError) as caught:
        run(expr)
    assert str(caught.value) == f"expression: {message}"


@pytest.mark.parametrize(
    ("expr", "values"),
    [
        (when(i != 0, 1 / i).otherwise(-1.0), [1.0, -1.0, -1.0, 1 / (2**31 - 1)]),
        ((i != 0) & (1 / i > 0), [True, False, None, True]),
        ((i == 0) | (1 / i > 0), [True, True, None, True]),
        (f.coalesce(lit(1.0), 1 / i), [1.0] * 4),
        (when(s == "12", s.cast("int")), [None, None, None, 12]),
        (when(s == "12", s.cast("int") + 1).otherwise(0), [0, 0, 0, 13]),
        (lit(None).cast("double") + 1 / i, [None] * 4),
        (when(lit(False), lit(1) / lit(0)), [None] * 4),
    ],
    ids=repr,
)
def test_an_error_where_spark_does_not_look_is_none(expr: Expr, values: list[Any]) -> None:
    assert run(expr) == values


def test_null_conditions_still_evaluate_the_right_of_and() -> None:
    with pytest.raises(StreamqError, match="DIVIDE_BY_ZERO"):
        run(lit(None).cast("boolean") & (1 / i > 0))


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        (f.initcap("s"), r"where: initcap\(\) needs Spark, and this query runs in-process; found initcap\(s\)\."),
        (f.rand(), "needs Spark"),
        (f.pow("d", 2.0), "pow"),
        (f.to_date("s"), r"to_date\(string\)"),
        (m % 3, "needs Spark"),
        (s.rlike("(?i)a"), r"rlike\(string, string\)"),
        (s.rlike(s), "needs Spark"),
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
    columns = {"s": pa.chunked_array([["a"], ["b"]], pa.large_string()).cast(pa.large_string())}
    schema = Schema((Field("s", t.StringType()),), "integer")
    assert evaluate(f.upper("s"), schema, columns, lifetime, 2).to_pylist() == ["A", "B"]
    columns = {"s": pa.array(["a", "b"]).dictionary_encode()}
    assert evaluate(f.upper("s"), schema, columns, lifetime, 2).to_pylist() == ["A", "B"]


@pytest.mark.slow
def test_a_deep_tree_does_not_recurse() -> None:
    deep: Expr = f.coalesce("i", 0) * 0
    for k in range(5_000):
        deep = deep + k % 3
    assert run(deep) == [sum(k % 3 for k in range(5_000))] * 4


def test_arrow_type() -> None:
    kinds = [
        t.ArrayType(t.StringType()),
        t.MapType(t.StringType(), t.LongType()),
        t.StructType([t.StructField("a", t.DateType())]),
    ]
    assert [arrow_type(k) for k in kinds] == [
        pa.list_(pa.string()),
        pa.map_(pa.string(), pa.int64()),
        pa.struct([("a", pa.date32())]),
    ]
    with pytest.raises(NeedsSpark, match="a type that only Spark has"):
        arrow_type(t.CalendarIntervalType())


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)a",
        r"a\b",
        "a++",
        "[a[b]]",
        "[a&&b]",
        r"\p{L}",
        r"(a)\1",
        "(?=a)",
        r"\x41",
        "a{",
        "*a",
        "(a",
        "a{2}{3}",
        r"[a-\d]",
        "[z-a]",
    ],
)
def test_regular_expressions_beyond_the_shared_syntax_are_sparks(pattern: str) -> None:
    assert java_pattern(pattern) is None


def test_every_function_has_a_name_spark_knows() -> None:
    from pyspark.sql import functions as F

    operators = [
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "<=>",
        "+",
        "-",
        "*",
        "/",
        "%",
        "and",
        "or",
        "not",
        "isin",
        "getitem",
    ]
    assert [n for n in BUILT_IN if n not in operators and not hasattr(F, n)] == []
