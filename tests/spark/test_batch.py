"""The batch backend = the oracle, sampled: random queries over random histories."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq
from streamq.compiler.rules import Rule
from streamq.query import batch_frame
from streamq.testing.case import Case
from streamq.testing.generate import cases
from streamq.testing.history import assert_same_history
from streamq.testing.oracle import oracle
from streamq.time import INFINITY

sampled = settings(phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@given(case=cases())
@settings(sampled, max_examples=3)
def test_with_every_rule_and_compiled(spark: SparkSession, case: Case) -> None:
    check(spark, case, None)


@given(case=cases())
@settings(sampled, max_examples=6)
def test_with_no_rule_and_interpreted(spark: SparkSession, plain: None, case: Case) -> None:
    check(spark, case, ())


def check(spark: SparkSession, case: Case, rules: tuple[Rule, ...] | None) -> None:
    frames = {n: spark.createDataFrame(t.to_pylist(), from_arrow_schema(t.schema)) for n, t in case.tables.items()}
    found: pa.Table = batch_frame(case.plan, frames, rules=rules).toArrow()
    assert_same_history(found, case.answer())


LEAST = -(2**63) + 1


def test_windows_at_the_ends_of_the_axis_are_cut_there(spark: SparkSession) -> None:
    schema = pa.schema([("from", pa.int64()), ("to", pa.int64()), ("k", pa.int64())])
    rows = [(LEAST, LEAST + 4, 1), (INFINITY - 5, INFINITY - 1, 2)]
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    frame = spark.createDataFrame(table.to_pylist(), from_arrow_schema(schema))
    s = sq.intervals(frame, start="from", end="to", name="s")
    windows = (
        *(s.hopping_window(10, hop) for hop in (10, 4)),
        *(s.tumbling_window(10, offset=offset, stamp="point_at_end") for offset in (3, 9)),
        s.sliding_window(10),
        s.session_window(10),
        s.landmark_window(4, start=3, period=10, stamp="align"),
    )
    others = (s.shift(-9), s.extend(9), s.windowed_join(s.select(j="k"), size=7, hop=3))
    query = (
        s.chop(10, offset=4)
        .select(n=sq.col("k"))
        .union(*(o.select(n=sq.col("k")) for o in others), *(w.select(n=sq.count()) for w in windows))
    )
    found = query.to_df(until=INFINITY - 1).toArrow()
    assert_same_history(found, oracle(query.plan, {"s": table}, INFINITY - 1))
