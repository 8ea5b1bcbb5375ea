"""check_module of modules of every kind: those that take no column, and functions of one event's values."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import strategies as st

import streamq as sq
from streamq.errors import PlanError
from streamq.testing.modules import check_module
from tests.testing.test_decorated_modules import PARTS, WHOLE, law_broken_by

# what takes no column


class Counting:
    """How many members there are."""

    def initial(self) -> int:
        return 0

    def add(self, state: int, events: pd.DataFrame) -> int:
        return state + len(events)

    def result(self, state: int, window: Any) -> Any:
        return state


class CountingRows(Counting):
    def result(self, state: int, window: Any) -> Any:
        return [state]


class Steps:
    def initial(self) -> int:
        return 0

    def step(self, state: int, *start: Any) -> Any:
        return state + 1, [state]


def length(events: pd.DataFrame, window: Any) -> int:
    return len(events)


TIMED: dict[str, Any] = {"time_sensitive": True, "name": "own"}
LIFETIMES_ALONE = {
    "uda, a function": (sq.uda("bigint", **TIMED)(length), WHOLE),
    "uda, a class": (sq.uda("bigint", **TIMED)(Counting), PARTS),
    "udo, a function": (sq.udo("n bigint", **TIMED)(lambda events, window: [len(events)]), WHOLE),
    "udo, a class": (sq.udo("n bigint", **TIMED)(CountingRows), PARTS),
    "udso, a function": (sq.udso("n bigint", initial=0, name="own")(lambda s: (s + 1, [s])), (*WHOLE, "zero", "add")),
    "udso, of starts": (
        sq.udso("n bigint", initial=0, **TIMED)(lambda s, start: (s + 1, [s])),
        (*WHOLE, "zero", "add"),
    ),
    "udso, a class": (sq.udso("n bigint", name="own")(Steps), (*WHOLE, "zero", "add")),
    "udso, a class of starts": (sq.udso("n bigint", **TIMED)(Steps), (*WHOLE, "zero", "add")),
}


@pytest.mark.parametrize("kind", LIFETIMES_ALONE)
def test_modules_that_take_no_column_are_checked(kind: str) -> None:
    module, laws = LIFETIMES_ALONE[kind]
    assert check_module(module, "", examples=5) == laws
    applied = check_module(module(), examples=5)
    # an aggregate is computed in a query, too, which has an oracle
    in_query = ("order", "reference") if kind.startswith("uda") else ()
    assert applied == tuple(dict.fromkeys((*laws, *in_query)))
    assert check_module(module(), "", examples=5) == applied


@pytest.mark.parametrize("kind", LIFETIMES_ALONE)
def test_what_is_wrong_of_one_that_takes_no_column_is_found(kind: str) -> None:
    calls: list[int] = []

    def at_random(*given: Any) -> Any:
        calls.append(1)
        return len(calls)

    code: Any = {
        "uda": at_random,
        "udo": lambda *given: [at_random()],
        "udso": lambda state, *start: (state, [at_random()]),
    }[kind.partition(",")[0]]
    decorator = {"uda": sq.uda, "udo": sq.udo, "udso": sq.udso}[kind.partition(",")[0]]
    more: dict[str, Any] = {"initial": 0} if decorator is sq.udso else {}
    timed = decorator is not sq.udso or "starts" in kind
    returns = "bigint" if decorator is sq.uda else "n bigint"
    module = decorator(returns, name="own", time_sensitive=timed, **more)(code)
    assert law_broken_by(module(), "").law == "deterministic"


def test_what_must_take_a_column_says_so() -> None:
    plain = {"uda": sq.uda("bigint", name="own")(len), "udo": sq.udo("n bigint", name="own")(lambda v: [len(v)])}
    for module in plain.values():
        with pytest.raises(PlanError, match="own: it is called without a column"):
            check_module(module, "")
    with pytest.raises(PlanError, match="own: it is called without a column"):
        check_module(sq.udf("bigint", name="own")(lambda: 1), "")


# of one event


@pytest.mark.slow
def test_functions_of_one_event_are_checked() -> None:
    laws = (*WHOLE, "apart")
    size = sq.udf("string", name="size")(lambda toll, limit=10: None if toll is None else str(toll > limit))
    assert check_module(size, "double", examples=20) == laws
    assert check_module(size("v", limit=3), "double", examples=20) == laws
    assert check_module(size(sq.col("v") + 1), "double", examples=20) == laws
    doubled = sq.udf("double", takes="series", name="doubled")(lambda v, w: v * 2 + w)
    assert check_module(doubled, "double, double", examples=20) == laws


def test_what_a_function_makes_of_other_events_is_found() -> None:
    centred = sq.udf("double", takes="series", name="centred")(lambda v: v - v.mean())
    broken = law_broken_by(centred, "double", values=st.integers(0, 3).map(float))
    assert (broken.law, broken.found, broken.expected) == ("apart", [-0.5, 0.5], [0.0, 0.0])
    failing = sq.udf("bigint", name="failing")(lambda v: 1 // v)
    assert law_broken_by(failing, "bigint", values=st.integers(0, 3)).law == "answers"
    wrong = law_broken_by(sq.udf("bigint", name="wrong")(lambda v: 1), "bigint", reference=lambda v: 2)
    assert (wrong.law, wrong.found, wrong.expected) == ("reference", [1], [2])
