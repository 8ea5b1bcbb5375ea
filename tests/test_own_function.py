"""A function of a user's own is one more: typed, explained, evaluated in-process and judged by the oracle; JSON refuses it."""

from __future__ import annotations

import pytest

import streamq as sq
from streamq.compiler.rules.rule import can_fail
from streamq.errors import PlanError, TypeMismatch
from streamq.expressions import col
from streamq.plan.expr import show
from streamq.testing.oracle import oracle
from tests.own_function import call, digit_sum

DIGITS = digit_sum()
ROWS = [
    (1, 5, {"k": "a", "v": 19}),
    (2, 6, {"k": "a", "v": 28}),
    (3, 7, {"k": "b", "v": -107}),
    (4, 9, {"k": "b", "v": None}),
]
EVENTS = sq.events(ROWS)


def test_it_is_typed_and_evaluated_in_process() -> None:
    query = EVENTS.where(call(DIGITS, col("v")) > 8).select("v", digits=call(DIGITS, col("v")) + 1)
    assert query.to_arrow().to_pylist() == [
        {"v": 19, "digits": 11, "start": 1, "end": 5},
        {"v": 28, "digits": 11, "start": 2, "end": 6},
    ]
    assert query.schema.describe() == "v bigint, digits bigint; interval on integer"
    with pytest.raises(
        TypeMismatch, match=r"select: digit_sum needs a bigint; found string in digit_sum\(k\)\. Cast it"
    ):
        EVENTS.select(x=call(DIGITS, col("k")))


def test_explain_shows_it_and_rules_ask_whether_it_may_fail(capsys: pytest.CaptureFixture[str]) -> None:
    filtered = EVENTS.where(call(DIGITS, col("v")) > 8)
    filtered.explain()
    assert "where digit_sum(v) > 8" in capsys.readouterr().out
    assert not can_fail(call(DIGITS, col("v")), EVENTS.plan.schema)


def test_a_join_condition_and_the_oracle_take_it() -> None:
    pairs = EVENTS.join(EVENTS, where=lambda a, b: call(DIGITS, a.v) == call(DIGITS, b.v), suffixes=("_l", "_r"))
    columns = ["v_l", "v_r", "start", "end"]
    answer = {tuple(row[c] for c in columns) for row in pairs.to_arrow().to_pylist()}
    assert answer == {(19, 19, 1, 5), (28, 28, 2, 6), (19, 28, 2, 5), (28, 19, 2, 5), (-107, -107, 3, 7)}
    judged = oracle(pairs.plan, pairs.tables).to_pylist()
    assert {tuple(row[c] for c in columns) for row in judged} == answer


def test_two_functions_of_one_name_are_two() -> None:
    class Other(type(DIGITS)):  # type: ignore[misc]
        pass

    a, b = call(DIGITS, col("v")), call(Other(), col("v"))
    assert show(a) == show(b) and a.digest != b.digest and Other() != DIGITS and digit_sum() == DIGITS


def test_json_refuses_what_it_could_not_find_again() -> None:
    wrong = r"to_json: a function of your own cannot be written; found digit_sum\. Make it by @sq.udf"
    with pytest.raises(PlanError, match=wrong):
        EVENTS.where(call(DIGITS, col("v")) > 8).to_json()
