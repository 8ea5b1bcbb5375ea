"""The oracle where only Spark can evaluate an expression, and its aggregates against Spark's."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as t

import streamq as sq
from streamq.errors import QueryFailed
from streamq.expressions import col
from streamq.plan.expr import Cast, Opaque
from streamq.testing.history import assert_same_history
from streamq.testing.oracle import oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAN, INF = float("nan"), float("inf")


def evaluated(query: sq.Stream) -> list[dict[str, Any]]:
    return sorted(oracle(query.plan, query.tables).to_pylist(), key=lambda row: row["start"])


@pytest.mark.usefixtures("plain")
def test_what_only_spark_evaluates(spark: SparkSession) -> None:
    noon = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
    words = [{"word": "Robert", "at": noon}, {"word": None, "at": noon}, {"word": "ab", "at": noon}]
    s = sq.events([(i, i + 3, row) for i, row in enumerate(words)])
    query = s.where(sq.functions.soundex("word") == "R163").select(
        whole=sq.functions.struct("word", "at"),
        hour=F.date_format("at", "HH"),
        long=sq.functions.format_number(sq.duration(), 2),
    )
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        found = evaluated(query)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    expected = {"whole": {"word": "Robert", "at": noon}, "hour": "12", "long": "3.00"}
    assert found == [{"start": 0, "end": 3, **expected}]


@pytest.mark.usefixtures("plain")
def test_where_spark_fails_the_query_fails(spark: SparkSession) -> None:
    s = sq.events([(0, 1, {"v": 1}), (1, 2, {"v": 0})])
    inverse = sq.functions.conv((1 / col("v")).cast("string"), 10, 2)
    assert [row["x"] for row in evaluated(s.where(col("v") != 0).select(x=inverse))] == ["1"]
    with pytest.raises(QueryFailed, match="Spark's rules.*DIVIDE_BY_ZERO"):
        evaluated(s.select(x=inverse))


def test_what_goes_wrong_in_evaluating_is_not_taken_for_a_failed_query(spark: SparkSession) -> None:
    broken = Cast(Opaque(object(), "no column at all"), t.LongType())
    with pytest.raises(AttributeError, match="cast"):
        evaluated(sq.events([(0, 1, {"v": 1})]).select(x=broken))


@pytest.mark.usefixtures("plain")
def test_aggregates_are_sparks(spark: SparkSession) -> None:
    columns = [
        ([1.0, NAN, 3.0], [1.0, 2.0, 3.0]),
        ([NAN, 1.0], [3.0, 3.0]),
        ([INF, INF], [3.0, 3.0]),
        ([INF, 1.0], [1.0, 2.0]),
        ([-INF, 1.0], [1.0, 2.0]),
        ([-INF, INF], [1.0, 2.0]),
        ([0.1, 0.1, 0.1], [1.0, 2.0, 4.0]),
        ([1.0, 2.0, None, 9.0], [1.0, 2.0, 3.0, None]),
        ([1e200, -1e200], [1.0, 2.0]),
        ([-1.7e308, 1.7e308], [None, 1.0]),
        ([5.0, None], [None, 1.0]),
        ([NAN, NAN], [1.0, 2.0]),
        ([1.0, 2.0, 3.0], [3.0, 1.0, 2.0]),
        ([5.0, None], [2.0, 1.0]),
        ([None, None], [1.0, 2.0]),
        ([-INF, -INF, 2.0], [1.0, 2.0, 3.0]),
        ([-INF, 2.0, INF], [1.0, 2.0, 3.0]),
        ([4.0, None, 1.0], [1.0, 2.0, 3.0]),
        ([INF, NAN, 3.0], [1.0, 2.0, 3.0]),
        ([1.0], [1.0]),
    ]
    pairs = [(g, x, y) for g, pair in enumerate(columns) for x, y in zip(*pair, strict=True)]
    # the deviations of the greatest doubles are no doubles
    rows = [(g, x, y, None if x in (-1.7e308, 1.7e308) else x) for g, x, y in pairs]
    s = sq.events(
        [(0, 1, dict(zip("gxyz", row, strict=True))) for row in rows],
        schema={"g": "int", **dict.fromkeys("xyz", "double")},
    )
    names = ("sum", "avg", "min", "max", "var", "var_pop", "stddev", "stddev_pop")
    query = s.group_by("g").tumbling_window(1).select(
        a=sq.corr("x", "y"), b=sq.covar("x", "y"), c=sq.covar_pop("x", "y"), n=sq.count("x"),
        d=sq.percentile("x", 0.25), e=sq.percentile("x", 0.5), f=sq.percentile("x", 0.0),
        **{name: getattr(sq, name)("z") for name in names},
    )  # fmt: skip
    frame = spark.createDataFrame(rows, "g int, x double, y double, z double").coalesce(1).groupBy("g")
    made = frame.agg(
        F.corr("x", "y").alias("a"), F.covar_samp("x", "y").alias("b"), F.covar_pop("x", "y").alias("c"),
        F.count("x").alias("n"), *(F.percentile("x", F.lit(f)).alias(n) for n, f in (("d", 0.25), ("e", 0.5), ("f", 0.0))),
        *(getattr(F, {"var": "var_samp"}.get(name, name))("z").alias(name) for name in names),
    )  # fmt: skip
    expected = made.select(F.lit(0).cast("bigint").alias("start"), F.lit(1).cast("bigint").alias("end"), "*").toArrow()
    assert_same_history(oracle(query.plan, query.tables), expected)
