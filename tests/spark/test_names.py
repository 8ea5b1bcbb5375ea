"""Columns of any names on Spark: batches, and streams of every output, give the rows that are given in-process."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq
from streamq.stream import Stream
from streamq.testing.deltas import from_changelog, net
from streamq.testing.difference import assert_same_history
from tests.algebra import QUERIES
from tests.laws.test_names import HARD, new_names, queries, renamed_query
from tests.spark.replay import ended, land, stream

SOAK = bool(os.environ.get("STREAMQ_SOAK"))

TRIED = [
    "inner join", "left join", "anti join", "except", "clip", "distinct_ids", "physical", "hopping: aggregates",
    "rows: aggregates", "session: top_k", "snapshot by a sweep", "snapshot by merging",
]  # fmt: skip
"""Queries that name columns in their own code on Spark, in a batch; a soak tries all."""


@pytest.mark.parametrize("name", list(QUERIES) if SOAK else TRIED)
def test_batches(spark: SparkSession, plain: None, name: str) -> None:
    query = queries()[name]
    other = renamed_query(query, new_names(query.plan, list(queries()).index(name)))
    frames = {n: spark.createDataFrame(t.to_pylist(), from_arrow_schema(t.schema)) for n, t in other.tables.items()}
    got = Stream(other.plan, frames).to_df().toArrow()
    assert got.column_names == [*other.columns, "start", "end"]
    assert_same_history(got.rename_columns([*query.columns, "start", "end"]), query.to_arrow())


def arriving(spark: SparkSession, folder: Path) -> tuple[dict[str, str], Stream, Stream]:
    """Return every hard name by a plain one, and streams over rows with columns of these names, in-process and on Spark."""
    names = {f"n{number}": pattern.format(number) for number, pattern in enumerate(HARD)}
    table = pa.table({name: [1, 2, 1] for name in names.values()} | {"the.`time`": [1, 2, 3], "[x]": ["a", "b", "a"]})
    land(folder, [table.slice(0, 2), table.slice(2)])
    rows = table, stream(spark, folder, table.schema)
    here, there = (sq.points(t, "the.`time`", name="a source.`1`", progress=sq.generate(5)) for t in rows)
    return names, here, there


def test_streams_of_every_output(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    names, here, there = arriving(spark, tmp_path / "in")
    every, first = list(names.values()), names["n0"]

    def built(s: Stream) -> dict[str, Stream]:
        windows = s.group_by(*every).tumbling_window(10).select(**{"sum of .`x`": sq.max(first)})
        return {
            "final": windows.where(sq.col(every[-1]) > 0),
            "upsert": windows,
            "changelog": s.set_duration(5).join(s.shift(1).select(*every), on=every[:9], suffixes=("", ".r")),
        }

    answers = {output: query.to_arrow() for output, query in built(here).items()}
    assert all(answer.num_rows for answer in answers.values())
    results = [sq.result(q, sink=str(tmp_path / output), output=output) for output, q in built(there).items()]
    with sq.run_all(results, checkpoint=str(tmp_path / "cp"), buckets=2) as run:
        run.finish()
    for output, answer in answers.items():
        rows = spark.read.parquet(str(tmp_path / output)).drop("streamq_batch").toArrow()
        rows = (
            net([from_changelog(rows)])
            if output == "changelog"
            else rows.drop_columns(["op"])
            if output == "upsert"
            else rows
        )
        assert_same_history(rows, answer)


def test_a_stream_of_one_query(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """Without a path of its own a source's columns go to the workers as they are, and those of a changelog to the sink."""
    _, here, there = arriving(spark, tmp_path / "in")
    answer = here.to_signal("[x]").to_arrow()
    ended(there.to_signal("[x]"), sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "cp"), output="changelog")
    rows = spark.read.parquet(str(tmp_path / "out")).toArrow()
    assert_same_history(net([from_changelog(rows)]), answer)
