"""Right modules keep the laws, and each wrong one is refuted by the law that it breaks."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import streamq as sq
from streamq.errors import PlanError, TypeMismatch
from streamq.testing.modules import LawBroken, check_module
from tests.testing.user_modules import (
    Appends,
    CountsNullsIn,
    DistinctBySet,
    EveryThird,
    ForgetsNulls,
    KeepsOnSelf,
    LeftWins,
    Longest,
    MeanOfMeans,
    RefusesZero,
    RunningMean,
    StartsAtOne,
    SubtractsFloats,
    TakesTheLast,
    Total,
    Values,
    WrongOnce,
    at_random,
    class_that_is_loaded,
    clips,
    latest,
    middle,
    ready_after_a_call,
    relative_to_the_first,
)

SCALE = max(1, settings().max_examples // 40)
"""`make soak` tries more."""

V = sq.col("v")


ANY_CODE = ("answers", "deterministic", "pure")


def law_broken_by(module: Any, types: str = "double", **more: Any) -> LawBroken:
    with pytest.raises(LawBroken) as found:
        check_module(module, types, **more)
    return found.value


INCREMENTAL = ("answers", "deterministic", "pure", "zero", "add", "order", "remove", "merge")


@pytest.mark.slow
def test_right_modules_of_every_shape_keep_the_laws() -> None:
    assert check_module(Total, "bigint", examples=10 * SCALE) == INCREMENTAL
    assert check_module(Values(), examples=10 * SCALE) == INCREMENTAL
    assert check_module(middle, examples=10 * SCALE, order_insensitive=True) == (
        "answers",
        "deterministic",
        "pure",
        "order",
    )
    assert check_module(latest, "string", examples=10 * SCALE) == ("answers", "deterministic", "pure")
    assert "merge" in check_module(Longest, "string, int", examples=10 * SCALE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "kind", "law"),
    [
        (DistinctBySet, "double", "remove"),
        (DistinctBySet, "int", "remove"),
        (SubtractsFloats, "double", "remove"),
        (SubtractsFloats, "float", "remove"),
        (StartsAtOne, "bigint", "zero"),
        (LeftWins, "double", "merge"),
        (MeanOfMeans, "double", "merge"),
        (RunningMean, "double", "add"),
        (Appends, "double", "pure"),
        (clips, "double", "pure"),
        (KeepsOnSelf, "bigint", "deterministic"),
        (EveryThird, "bigint", "deterministic"),
        (WrongOnce, "int", "deterministic"),
        (at_random, "string", "deterministic"),
        (CountsNullsIn, "int", "remove"),
        (ForgetsNulls, "int", "answers"),
        (RefusesZero, "double", "answers"),
        (TakesTheLast, "int", "order"),
    ],
)
def test_wrong_modules_are_refuted_by_the_law_they_break(module: Any, kind: str, law: str) -> None:
    assert law_broken_by(module, kind).law == law


def test_a_float_taken_out_of_a_running_sum_is_shown_with_the_smallest_values() -> None:
    broken = law_broken_by(SubtractsFloats)
    assert broken.values == {"rest": [1.0], "removed": [1e16]}
    assert (broken.module, broken.found, broken.expected) == ("SubtractsFloats", 0.0, 1.0)
    assert str(broken) == (
        "check_module: SubtractsFloats breaks the law of remove: adding events and removing them changes nothing; "
        "found 0.0, expected 1.0. The smallest values that show it: rest = [1.0]; removed = [1e+16]"
    )


@pytest.mark.parametrize("made", [ready_after_a_call, relative_to_the_first, class_that_is_loaded])
def test_a_first_call_that_differs_is_seen_whatever_the_code_keeps(made: Any) -> None:
    """Of plain code, and of every decorator: each gets copies that were never called."""
    broken = law_broken_by(made(), "int")
    assert broken.law == "deterministic" and "the first call of the code" in str(broken)
    assert law_broken_by(sq.uda("bigint", name="own")(made()), "int").law == "deterministic"
    assert law_broken_by(sq.uda("bigint", name="own")(made())("v"), "int").law == "deterministic"


def test_a_first_call_that_differs_is_seen_of_functions_and_scans() -> None:
    first = ready_after_a_call()
    assert law_broken_by(sq.udf("bigint", name="own")(lambda v: first([v])), "int").law == "deterministic"
    first = ready_after_a_call()
    walk = sq.udso("n bigint", initial=0, name="own")(lambda state, v: (state, [first([v])]))
    assert law_broken_by(walk, "int").law == "deterministic"


def test_copies_leave_the_code_as_it_is() -> None:
    """States may be of classes of the code, of which a copy has its own."""

    class Step:
        count = 0

    class Steps:
        def initial(self) -> Step:
            return Step()

        def step(self, state: Step, v: Any) -> Any:
            return Step(), [1]

    step = Steps.step
    assert check_module(sq.udso("n bigint", name="own")(Steps), "int", examples=5)[:3] == ANY_CODE
    assert Steps.step is step and type(Steps().initial()) is Step


def test_a_class_with_parameters_is_checked_as_one_without() -> None:
    @sq.uda("double", name="weighed")
    class Weighed(Total):
        def __init__(self, by: float = 1.0):
            self.by = by

        def result(self, state: Any) -> Any:
            return state[0] * self.by if state[1] else None

    laws = check_module(Weighed, "bigint", examples=10)
    assert check_module(Weighed("v", by=2.0), "bigint", examples=10) == laws

    @sq.uda("double", name="without")
    class Without(SubtractsFloats):
        def __init__(self, by: float = 1.0):
            self.by = by

    for applied in (Without("v", by=2.0), Without(V + 0, by=2.0, where=V > 0)):
        broken = law_broken_by(applied)
        assert (broken.law, broken.values) == ("remove", {"rest": [1.0], "removed": [1e16]})


def test_what_a_module_raises_is_told() -> None:
    broken = law_broken_by(ForgetsNulls, "int")
    assert broken.values == {"events": [None]}
    assert isinstance(broken.__cause__, ZeroDivisionError)
    assert "found ZeroDivisionError('division by zero'), expected 'a result'" in str(broken)


def test_what_raises_on_purpose_is_checked_over_the_values_that_it_is_for() -> None:
    assert "pass those that it accepts, as a list or a Hypothesis strategy: values=[...]" in str(
        law_broken_by(RefusesZero)
    )
    for values in ([1.0, 2.0, 4.0], st.sampled_from((1.0, 2.0, 4.0))):
        assert check_module(RefusesZero, values=values, examples=20)[:3] == ("answers", "deterministic", "pure")
    for none in ([], 1.0, {1.0}):
        with pytest.raises(PlanError, match=r"check_module: no values; found values=.* Write a list, \[1.0, 2.0\]"):
            check_module(RefusesZero, values=none)  # type: ignore[arg-type]


def test_a_declared_property_can_be_refuted() -> None:
    broken = law_broken_by(latest, "int", order_insensitive=True)
    assert (broken.law, broken.values) == ("order", {"first": [1], "then": [0]})


def test_a_reference_says_what_laws_cannot() -> None:
    class Doubled(Total):
        def result(self, state: Any) -> Any:
            return 2 * state[0] if state[1] else None

    def total(values: pd.Series) -> Any:
        return int(values.sum()) if values.count() else None

    assert check_module(Total, "int", reference=total, examples=20)[-1] == "reference"
    broken = law_broken_by(Doubled, "int", reference=total)
    assert (broken.law, broken.values, broken.found, broken.expected) == ("reference", {"events": [1]}, 2, 1)


def test_values_may_be_given_and_shown_by_argument() -> None:
    def lost(x: pd.Series, y: pd.Series) -> int:
        return int((x > 9).sum() - (y > 9).sum() * (len(y) > 1)) if (x > 9).any() else 1 // 0

    small = st.tuples(st.integers(10, 20), st.integers(0, 5))
    assert check_module(lost, "int, int", values=small, examples=20) == ("answers", "deterministic", "pure")
    assert law_broken_by(lost, "int, int").values == {"events": [{"x": 1, "x1": 1}]}


@pytest.mark.slow
def test_seeds_and_tolerance() -> None:
    class Rounded(Total):
        def add(self, state: Any, values: pd.Series) -> Any:
            return round(state[0] + float(values.sum()), 1), state[1] + int(values.count())

    numbers = st.sampled_from((0.25, 0.5, 1.0))
    assert law_broken_by(Rounded, values=numbers, seed=1).law in ("zero", "add", "order", "remove", "merge")
    assert check_module(Rounded, values=numbers, seed=2, tolerance=2.0, examples=20) == INCREMENTAL


class Scaled:
    """A module whose objects differ."""

    def __init__(self, by: int):
        self.by = by

    def initial(self) -> int:
        return 0

    def add(self, state: int, values: Any) -> int:
        return state + len(values)

    def result(self, state: int) -> int:
        return state * self.by


def test_what_is_refused() -> None:
    with pytest.raises(PlanError, match="check_module: not a module; found 7. Give a function of Series"):
        check_module(7)
    with pytest.raises(PlanError, match="check_module: not a module; found"):
        check_module(sq.sum("v"))
    with pytest.raises(
        PlanError, match="check_module: order_insensitive applies to aggregates only; size is called for one event"
    ):
        check_module(sq.udf("int", name="size")(len), order_insensitive=True)
    with pytest.raises(PlanError, match="check_module: no types; it is called with a Series for each argument"):
        check_module(latest, "")
    with pytest.raises(PlanError, match="check_module: 2 types for 1 arguments; found own"):
        check_module(sq.uda("int", name="own")(len)("v"), "int, int")
    with pytest.raises(TypeMismatch, match="^check_module: no such type; found 'text' in 'int, text'. Write 'string'"):
        check_module(latest, "int, text")
    with pytest.raises(PlanError, match="check_module: examples is not a whole number of at least 1; found 0"):
        check_module(latest, "int", examples=0)
    with pytest.raises(PlanError, match=r"Scaled takes arguments; .*'by'. Give an object: Scaled\(...\)"):
        check_module(Scaled)
    assert "add" in check_module(Scaled(2), "int", examples=1)
