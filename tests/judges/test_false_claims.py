"""Verify notices mistakes that a query and a careless oracle would share: each of these changes what both are computed from."""

from __future__ import annotations

import pytest

import streamq as sq
from streamq.errors import PlanError
from streamq.testing.backends import read_back
from tests.judges.claims import Claims
from tests.mutation.faults import FAULTS, caught

EVENTS = sq.events([(1, 2, {"k": "a", "v": 3.0, "w": 1.0})], name="events")
SHARED = (
    "no divisor is zero",
    pytest.param("no text in a series", marks=pytest.mark.slow),
)
"""Mistakes in what cannot fail, in a function's result."""


@pytest.mark.parametrize("name", SHARED)
def test_a_mistake_that_changes_what_both_sides_are_computed_from_is_caught(name: str) -> None:
    assert caught(FAULTS[name]).number < 30


def test_without_a_mistake_nothing_is_claimed_falsely() -> None:
    assert Claims().false_one(EVENTS.where(sq.col("v") / sq.col("w") > 1).plan) is None


def test_a_plan_is_run_as_it_is_read_from_its_text() -> None:
    @sq.udf("string", name="size_of_false_claims")
    def size(value: float | None, limit: float = 10) -> str | None:
        return None if value is None else "large" if value > limit else "small"

    plan = EVENTS.select(size=size("v", limit=3)).plan
    assert read_back(plan) == plan and read_back(plan) is not plan
    with FAULTS["a module read without options"].in_place(), pytest.raises(PlanError, match="changed or damaged"):
        read_back(plan)


def test_the_plan_of_a_module_that_the_repository_lacks_is_run_as_it_is() -> None:
    plan = EVENTS.select(v=sq.udf("double")(lambda v: v)("v")).plan
    assert read_back(plan) is plan
