"""The batch backend = the oracle, sampled: random queries over random histories, with every rule on and with none."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from streamq.query import batch_frame
from streamq.testing.generate import Case, cases
from streamq.testing.history import assert_same_history


@given(case=cases())
@settings(
    max_examples=4,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_batch_is_the_oracles_history(spark: SparkSession, case: Case) -> None:
    frames = {
        n: spark.createDataFrame(t.to_pylist(), from_arrow_schema(t.schema))
        for n, t in {**case.tables, **case.static}.items()
    }
    expected = case.answer()
    for rules in (None, ()):
        found: pa.Table = batch_frame(case.plan, frames, rules=rules).toArrow()
        assert_same_history(found, expected)
