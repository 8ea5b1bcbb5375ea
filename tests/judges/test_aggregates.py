"""Every aggregate keeps the laws in each form in which hosts compute it."""

from __future__ import annotations

import pytest
from hypothesis import settings
from pyspark.sql.types import LongType

import streamq as sq
from streamq.aggregates import built_in
from streamq.aggregates.time_sensitive import WINDOW_EDGES
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col
from streamq.testing.module_laws import LAWS
from tests.judges.aggregates import aggregate_forms, check_aggregates, in_one_select

EXAMPLES = 2 * max(1, settings().max_examples // 40)
"""`make soak` tries more."""

V, W = sq.col("v"), sq.col("w")

Select = list[Aggregate]

PROMISED = ("time_bound", "filters_on", "by_event")
"""What laws need that an aggregate does not have."""


def anything(x: Col) -> Select:
    return [sq.count(x), sq.min(x), sq.max(x)]


def moments(x: Col) -> Select:
    return [sq.var(x), sq.var_pop(x), sq.stddev(x), sq.stddev_pop(x)]


def in_order(x: Col) -> Select:
    return [sq.first(x), sq.last(x), sq.collect(x), sq.count_distinct(x), sq.count_distinct(x, x)]


def of_numbers(x: Col, y: Col) -> Select:
    loads = [sq.time_weighted_avg(x), sq.median(x), sq.percentile(y, 0.9), sq.median(x, where=y > 0)]
    return [*loads, sq.covar(x, y), sq.covar_pop(x, y), sq.corr(x, y)]


def test_no_aggregate_is_forgotten() -> None:
    tried = {a.function for a in (sq.sum(V), sq.avg(V), *anything(V), *moments(V), *in_order(V), *of_numbers(V, W))}
    assert {*built_in().values()} - {*WINDOW_EDGES.values()} == tried


@pytest.mark.slow
@pytest.mark.parametrize(
    ("types", "aggregates"),
    [
        (
            "double, int",
            [*anything(V), *anything(W), sq.sum(V), sq.avg(V), sq.var(V), sq.stddev_pop(V), sq.sum(V, where=W > 0)],
        ),
        # a mean of decimals takes Spark
        ("decimal(10,2), bigint", [*anything(V), *anything(W), sq.sum(V), sq.sum(W), sq.avg(W)]),
        ("string, boolean", [*anything(V), *anything(W), sq.count(), sq.count(where=W)]),
    ],
    ids=["double, int", "decimal, bigint", "string, boolean"],
)
def test_partial_results_keep_every_law(types: str, aggregates: Select) -> None:
    every = dict.fromkeys(law.name for law in LAWS if law.need not in PROMISED)
    assert check_aggregates(types, *aggregates, examples=EXAMPLES) == tuple(every)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("types", "aggregates"),
    [
        ("bigint, int", [*in_order(V), *of_numbers(V, W), *moments(V)]),
        ("decimal(10,2), string", [*in_order(V), *in_order(W), sq.first(V, where=W > "a")]),
        ("double, float", [*in_order(V), *of_numbers(V, W)]),
    ],
    ids=["bigint, int", "decimal, string", "double, float"],
)
def test_what_takes_all_members_agrees_with_the_oracle_in_any_order(types: str, aggregates: Select) -> None:
    laws = ("answers", "deterministic", "pure", "order", "reference")
    assert check_aggregates(types, *aggregates, examples=EXAMPLES) == laws


def test_wrong_aggregates_would_be_seen() -> None:
    """The forms of an aggregate are refuted as modules are: here its reference says otherwise."""
    (whole, *_) = aggregate_forms(in_one_select([sq.sum(V)], [LongType()]))
    rows = [(0, 0, 1, 3), (0, 1, 2, None)]
    assert (
        whole.answer(rows) == whole.reference(rows) == {f"sum(v) of group 0, window [{a}, {a + 4})": 3 for a in (-2, 0)}
    )
