"""Published examples on Spark: in batch those that have what ``test_algebra.py`` has not, and some as a stream, all in one query.

All of them, and what arrives one by one: ``tests/test_golden_cases.py``. In a soak those that have all operators.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import streamq as sq
from streamq import functions as f
from streamq.operators import WindowAggregate
from streamq.plan.node import nodes
from tests.algebra import SIZES, intervals, plans
from tests.golden_cases import CASES, Golden, Row
from tests.spark.replay import replayed

SOAK = bool(os.environ.get("STREAMQ_SOAK"))


def parts(query: sq.Stream) -> set[str]:
    """The operators, kinds of windows and aggregates of a query."""
    plan = nodes(query.plan)
    windows = [n for n in plan if isinstance(n, WindowAggregate)]
    aggregates = {aggregate.name for node in windows for _, aggregate in node.aggregates}
    return {type(n).__name__ for n in plan} | {n.title for n in plan} | aggregates


def with_all_parts(cases: Sequence[Golden], seen: Iterable[str] = ()) -> list[Golden]:
    """The cases with a part that neither those before them have nor ``seen``."""
    some, seen = [], set(seen)
    for case in sorted(cases, key=lambda c: -len(parts(c.query()))):
        if new := parts(case.query()) - seen:
            some.append(case)
            seen |= new
    return some


SAMPLE = with_all_parts(CASES)

IN_ALGEBRA = set[str]().union(*map(parts, plans({"l": intervals(1), "r": intervals(2), "sizes": SIZES}).values()))
"""The parts that ``test_algebra.py`` tries in batch."""


@pytest.mark.parametrize("case", with_all_parts(CASES, () if SOAK else IN_ALGEBRA), ids=lambda case: case.name)
def test_batch(spark: SparkSession, plain: None, case: Golden) -> None:
    query = case.query()
    found = query.to_df().select("start", "end", *query.columns).collect()
    assert case.seen(map(tuple, found)) == case.expected


STREAMED = SAMPLE if SOAK else SAMPLE[::2]
"""Every other one: the stages are those in-process, where all cases are tried."""


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
    """All cases as one query: what is final comes in two micro-batches, the rest at the end."""
    cases = STREAMED
    queries = {case.name: case.query() for case in cases}
    streams = map(tagged, cases, replayed(spark, queries.values(), tmp_path / "in"))
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
    assert {c.name: c.seen(found[c.name]) for c in cases} == {c.name: c.expected for c in cases}
