"""Published examples on Spark: each in batch; as streams, many in one query, each row with its case's name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import streamq as sq
from streamq import functions as f
from tests.golden_cases import ARRIVING, CASES, Arriving, Golden, Row, in_order
from tests.spark.replay import replayed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_batch(spark: SparkSession, plain: None, case: Golden) -> None:
    query = case.query()
    found = query.to_df().select("start", "end", *query.columns).collect()
    assert case.seen(map(tuple, found)) == case.expected


def tagged(case: Golden | Arriving, stream: sq.Stream) -> sq.Stream:
    """The rows of all cases in one form."""
    payload = f.to_json(f.struct(*stream.columns)) if stream.columns else sq.lit("{}")
    return stream.select(case=sq.lit(case.name), payload=payload)


def untagged(df: DataFrame, queries: Mapping[str, sq.Stream]) -> dict[str, list[Row]]:
    """The rows ``start, end, payload...`` of each case."""
    found: dict[str, list[Row]] = {name: [] for name in queries}
    for name, start, end, payload in df.select("case", "start", "end", "payload").collect():
        values = json.loads(payload)  # without what is NULL
        found[name].append((start, end, *(values.get(column) for column in queries[name].columns)))
    return found


def test_stream(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """All as one query, in two micro-batches, after which what is final is there already, and at the end the rest."""
    queries = {case.name: case.query() for case in CASES}
    streams = map(tagged, CASES, replayed(spark, queries.values(), tmp_path / "in"))
    out = str(tmp_path / "out")
    together = next(streams).union(*streams)
    with together.run(checkpoint=str(tmp_path / "checkpoint"), sink=out, buckets=1) as run:
        run.process_all_available()
        early = spark.read.parquet(out).count()
        run.finish()
        assert not any(run.late.values())
    landed = spark.read.parquet(out)
    assert 0 < early < landed.count()
    found = untagged(landed, queries)
    assert {c.name: c.seen(found[c.name]) for c in CASES} == {c.name: c.expected for c in CASES}


def test_items_arrive_one_by_one(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """Each in a micro-batch of its own: the rows, and what is counted as late."""
    cases = [case for case in ARRIVING if case.output == "final"]
    queries = {case.name: case.query() for case in cases}
    most = max(len(table) for query in queries.values() for table in query.tables.values())
    streams = replayed(spark, queries.values(), tmp_path / "in", files=most)
    tags = map(tagged, cases, streams)
    out = str(tmp_path / "out")
    with next(tags).union(*tags).run(checkpoint=str(tmp_path / "checkpoint"), sink=out, buckets=1) as run:
        run.finish()
        late = run.late
    found = untagged(spark.read.parquet(out), queries)
    for case, stream in zip(cases, streams, strict=True):
        assert in_order(found[case.name]) == in_order(row for rows in case.steps.values() for row in rows)
        (source,) = stream.tables
        reasons = ("dropped", "adjusted", "invalid", "duplicates")
        assert {r: n for r in reasons if (n := late[f"{source}|{r}"])} == case.counted, case.name
