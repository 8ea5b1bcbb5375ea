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
from streamq.testing.patterns.matches import UndeterminedAnswer
from tests.patterns.pattern_cases import brute_force

OF_SUB_PATTERNS = {
    "ALL({x}, ATLEAST(1, {y}, {z}, 2) AS s LAST, {w})": ("x",),
    "SEQUENCE({x}, ANY({y}, {z}) AS s {mode}, {x2}, {w})": ("x", "x2"),
    "SEQUENCE(ATMOST(1, {x}, {z}, 2) AS s {mode}, {y}, {w})": ("y",),
    "ATLEAST(2, {x}, ANY({z}, ANY({y2})) AS s {mode}, {x2}, {w})": ("x", "x2"),
    "SEQUENCE(UNLESS({y2}, C AS n, 2) AS s {mode}, {x}, {w})": ("x",),
    "ALL({x}, CANCEL_WHEN(ANY({y2}, {z}), SEQUENCE(A AS m, B AS n, 4)) AS s {mode}, {w})": ("x",),
}
"""Shapes in which s has fields, each with the variables of other events."""

SHAPES = (
    *OF_SUB_PATTERNS,
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
    shape = draw(st.sampled_from(shapes))
    mode = draw(st.sampled_from(MODES))
    pattern = shape.format(**parts, mode=mode, w=draw(st.sampled_from([2, 4, 8])))
    conditions = list(CONDITIONS)
    if shape in OF_SUB_PATTERNS:
        other = draw(st.sampled_from(OF_SUB_PATTERNS[shape]))
        conditions = [c.replace("x.", "s.").replace("y.", f"{other}.") for c in CONDITIONS] + ["s.v > 0"]
    where = draw(st.sampled_from(["", *(f" WHERE {condition}" for condition in conditions)]))
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


RUNS = ("REPEAT({x}, 2, {w})", "REPEAT({x}, 1, 2, {w})", "SEQUENCE(REPEAT({x}, 2, 3, {w}) AS r, C AS y {mode}, 4)")
OF_RUNS = ("x.v > 0", "sum(x.v) > 1", "first(x.v) = last(x.v)", "CorrelationKey(k, EQUAL)", "x.v < 2 AND count(x) = 2")


@st.composite
def runs(draw: Any, output: str = "count(x) AS n, sum(x.v) AS s, collect(x.v) AS l, first(x.k) AS k") -> str:
    mode, w = draw(st.sampled_from(MODES)), draw(st.sampled_from([2, 4, 8]))
    pattern = draw(st.sampled_from(RUNS)).format(x=f"A AS x {mode}", w=w, mode=draw(st.sampled_from(MODES)))
    where = draw(st.sampled_from(["", *(f" WHERE {condition}" for condition in OF_RUNS)]))
    return f"EVENT E WHEN {pattern} AS whole{where} OUTPUT {output}"


@given(runs(), DRAWN)
def test_runs_are_what_the_rules_say(text: str, events: dict[str, list[dict[str, Any]]]) -> None:
    histories = histories_of(events)
    expected = brute_force(text, histories)
    event("runs" if expected else "no run")
    answer = t.history(answer_of(text, histories)).to_pylist()
    assert sorted(map(repr, map(sorted, map(dict.items, answer)))) == sorted(
        map(repr, map(sorted, map(dict.items, expected)))
    )


@pytest.mark.slow
@given(runs("whole.id AS id, count(x) AS n, whole.contributors AS c"), DRAWN)
def test_no_two_runs_have_one_id(text: str, events: dict[str, list[dict[str, Any]]]) -> None:
    rows = answer_of(text, histories_of(events)).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    assert all(len(row["c"]) == (2 if "SEQUENCE" in text else row["n"]) for row in rows)


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
    except UndeterminedAnswer:
        # the rules name no order of patterns' matches that start at once
        assume(False)
    event("matches" if expected else "no match")
    answer = t.history(answer_of(text, histories)).to_pylist()
    assert sorted(map(repr, map(sorted, map(dict.items, answer)))) == sorted(
        map(repr, map(sorted, map(dict.items, expected)))
    )
