"""Rows of docs/coming_from.md that are Spark's own: what PySpark makes of the first column, streamq does of the second."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamq as sq
from tests.coming_from import ON_SPARK, T, W, page_rows, values


def sparks(theirs: str, code: str, spark: SparkSession) -> DataFrame:
    """The DataFrame of the first column's code: windows counted, conditions joined by."""
    df, a, b = spark.createDataFrame(T), spark.createDataFrame(T).alias("a"), spark.createDataFrame(W).alias("b")
    shown = eval(code, {"F": F, "df": df})
    if isinstance(shown, DataFrame):
        return shown.select("k", "n", F.col("window.start"), F.col("window.end"))
    if "join" in theirs:
        return a.join(b, shown, "left" if "left" in theirs else "inner").select("a.k", "v", "w")
    windows = df.groupBy(shown.alias("window")).agg(F.count("*").alias("n"))
    return windows.select("n", F.col("window.start"), F.col("window.end"))


@pytest.mark.parametrize("theirs", ON_SPARK)
def test_rows_are_those_of_spark(theirs: str, spark: SparkSession, plain: None) -> None:
    row = page_rows()[theirs]
    code = next(key for key in ON_SPARK if "stream-stream" in key) if theirs.startswith("the same") else theirs
    wanted = sparks(theirs, page_rows()[code].their_code, spark)
    rows = row.result if isinstance(row.result, sq.Stream) else row.result.select(n=sq.count())
    assert values(rows.to_arrow(), *wanted.columns) == values(wanted.toArrow(), *wanted.columns)
