"""MakeSpeculative and duplicate injection: the query above the input makes the retractions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, find, settings

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.operators import Source, TopK, Union
from streamq.plan.node import nodes
from streamq.runtime.event import WEIGHT
from streamq.testing.execution import Execution
from streamq.testing.in_process import play
from tests.judged import answer

any_of_many = settings(
    max_examples=1_000, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
)


def test_the_greatest_of_each_group_at_each_instant() -> None:
    """
    a: 3 [1,9)   a: 5 [4,6)   b: 1 [2,3)
    """
    s = sq.events([(1, 9, {"k": "a", "v": 3}), (4, 6, {"k": "a", "v": 5}), (2, 3, {"k": "b", "v": 1})])
    assert answer(t.make_speculative(s)) == [(1, 4, "a", 3), (2, 3, "b", 1), (4, 6, "a", 5), (6, 9, "a", 3)]


def test_columns_stay_as_they_are_whatever_they_are() -> None:
    for row in ({"rank": 1}, {"xs": [1, 2]}, {"rank": 1, "xs": [3], "v": 2.5}):
        s = t.make_speculative(sq.events([(1, 9, row), (4, 6, row)]))
        assert s.columns == list(row)
        assert len(answer(s)) == 4


def test_duplicates() -> None:
    s = sq.events([sq.insert(1, 9, v=3), sq.retract(1, 9, 5, v=3)])
    assert answer(t.inject_duplicates(s)) == [(1, 5, 3), (1, 5, 3)]


def retracts(case: t.Case) -> bool:
    """Whether what arrives out of order makes the operators above the source take rows back."""
    made = play(case, Execution(output=OutputForm.CHANGELOG))
    return any(w < 0 for tables in made for table in tables for w in table.column(WEIGHT).to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("intent", "wanted"),
    [
        (t.Intent(speculation=True, disorder="high", late="none"), retracts),
        (t.Intent(speculation=True), lambda case: any(isinstance(n, TopK) for n in nodes(case.plan))),
        (t.Intent(duplicates=True), lambda case: isinstance(case.plan, Union)),
        (t.Intent(speculation=False, duplicates=False), lambda case: isinstance(case.plan, Source)),
    ],
)
def test_intents_transform_the_plan(intent: t.Intent, wanted: Callable[[t.Case], bool]) -> None:
    find(t.concrete(t.stream(shape="intervals"), intent), wanted, settings=any_of_many)
