"""Every operator, window and aggregate on Spark: batch = oracle, and streams = oracle for broad queries over all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq
from streamq.testing.history import assert_same_history
from streamq.testing.oracle import oracle
from tests.algebra import QUERIES, SCHEMA, SIZES, intervals
from tests.spark.replay import land, stream

TABLES = {"l": intervals(1), "r": intervals(2), "sizes": SIZES}


@pytest.mark.parametrize("name", QUERIES)
def test_batch_is_the_oracles_history(spark: SparkSession, plain: None, name: str) -> None:
    frames = {n: spark.createDataFrame(t.to_pylist(), from_arrow_schema(t.schema)) for n, t in TABLES.items()}
    left, right = (sq.intervals(frames[n], start="from", end="to", name=n) for n in "lr")
    query = QUERIES[name](left, right, frames["sizes"])
    assert_same_history(query.to_df().toArrow(), oracle(query.plan, TABLES))


STREAMED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "parts, windows over them, a table": lambda s, t, z: (
        s.join(t, on="k", how="anti")
        .join_table(z, on="k", how="left", name="sizes")
        .group_by("k")
        .snapshot_window()
        .select(n=sq.count(), sizes=sq.sum("size"), first=sq.first("v"))
    ),
    "pairs, sessions, counts, a difference": lambda s, t, z: (
        s.join(t.shift(3), on="k", suffixes=("", "_r"))
        .select("k", both=sq.col("v") + sq.col("v_r"))
        .union(s.except_(t).select("k", both=sq.col("v")), s.clip(t, on="k").to_points().select("k", both=sq.lit(0)))
        .group_by("k")
        .session_window(4)
        .select(n=sq.count(), most=sq.max("both"), every=sq.collect("both"))
    ),
}


@pytest.mark.parametrize("name", STREAMED)
def test_a_stream_is_the_oracles_history(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """In three micro-batches, as final rows or as a changelog that folds to them."""
    sizes = spark.createDataFrame(SIZES.to_pylist(), from_arrow_schema(SIZES.schema))
    for n in "lr":
        table = TABLES[n]
        land(tmp_path / n, [table.slice(0, 15), table.slice(15, 12), table.slice(27)])
    progress = sq.generate(5)
    left, right = (
        sq.intervals(stream(spark, tmp_path / n, SCHEMA), start="from", end="to", name=n, progress=progress)
        for n in "lr"
    )
    query = STREAMED[name](left, right, sizes)
    expected = oracle(query.plan, TABLES)
    # each as one kind of output: both are held against each other in-process
    for output in ("final",) if name.startswith("parts") else ("changelog",):
        out = str(tmp_path / output)
        query.run(checkpoint=f"{out}-cp", sink=out, output=output, trigger="available_now", finish=True, buckets=2)
        found = spark.read.parquet(out)
        assert_same_history(_history(found if output == "final" else None, found, expected), expected)


def _history(final: Any, changes: Any, expected: pa.Table) -> pa.Table:
    if final is not None:
        return final.toArrow()
    names = [n for n in changes.columns if n not in ("kind", "new_end")]
    weights: dict[str, list[Any]] = {}
    for row in changes.toArrow().to_pylist():
        key = repr([row[n] for n in names])
        held = weights.setdefault(key, [0, row])
        held[0] += 1 if row["kind"] == "insert" else -1
    assert all(n >= 0 for n, _ in weights.values()), "a row was taken back that was never there"
    made = [{n: row[n] for n in names} for n, row in weights.values() for _ in range(n)]
    schema = changes.limit(0).toArrow().schema
    return pa.Table.from_pylist(made, schema=pa.schema([schema.field(n) for n in names]))
