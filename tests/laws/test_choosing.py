"""Parameters that select and consume, in every shape and mode, give what the rules do in plain Python."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import assume, event, given
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from tests.patterns.brute_force import Undetermined, brute_force

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


@st.composite
def texts(draw: Any) -> str:
    parts = {v: f"{draw(st.sampled_from('ABC'))} AS {v} {draw(st.sampled_from(MODES))}" for v in "xyz"}
    pattern = draw(st.sampled_from(SHAPES)).format(**parts, w=draw(st.sampled_from([2, 4, 8])))
    where = draw(st.sampled_from(["", *(f" WHERE {condition}" for condition in CONDITIONS)]))
    return f"EVENT E WHEN {pattern}{where}"


@given(texts(), st.fixed_dictionaries(dict.fromkeys("ABC", EVENTS)))
def test_matches_are_chosen_as_the_rules_say(text: str, events: dict[str, list[dict[str, Any]]]) -> None:
    histories = {
        name: pa.Table.from_pylist([{**row, "end": row["start"] + 1} for row in rows], SCHEMA)
        for name, rows in events.items()
    }
    try:
        expected = brute_force(text, histories)
    except Undetermined:
        # the rules name no order of patterns' matches that start at once
        assume(False)
    event("matches" if expected else "no match")
    streams = {name: sq.intervals(rows, start="start", end="end", name=name) for name, rows in histories.items()}
    answer = t.history(sq.cedr(text, **streams).to_arrow()).to_pylist()
    assert sorted(map(repr, map(sorted, map(dict.items, answer)))) == sorted(
        map(repr, map(sorted, map(dict.items, expected)))
    )
