"""Expressions and aggregates in the oracle by hand: over which rows streamq evaluates them, and what Spark's values are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

import streamq as sq
from streamq import functions as f
from streamq.errors import NeedsSpark, QueryFailed
from streamq.expressions import col, end, lit
from streamq.functions.catalogue import function_of
from streamq.plan.expr import Call, Cast
from streamq.plan.schema import Field, Schema
from streamq.sources.edges import Edges
from streamq.testing.history import assert_same_history
from streamq.testing.oracle import oracle
from streamq.testing.oracle.python_functions import Operand, PythonFunctions, evaluated
from streamq.testing.oracle.run import database
from streamq.time import INFINITY, INTEGER

NAN, INF = float("nan"), float("inf")
UTC = dt.UTC


def answer(query: sq.Stream) -> list[tuple[Any, ...]]:
    """Rows ``start, end, payload...`` of the oracle's answer, in order of start; an open end is None."""
    rows = zip(*(column.to_pylist() for column in oracle(query.plan, query.tables).columns), strict=True)
    return sorted(((a, None if b == INFINITY else b, *rest) for a, b, *rest in rows), key=lambda row: row[0])


def events(*values: Any, kind: str = "int") -> sq.Stream:
    """Events ``[0, 1), [1, 2), ...`` with a column v."""
    return sq.events([(i, i + 1, {"v": v}) for i, v in enumerate(values)], schema={"v": kind})


def values(query: sq.Stream) -> list[Any]:
    return [row[2] for row in answer(query)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", True),
        ("tinyint", -128),
        ("bigint", -(2**63)),
        ("float", 0.5),
        ("double", INF),
        ("string", "zwölf 日\U0001f600"),
        ("binary", b"\x00\xff'"),
        ("date", dt.date(1500, 2, 28)),
        ("timestamp", dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        ("timestamp", dt.datetime(9999, 12, 31, tzinfo=UTC)),
        ("decimal(38,10)", Decimal("-1234567890123456789012345678.0123456789")),
        ("array<timestamp>", [dt.datetime(2024, 2, 29, tzinfo=UTC), None]),
        ("array<decimal(3,1)>", [Decimal("1.5")]),
    ],
)
def test_values_of_every_type_go_in_and_out(kind: str, value: Any) -> None:
    query = events(value, None, kind=kind).select(x=sq.when(col("v").is_not_null(), col("v")))
    assert values(query) == [value, None]
    assert_same_history(oracle(query.plan, query.tables), query.to_arrow())


def test_differences_of_instants_are_intervals_of_time() -> None:
    at = events(dt.datetime(2024, 1, 2, tzinfo=UTC), None, kind="timestamp")
    assert values(at.select(x=col("v") - lit(dt.datetime(2024, 1, 1)))) == [dt.timedelta(days=1), None]
    assert values(at.select(x=lit(dt.timedelta(hours=1)))) == [dt.timedelta(hours=1)] * 2
    assert values(at.select(x=col("v") + dt.timedelta(hours=1))) == [dt.datetime(2024, 1, 2, 1, tzinfo=UTC), None]


def test_lifetimes_are_read() -> None:
    ticks = sq.events([(-3, 4, {}), (5, None, {})])
    assert answer(ticks.select(a=sq.start() + 1, b=sq.end() + 1, c=sq.duration() * 2)) == [
        (-3, 4, -2, 5, 14),
        (5, None, 6, None, None),
    ]
    instant = dt.datetime(1969, 12, 31, 23, tzinfo=UTC)
    stamped = sq.events([(instant, instant + dt.timedelta(microseconds=1), {})])
    found = answer(stamped.select(a=f.hour(sq.start()), b=sq.end(), c=sq.duration() + 1))
    assert [row[2:] for row in found] == [(23, instant + dt.timedelta(microseconds=1), 2)]


def test_the_longest_lifetime_saturates() -> None:
    assert values(sq.events([(-(2**63) + 1, 5, {})]).select(x=sq.duration() - 1)) == [INFINITY - 1]


def test_many_rows_come_in_several_vectors() -> None:
    many = events(*range(5000)).select(x=col("v") * 2, one=lit(1) + 1)
    assert [row[2:] for row in answer(many)] == [(2 * i, 2) for i in range(5000)]
    same = events(*[7] * 3000).select(x=col("v") + 1)
    assert values(same) == [8] * 3000


def test_columns_constants_and_lifetimes_need_no_function() -> None:
    with database().cursor() as connection:
        functions = PythonFunctions(connection)
        schema = Schema((Field("v", t.LongType()),), INTEGER)
        assert [evaluated(e, schema, functions) for e in (col("v"), col("v").alias("w"), lit(5))] == [
            "c0",
            "c0",
            "CAST(5 AS INTEGER)",
        ]
        assert "re" in evaluated(end(), schema, functions)
        assert functions.names == []


def test_no_function_outlives_its_query() -> None:
    with database().cursor() as connection:
        functions = PythonFunctions(connection)
        call = functions.call(lambda columns: columns[0], [Operand("v", "7", t.LongType())], t.LongType())
        assert call.startswith("streamq") and connection.execute(f"SELECT {call}").fetchall() == [(7,)]
        functions.forget()
    answer(events(1).select(x=col("v") + 1))
    with pytest.raises(QueryFailed):
        answer(events(1).select(y=col("v") + 1, x=col("v") / 0))
    left = database().execute("SELECT function_name FROM duckdb_functions() WHERE function_name LIKE 'streamq%'")
    assert left.fetchall() == []


# errors: where Spark evaluates, and nowhere else


def test_what_a_where_dropped_is_not_evaluated() -> None:
    query = events(0, 2).where(col("v") != 0).select(x=lit(8) / col("v"))
    assert values(query) == [4.0]
    assert values(events(0, 2).select(x=sq.when(col("v") != 0, lit(8) / col("v")))) == [None, 4.0]


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_a_condition_is_asked_for_pairs_with_equal_keys_that_live_at_once(how: str) -> None:
    left = sq.events([(0, 5, {"k": "a", "v": 6})])
    right = sq.events([(1, 9, {"k": "a", "w": 2}), (0, 9, {"k": "b", "w": 0}), (7, 9, {"k": "a", "w": 0})])

    def joined(condition: Any) -> sq.Stream:
        return left.join(right, on="k", where=condition, how=how)

    expected = {
        "inner": [(1, 5, "a", 6, 2)],
        "left": [(0, 1, "a", 6, None), (1, 5, "a", 6, 2)],
        "semi": [(1, 5, "a", 6)],
        "anti": [(0, 1, "a", 6)],
    }
    assert answer(joined(lambda a, b: a.v / b.w > 2)) == expected[how]
    with pytest.raises(QueryFailed, match="Spark's rules"):
        answer(joined(lambda a, b: a.v / (b.w - 2) > 2))


def test_a_condition_is_asked_for_pairs_in_one_window() -> None:
    left, right = sq.events([(0, 1, {"v": 6})]), sq.events([(1, 2, {"w": 2}), (9, 10, {"w": 0})])
    query = left.windowed_join(right, size=4, where=lambda a, b: a.v / b.w > 2)
    assert answer(query) == [(0, 4, 6, 2)]


@pytest.mark.parametrize("name", ["sum", "max", "first", "collect"])
def test_what_a_filter_leaves_out_is_not_evaluated(name: str) -> None:
    aggregate = getattr(sq, name)(lit(8) / col("v"), where=col("v") != 0)
    assert values(events(0, 2, 0, None).tumbling_window(9).select(x=aggregate)) == [[4.0] if name == "collect" else 4.0]


def test_greatest_by_what_is_computed() -> None:
    assert values(events(1, -5, 3).tumbling_window(9).top_k(2, by=f.abs(col("v")))) == [-5, 3]


def test_lifetimes_of_what_is_computed() -> None:
    query = events(3, 1).alter_lifetime(start=sq.start() + 10, duration=col("v").cast("bigint") * 2)
    assert [row[:2] for row in answer(query)] == [(10, 16), (11, 13)]


def test_what_only_spark_evaluates_needs_a_session() -> None:
    sound = Cast(Call(function_of("soundex"), (col("v"),)), t.StringType())
    with database().cursor() as connection, pytest.raises(NeedsSpark, match=r"soundex\(v\).*sq.session\(\)"):
        evaluated(sound, Schema((Field("v", t.StringType()),), INTEGER), PythonFunctions(connection))


def test_marks_of_edges_may_be_computed() -> None:
    columns = (Field("at", t.LongType()), Field("mark", t.StringType()))
    plan = Edges("s", columns, "at", "mark", (), f.concat(lit("s"), lit("t")), f.concat(lit("E"), lit("")))
    rows = pa.table({"at": [1, 4, 6], "mark": ["st", "E", "st"]})
    found = oracle(plan, {"s": rows})
    assert sorted(zip(found["start"].to_pylist(), found["end"].to_pylist(), strict=True)) == [(1, 4), (6, INFINITY)]


# aggregates: Spark SQL's values


def aggregated(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, str], **aggregates: Any) -> dict[str, Any]:
    query = sq.events([(0, 1, row) for row in rows], schema=dict(schema)).tumbling_window(9).select(**aggregates)
    (values,) = oracle(query.plan, query.tables).to_pylist()
    return {name: values[name] for name in aggregates}


def test_a_correlation_whose_spread_vanishes_fails() -> None:
    rows = [{"x": 0.0, "y": 0.0}, {"x": 1e-100, "y": 1e-100}]
    with pytest.raises(QueryFailed, match="division by zero"):
        aggregated(rows, {"x": "double", "y": "double"}, r=sq.corr("x", "y"))


def test_aggregates_of_instants() -> None:
    early, late = dt.datetime(1969, 7, 20, 20, 17, tzinfo=UTC), dt.datetime(2024, 2, 29, 1, tzinfo=UTC)
    found = aggregated(
        [{"x": x} for x in (late, early, None)],
        {"x": "timestamp"},
        all=sq.collect("x"),
        some=sq.collect("x", where=col("x") > early),
        least=sq.min("x"),
        most=sq.max("x"),
        first=sq.first("x", where=col("x").is_not_null()),
        last=sq.last("x"),
        n=sq.count_distinct("x"),
    )
    assert found == {
        "all": [early, late], "some": [late], "least": early, "most": late, "first": early, "last": late, "n": 2,
    }  # fmt: skip
