"""Published examples on Spark: each in batch; as streams, many in one query, each row with its case's name."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq import functions as f
from tests.golden_cases import CASES, DERIVED, HELLOTOLL, PUBLISHED, Golden, Row
from tests.spark.replay import replayed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_batch(spark: SparkSession, plain: None, case: Golden) -> None:
    query = case.query()
    found = query.to_df().select("start", "end", *query.columns).collect()
    assert case.seen(map(tuple, found)) == case.expected


def tagged(case: Golden, stream: sq.Stream) -> sq.Stream:
    """The rows of all cases in one form."""
    payload = f.to_json(f.struct(*stream.columns)) if stream.columns else sq.lit("{}")
    return stream.select(case=sq.lit(case.name), payload=payload)


@pytest.mark.parametrize("cases", [HELLOTOLL, PUBLISHED, DERIVED], ids=["HelloToll", "published", "derived"])
def test_stream(spark: SparkSession, plain: None, tmp_path: Path, cases: Sequence[Golden]) -> None:
    """In two micro-batches, after which what is final is there already, and at the end the rest."""
    queries = [case.query() for case in cases]
    streams = map(tagged, cases, replayed(spark, queries, tmp_path / "in"))
    together = next(streams).union(*streams)
    out = str(tmp_path / "out")
    with together.run(checkpoint=str(tmp_path / "checkpoint"), sink=out, buckets=1) as run:
        run.process_all_available()
        early = spark.read.parquet(out).count()
        run.finish()
        assert not any(run.late.values())
    landed = spark.read.parquet(out).select("case", "start", "end", "payload").collect()
    assert 0 < early < len(landed)
    columns = {case.name: query.columns for case, query in zip(cases, queries, strict=True)}
    found: dict[str, list[Row]] = defaultdict(list)
    for name, start, end, payload in landed:
        values = json.loads(payload)  # without what is NULL
        found[name].append((start, end, *(values.get(column) for column in columns[name])))
    assert {c.name: c.seen(found[c.name]) for c in cases} == {c.name: c.expected for c in cases}
