"""A batch is drawn in the forms that an operator of its query can take, and in no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import streamq as sq
from streamq import testing as t
from streamq.operators.operator import BatchForm
from streamq.testing.case import Case
from streamq.testing.execution import BATCH, Execution
from streamq.testing.trial import with_possible_forms

EVENTS = sq.intervals(t.table("start bigint, end bigint, v bigint", []), start="start", end="end", name="s")


@pytest.mark.parametrize(
    ("query", "forms"),
    [
        (
            lambda s: s.hopping_window(12, 3).select(n=sq.count(), x=sq.sum("v")),
            {BatchForm.DIRECT, BatchForm.EXPLODE, BatchForm.DIFFERENCE, BatchForm.DYADIC, BatchForm.EVALUATED},
        ),
        (lambda s: s.session_window(3).select(x=sq.max("v")), {BatchForm.DIRECT, BatchForm.EVALUATED}),
        (lambda s: s.where(sq.col("v") > 3), {None}),
    ],
)
def test_a_batch_form_is_one_of_those_that_are_not_refused(
    query: Callable[[sq.Stream], sq.Stream], forms: set[BatchForm | None]
) -> None:
    case = Case(query(EVENTS).plan, (), ())
    every = tuple(Execution(BATCH, batch_form=form) for form in BatchForm)
    _, ways = with_possible_forms((case, (Execution(BATCH), *every)))
    assert ways[0].batch_form is None and {how.batch_form for how in ways[1:]} == forms
    assert [str(how) for how in ways[1:]] == [
        "batch" if how.batch_form is None else f"batch, windows {how.batch_form}" for how in ways[1:]
    ]
