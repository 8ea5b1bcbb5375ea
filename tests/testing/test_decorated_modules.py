"""check_module of what ``sq.uda`` and ``sq.udo`` have made: with the properties, options and sense of time that they declare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from hypothesis import strategies as st

import streamq as sq
from streamq.errors import PlanError
from streamq.testing.modules import LawBroken, check_module
from tests.window_modules import BOUND, FORMS, MODULES, at_last, in_order, lived

SMALL = st.sampled_from([0, 1, 2, 3, 4, None])
WHOLE = ("answers", "deterministic", "pure")
PARTS = (*WHOLE, "zero", "add", "order")
LAWS = {
    "function": WHOLE,
    "incremental": (*PARTS, "remove"),
    "merging": (*PARTS, "remove", "merge"),
    "adding": PARTS,
}


def law_broken_by(module: Any, types: str = "bigint", **more: Any) -> LawBroken:
    with pytest.raises(LawBroken) as raised:
        check_module(module, types, **more)
    return raised.value


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_modules_of_every_form_keep_the_laws(form: str) -> None:
    for kind in ("uda", "udo"):
        assert check_module(MODULES[kind, form, False], "bigint", values=SMALL, examples=10) == LAWS[form]
    operator = MODULES["udo", form, True]("v")
    assert check_module(operator, "bigint", values=SMALL, examples=10) == LAWS[form]


def test_an_aggregate_that_is_applied_is_computed_in_every_way_and_judged() -> None:
    laws = check_module(MODULES["uda", "merging", True]("v"), "bigint", values=SMALL, examples=20)
    assert laws[-1] == "reference"
    assert check_module(in_order("v"), "bigint", values=SMALL, examples=20)[-1] == "reference"


def test_declared_options_and_properties_count() -> None:
    @sq.uda("double", name="scaled", properties=[sq.order_insensitive])
    def scaled(v: pd.Series, by: int = 1) -> float:
        return float(v.iloc[0] * by) if by > 1 else float(v.count())

    assert check_module(scaled, "bigint", values=SMALL.filter(lambda v: v is not None), examples=10)[-1] == "order"
    broken = law_broken_by(scaled.with_options({"by": 2}), values=st.integers(0, 3))
    assert (broken.law, broken.values) == ("order", {"first": [0], "then": [1]})


def test_results_must_be_of_the_type() -> None:
    broken = law_broken_by(sq.uda("bigint", name="half")(lambda v: len(v) / 2))
    assert (broken.law, broken.values) == ("answers", {"events": [1]})
    assert "0.5 is no bigint" in str(broken)


def test_a_time_sensitive_module_reads_lifetimes_within_a_window_of_either_axis() -> None:
    @sq.uda("double", name="weighted", time_sensitive=True, columns=["value"])
    def weighted(events: pd.DataFrame, window: Any) -> float:
        assert ((window.start <= events.start) & (events.end <= window.end) & (events.start < events.end)).all()
        return float((events.value * ((events.end - events.start) / window.duration)).sum())

    for axis in ("integer", "timestamp"):
        assert check_module(weighted, "double", values=st.sampled_from([1.0, 2.5]), examples=20, axis=axis) == WHOLE

    def ahead(events: pd.DataFrame, window: Any) -> float:
        return float(events.value.sum())

    broken = law_broken_by(weighted, "double", values=st.just(1.0), reference=ahead)
    assert broken.law == "reference"
    ((row,),) = broken.values.values()
    assert {*row} == {"start", "end", "value"}


def test_lifetimes_that_are_not_taken_back_are_found() -> None:
    class Forgets:
        def initial(self) -> int:
            return 0

        def add(self, state: int, events: pd.DataFrame) -> int:
            return state + int((events.end - events.start).sum())

        def remove(self, state: int, events: pd.DataFrame) -> int:
            return state - len(events)

        def result(self, state: int, window: Any) -> int:
            return state

    broken = law_broken_by(sq.uda("bigint", name="forgets", time_sensitive=True, columns=["v"])(Forgets))
    assert broken.law == "remove"


@pytest.mark.parametrize("result", [lived, at_last])
def test_a_promise_to_be_time_bound_that_is_kept(result: Any) -> None:
    assert "time_bound" in check_module(BOUND["incremental", result]("v"), "bigint", values=SMALL, examples=20)


def test_a_promise_to_be_time_bound_that_is_broken() -> None:
    @sq.udo("n bigint", name="counts", time_sensitive=True, properties=[sq.time_bound], columns=["v"])
    def counts(events: pd.DataFrame, window: Any) -> Iterator[Any]:
        yield window.start, window.end, len(events)

    broken = law_broken_by(counts, values=SMALL)
    assert broken.law == "time_bound"
    assert "what comes from 0 on changes no row before it" in str(broken)


def test_what_is_refused() -> None:
    load = sq.uda("double", name="load", time_sensitive=True)(lambda events, window: 1.0)
    with pytest.raises(
        PlanError, match=r"what load calls its arguments is not known; found 1 types, 0 names. Say columns="
    ):
        check_module(load, "double")
    with pytest.raises(PlanError, match="check_module: axis is 'integer' or 'timestamp'; found 'days'"):
        check_module(load, "double", axis="days")
