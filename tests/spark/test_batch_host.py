"""Each batch form made by hand, and the batch host in its place: the same history over the same events, the oracle's."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq
from streamq.operators import written_operators
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.plan.node import nodes
from streamq.testing.difference import assert_same_history
from streamq.testing.oracle import oracle
from tests.algebra import SIZES, WINDOWS, intervals, plans

TABLES = {"l": intervals(3), "r": intervals(4), "sizes": SIZES}
SOAK = bool(os.environ.get("STREAMQ_SOAK"))
EVALUATED = [kind for kind in written_operators() if issubclass(kind, EvaluatedOperator)]


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> dict[str, DataFrame]:
    return {n: spark.createDataFrame(t.to_pylist(), from_arrow_schema(t.schema)) for n, t in TABLES.items()}


@pytest.fixture
def hosted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operator that an evaluator says whole without its own batch form."""
    for kind in EVALUATED:
        monkeypatch.setattr(kind, "in_batch", EvaluatedOperator.in_batch)


LITERAL = plans(TABLES)
EVALUATED_QUERIES = [
    name for name, q in LITERAL.items() if any(isinstance(n, EvaluatedOperator) for n in nodes(q.plan))
]


def test_every_evaluated_operator_is_among_the_queries() -> None:
    assert {type(n) for q in LITERAL.values() for n in nodes(q.plan)} >= set(EVALUATED)


def in_turn() -> list[str]:
    """The queries; of each window aggregates or top_k, of each join one with or without keys, in turn, in a soak both: the host
    knows neither window nor join.
    """
    left_out = {f"{window}: {('aggregates', 'top_k')[i % 2]}" for i, window in enumerate(WINDOWS)}
    left_out |= {"left join", "anti join", "inner join without keys", "semi join without keys"}
    return [name for name in EVALUATED_QUERIES if SOAK or name not in left_out]


@pytest.mark.parametrize("name", in_turn())
def test_the_host_gives_the_oracles_history(frames: dict[str, DataFrame], plain: None, hosted: None, name: str) -> None:
    query = plans(frames)[name]
    assert_same_history(query.to_df().toArrow(), oracle(query.plan, TABLES))


def test_the_bound_of_windows_is_that_of_the_whole_input(frames: dict[str, DataFrame], hosted: None) -> None:
    """Each bucket evaluates its own groups; how far windows of endless lifetimes go is a matter of all of them."""
    left = sq.intervals(frames["l"], start="from", end="to", name="l")
    query = left.group_by("k").hopping_window(7, 3, stamp="point_at_end").select(n=sq.count(), every=sq.collect("v"))
    expected = oracle(query.plan, {"l": TABLES["l"]})
    assert_same_history(query.to_df().toArrow(), expected)
    until = 100
    rows = query.to_df(until=until).toArrow()
    assert_same_history(rows, oracle(query.plan, {"l": TABLES["l"]}, until=until))
    assert pa.compute.max(rows.column("start")).as_py() > 90
