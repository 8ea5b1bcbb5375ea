"""Every operator, window and aggregate gives the oracle's history in a batch on Spark, by a form of its own and by the host.

Columns have hard names, which code for Spark must quote.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq
from streamq.operators import written_operators
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.plan.node import nodes
from streamq.stream import Stream
from streamq.testing.history import assert_same_history
from streamq.testing.oracle import oracle
from tests.algebra import QUERIES, intervals
from tests.laws.test_names import new_names, queries, renamed_query

EVALUATED = [kind for kind in written_operators() if issubclass(kind, EvaluatedOperator)]
TRIED = [*QUERIES, "physical"]


def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame(table.to_pylist(), from_arrow_schema(table.schema))


def check(spark: SparkSession, name: str) -> None:
    query = queries()[name]
    renamed = renamed_query(query, new_names(query.plan, list(queries()).index(name)))
    rows = Stream(renamed.plan, {n: frame(spark, t) for n, t in renamed.tables.items()}).to_df().toArrow()
    assert rows.column_names == [*renamed.columns, "start", "end"]
    assert_same_history(rows.rename_columns([*query.columns, "start", "end"]), oracle(query.plan, query.tables))


@pytest.mark.parametrize("name", TRIED)
def test_a_form_of_its_own(spark: SparkSession, plain: None, name: str) -> None:
    check(spark, name)


@pytest.fixture
def hosted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operator that an evaluator says whole without its own batch form."""
    for kind in EVALUATED:
        monkeypatch.setattr(kind, "in_batch", EvaluatedOperator.in_batch)


def is_evaluated(name: str) -> bool:
    return any(isinstance(node, EvaluatedOperator) for node in nodes(queries()[name].plan))


@pytest.mark.parametrize("name", [name for name in TRIED if is_evaluated(name)])
def test_the_host(spark: SparkSession, plain: None, hosted: None, name: str) -> None:
    check(spark, name)


def test_every_evaluated_operator_is_among_the_queries() -> None:
    assert {type(node) for name in TRIED for node in nodes(queries()[name].plan)} >= set(EVALUATED)


def test_the_bound_of_windows_is_that_of_the_whole_input(spark: SparkSession, hosted: None) -> None:
    """Each bucket evaluates its own groups; how far windows of endless lifetimes go is a matter of all of them."""
    table = intervals(3)
    left = sq.intervals(frame(spark, table), start="from", end="to", name="l")
    query = left.group_by("k").hopping_window(7, 3, stamp="point_at_end").select(n=sq.count(), every=sq.collect("v"))
    for until in (None, 100):
        rows = query.to_df(until=until).toArrow()
        assert_same_history(rows, oracle(query.plan, {"l": table}, until=until))
    assert pa.compute.max(rows.column("start")).as_py() > 90
