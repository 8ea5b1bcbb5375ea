"""Payload columns of types that Spark cannot order, in batches and as a stream: the rows that are given in-process."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.operators.input_table import as_dataframe
from streamq.testing.deltas import from_changelog, net
from streamq.testing.difference import assert_same_history
from tests.laws.test_types import PASSED, VALUES, rows, streams
from tests.spark.replay import ended, land, stream

MAPS = [kind for kind in VALUES if kind.startswith("map")]


def nested() -> pa.Table:
    """Rows with a column of each kind of maps."""
    table = rows(MAPS[0])
    for number, kind in enumerate(MAPS[1:]):
        table = table.append_column(f"x{number}", VALUES[kind])
    return table


@pytest.mark.parametrize(
    "use", ["inner join", "last_rows", "rows_window", "session_window", "snapshot_window", "explode"]
)
def test_batches(spark: SparkSession, plain: None, use: str) -> None:
    table = nested()
    query = PASSED[use](*streams(as_dataframe(spark, table)))
    expected = PASSED[use](*streams(table)).to_arrow()
    # Spark has another name for the elements of an array
    assert_same_history(query.to_df().toArrow().select(expected.column_names).cast(expected.schema), expected)


def test_a_stream(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    def query(s: sq.Stream) -> sq.Stream:
        pairs = s.join(s.shift(1), on="k", suffixes=("", "_r"))
        return pairs.group_by("k").rows_window(2).select(x=sq.last("x"), all=sq.collect("x0"), first=sq.first("x1_r"))

    table = nested()
    land(tmp_path / "in", [table.slice(0, 2), table.slice(2)])
    here, there = (
        query(sq.intervals(t, "from", "to", name="s", progress=sq.generate(5)))
        for t in (table, stream(spark, tmp_path / "in", table.schema))
    )
    ended(there, sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "cp"), output="changelog")
    expected = here.to_arrow()
    history = net([from_changelog(spark.read.parquet(str(tmp_path / "out")).toArrow())])
    assert_same_history(history.select(expected.column_names).cast(expected.schema), expected)
