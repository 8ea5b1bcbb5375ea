"""Published examples on Spark: those that have all operators, in batch, and as a stream, all in one query.

All of them, and what arrives one by one: ``tests/test_golden_cases.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import streamq as sq
from streamq import functions as f
from streamq.operators import WindowAggregate
from streamq.plan.node import nodes
from tests.golden_cases import CASES, Golden, Row
from tests.spark.replay import replayed


def parts(case: Golden) -> set[str]:
    """The operators, kinds of windows and aggregates of a case."""
    plan = nodes(case.query().plan)
    windows = [n for n in plan if isinstance(n, WindowAggregate)]
    aggregates = {aggregate.name for node in windows for _, aggregate in node.aggregates}
    return {type(n).__name__ for n in plan} | {n.title for n in plan} | aggregates


def with_all_parts(cases: Sequence[Golden]) -> list[Golden]:
    """Of the cases those that have a part which none before them has."""
    some, seen = [], set[str]()
    for case in sorted(cases, key=lambda c: -len(parts(c))):
        if parts(case) - seen:
            some.append(case)
            seen |= parts(case)
    return some


SAMPLE = with_all_parts(CASES)


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_batch(spark: SparkSession, plain: None, case: Golden) -> None:
    query = case.query()
    found = query.to_df().select("start", "end", *query.columns).collect()
    assert case.seen(map(tuple, found)) == case.expected


def tagged(case: Golden, stream: sq.Stream) -> sq.Stream:
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
    queries = {case.name: case.query() for case in SAMPLE}
    streams = map(tagged, SAMPLE, replayed(spark, queries.values(), tmp_path / "in"))
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
    assert {c.name: c.seen(found[c.name]) for c in SAMPLE} == {c.name: c.expected for c in SAMPLE}
