"""Parameters that select and consume, in every shape and mode, give what the rules do in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.testing.patterns.rules import Undetermined, brute_force

SHAPES = (
    "SEQUENCE({x}, {y}, {w})",
    "SEQUENCE({x}, {y}, {z}, {w})",
    "ALL({x}, {y}, {w})",
    "ALL({x}, {y}, {z}, {w})",
    "ATLEAST(2, {x}, {y}, {z}, {w})",
    "ANY({x}, {y}, {z})",
    "UNLESS(SEQUENCE({x}, {y}, {w}), C, 2)",
    "NOT(C AS n, SEQUENCE({x}, {y}, {w}))",
    "CANCEL_WHEN(SEQUENCE({x}, {y}, {w}), C AS n)",
    "SEQUENCE(ALL({x}, {y}, 3) AS s FIRST CONSUME, {z}, {w})",
    "ALL({x}, ATLEAST(1, {y}, {z}, 2) AS s LAST, {w})",
)
CONDITIONS = ("x.v <= y.v", "x.v = y.v", "x.v <> y.v", "CorrelationKey(k, EQUAL)", "CorrelationKey(k, UNIQUE)")
MODES = [
    f"{selection} {consumption}" for selection in ("EACH", "FIRST", "LAST") for consumption in ("REUSE", "CONSUME")
]
SCHEMA = pa.schema({"start": pa.int64(), "end": pa.int64(), "v": pa.int64(), "k": pa.string()})

EVENTS = st.lists(
    st.fixed_dictionaries(
        {"start": st.integers(1, 8), "v": st.sampled_from([0, 1, 2, None]), "k": st.sampled_from(["p", "q", None])}
    ),
    min_size=2,
    max_size=6,
)


CROWDED = (
    "ATMOST(2, {x}, {y}, {w})",
    "ATMOST(9, {x}, ALL({y}, {z}, 3), {w})",
    "ANY(ALL({x}, {y}, 3), ALL({y2}, {x2}, 3))",
)
"""Shapes of which an event, or a match of the same events, may be a match twice."""


@st.composite
def texts(draw: Any, shapes: Sequence[str] = SHAPES, name: str = "", output: str = "") -> str:
    parts = {
        v: f"{draw(st.sampled_from('ABC'))} AS {v} {draw(st.sampled_from(MODES))}" for v in ("x", "y", "z", "x2", "y2")
    }
    pattern = draw(st.sampled_from(shapes)).format(**parts, w=draw(st.sampled_from([2, 4, 8])))
    where = draw(st.sampled_from(["", *(f" WHERE {condition}" for condition in CONDITIONS)]))
    return f"EVENT E WHEN {pattern}{name}{where}{output}"


DRAWN = st.fixed_dictionaries(dict.fromkeys("ABC", EVENTS))


def histories_of(events: dict[str, list[dict[str, Any]]]) -> dict[str, pa.Table]:
    return {
        name: pa.Table.from_pylist([{**row, "end": row["start"] + 1} for row in rows], SCHEMA)
        for name, rows in events.items()
    }


def answer_of(text: str, histories: dict[str, pa.Table]) -> pa.Table:
    streams = {name: sq.intervals(rows, start="start", end="end", name=name) for name, rows in histories.items()}
    return sq.cedr(text, **streams).to_arrow()


@pytest.mark.slow
@given(texts((*SHAPES, *CROWDED), " AS whole", " OUTPUT whole.id AS id"), DRAWN)
def test_no_two_matches_have_one_id(text: str, events: dict[str, list[dict[str, Any]]]) -> None:
    ids = answer_of(text, histories_of(events)).column("id").to_pylist()
    assert len(ids) == len(set(ids))


@given(texts(), DRAWN)
def test_matches_are_chosen_as_the_rules_say(text: str, events: dict[str, list[dict[str, Any]]]) -> None:
    histories = histories_of(events)
    try:
        expected = brute_force(text, histories)
    except Undetermined:
        # the rules name no order of patterns' matches that start at once
        assume(False)
    event("matches" if expected else "no match")
    answer = t.history(answer_of(text, histories)).to_pylist()
    assert sorted(map(repr, map(sorted, map(dict.items, answer)))) == sorted(
        map(repr, map(sorted, map(dict.items, expected)))
    )
