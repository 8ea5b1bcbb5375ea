"""Modules over windows: in every way to use one that is allowed the answer is the oracle's; in no other is there a query.

The oracle calls a module once over each whole window. What it says of functions holds for modules with states, too, that make the
same of the same members.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.rewriter import rewrite
from streamq.errors import PlanError
from streamq.testing.case import Case
from streamq.testing.execution import STREAM, Execution
from streamq.testing.trial import Answers, check_answers
from tests.pairwise import pairs
from tests.window_modules import (
    ALLOWED,
    BOUND,
    CASES,
    CHOICES,
    DATA,
    FORMS,
    MODULES,
    OWN_STAMPS,
    SAMPLE,
    WINDOWS,
    S,
    at_last,
    in_order,
    lived,
    over,
    per_value,
    refused,
)

SOAK = 20 if os.environ.get("STREAMQ_SOAK") else 1


def ways(outputs: Iterable[str]) -> list[Execution]:
    """Restarted after each micro-batch; of the changelog every CTI is watched."""
    return [Execution(STREAM, OutputForm(o), restart=True) for o in outputs]


OUTPUTS = (OutputForm.CHANGELOG, OutputForm.FINAL)


a_few = settings(
    max_examples=SOAK,
    derandomize=SOAK == 1,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
def test_every_two_choices_meet(window: str) -> None:
    """A sample: its choices of a window are one query, whose answer is computed in both forms."""
    choices = [choice for choice in SAMPLE if choice.window == window]

    @a_few
    @given(CASES)
    def law(case: Case) -> None:
        case = over(case, choices)
        check_answers(case, ways(OUTPUTS), Answers(case))

    law()


def test_the_sample_has_every_two_choices() -> None:
    meeting = set().union(*(pairs(choice.parts()) for choice in SAMPLE))
    assert meeting == set().union(*(pairs(choice.parts()) for choice in ALLOWED))
    assert len(SAMPLE) < len(ALLOWED) / 20


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
def test_every_choice(window: str) -> None:
    """Final rows and changelogs in turn, each over every twelfth choice; harder, both of each over all."""
    # what only adds is what adds and removes, without the latter: the sample has it
    forms = [form for form in FORMS if SOAK > 1 or form != "adding"]
    by_form = {form: [c for c in ALLOWED if (c.window, c.form) == (window, form)] for form in forms}
    assert len({tuple(map(str, choices)) for choices in by_form.values()}) == 1, "the forms of one choice have one name"

    @a_few
    @given(CASES)
    def law(case: Case) -> None:
        parts = [slice(None)] if SOAK > 1 else [slice(i, None, 12) for i in range(3)]
        answers = [Answers(over(case, by_form["function"][part])) for part in parts]
        for i, choices in enumerate(by_form.values()):
            outputs = OUTPUTS if SOAK > 1 else (OUTPUTS[(i + len(window)) % 2],)
            turn = i % len(parts)
            check_answers(over(case, choices[parts[turn]]), ways(outputs), answers[turn])

    law()


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
def test_members_come_in_their_order(window: str) -> None:
    grouped, of_all = WINDOWS[window](S.group_by("k")), WINDOWS[window](S)
    query = grouped.select(x=in_order("v")).union(of_all.select(k=sq.lit("all"), x=in_order("v")))
    t.verify(query, DATA, profile=t.Profile(examples=SOAK, batch=0, streams=0))


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS if SOAK > 1 else list(WINDOWS)[::2])
def test_a_filter_on_what_an_operator_filters_on_changes_nothing(window: str) -> None:
    grouped, of_all = (WINDOWS[window](s, clip_input="right").select(per_value("v")) for s in (S.group_by("k"), S))
    missing = of_all.where(sq.col("v").is_null()).select(sq.lit("all").alias("k"), "v", "n")
    query = grouped.where(sq.col("v") == 3).union(missing)
    assert {f.rule.name for f in rewrite(query.plan).firings} >= {"push_where_below_udo"}
    t.verify(query, DATA, profile=t.Profile(examples=SOAK, batch=0, streams=0))


@pytest.mark.parametrize("window", WINDOWS)
def test_what_is_not_allowed_is_an_error_where_it_is_written(window: str) -> None:
    choices = [choice for choice in CHOICES if choice.window == window and refused(choice) is not None]
    assert choices
    for choice in choices:
        with pytest.raises(PlanError) as raised:
            choice.over(S)
        assert str(raised.value).startswith(refused(choice)), choice


@pytest.mark.parametrize("window", WINDOWS)
def test_a_promise_must_be_made(window: str) -> None:
    for form in FORMS:
        module = MODULES["udo", form, True]
        with pytest.raises(
            PlanError, match=f"{module.name}: stamp 'time_bound' is a promise of the operator; it makes none"
        ):
            WINDOWS[window](S, stamp="time_bound").select(module("v"))
        assert BOUND[form, lived].default_stamp == BOUND[form, at_last].default_stamp == OWN_STAMPS[-1]
