"""Correlated patterns never compare the events of different keys."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.errors import CedrError
from streamq.operators import Join, Scan, Source, Where
from streamq.plan.node import expanded, nodes
from tests.judged import answer
from tests.patterns.pattern_cases import CHOICES, SETS, STREAMS
from tests.programs import compiled

KEYED = {name: text for name, text in (SETS | CHOICES).items() if "CorrelationKey(k, EQUAL)" in text}


def unkeyed(text: str) -> list[str]:
    """The joins and scans of a pattern's plan that go over all keys at once."""
    over_all = []
    for node in nodes(expanded(sq.cedr(text, **STREAMS).plan)):
        keys = node.on if isinstance(node, Join) else node.keys if isinstance(node, Scan) else ("neither",)
        over_all += [] if keys else [f"{node.title} {node.detail()}"]
    return over_all


@pytest.mark.parametrize("name", KEYED)
def test_every_join_and_every_scan_has_the_key(name: str) -> None:
    assert unkeyed(KEYED[name]) == []


@pytest.mark.parametrize(
    ("pattern", "filtered"),
    [
        ("SEQUENCE(A, B, C, 9)", "ABC"),
        ("SEQUENCE(A, B FIRST CONSUME, C, 9)", "ABC"),
        ("ALL(A, B, C, 9)", "ABC"),
        ("UNLESS(SEQUENCE(A, B, 5), C, 4)", "ABC"),
        ("UNLESS(SEQUENCE(B, C, 5), A, 4)", "A"),
        ("SEQUENCE(B, ATLEAST(1, A, C, 4), 9)", "A"),
        ("SEQUENCE(REPEAT(A, 2, 4), B, C, 9)", "A"),
    ],
)
def test_a_constant_that_an_event_of_every_match_has_filters_all_types(pattern: str, filtered: str) -> None:
    plan = rewrite(sq.cedr(f"EVENT E WHEN {pattern} WHERE CorrelationKey(k, EQUAL) AND A.k = 'a'", **STREAMS).plan).plan
    below = {
        source.table
        for where in nodes(plan)
        if isinstance(where, Where) and "== 'a'" in where.detail()
        for source in nodes(where)
        if isinstance(source, Source)
    }
    assert below == {stream.plan.table for name, stream in STREAMS.items() if name in filtered}


@pytest.mark.parametrize(
    "where",
    ["A.k = B.k AND B.k = C.k", "A.k = B.k AND C.k = A.k", "C.k = A.k AND B.k = C.k AND A.v < C.v"],
)
@pytest.mark.parametrize(
    "pattern",
    [
        "SEQUENCE(A, B, C, 9)",
        "ALL(A, B, C, 9)",
        "UNLESS(SEQUENCE(A, B, 5), C, 4)",
        "UNLESS_BEFORE(SEQUENCE(A, B, 5), C, 4)",
        "NOT(C, SEQUENCE(A, B, 5))",
        "CANCEL_WHEN(SEQUENCE(A, B, 5), C)",
        "SEQUENCE(A, UNLESS(B, C, 4), 9)",
        "SEQUENCE(A FIRST, B LAST CONSUME, C, 9)",
    ],
)
def test_equations_that_connect_all_events_are_a_key(pattern: str, where: str) -> None:
    if "UNLESS(B, C" in pattern:
        # a condition on a negated event is about the pattern that the negation is about
        where = "A.k = B.k AND B.k = C.k"
    if "CONSUME" in pattern and "A.k = B.k AND C.k = A.k" in where:
        # B is chosen beside C, of which nothing is said
        assert len(unkeyed(f"EVENT E WHEN {pattern} WHERE {where}")) == 1
        return
    assert unkeyed(f"EVENT E WHEN {pattern} WHERE {where}") == []


def test_runs_are_of_what_a_correlation_key_names_and_of_nothing_else() -> None:
    assert unkeyed("EVENT E WHEN SEQUENCE(REPEAT(A AS f, 2, 5), B, 9) WHERE CorrelationKey(k, EQUAL)") == []
    assert len(unkeyed("EVENT E WHEN SEQUENCE(REPEAT(A AS f, 2, 5), B, C, 9) WHERE B.k = C.k AND max(f.v) > B.v")) == 2


def test_what_is_not_correlated_is_compared_over_all() -> None:
    assert len(unkeyed("EVENT E WHEN SEQUENCE(A, B, C, 9) WHERE A.v < B.v")) == 2


def test_keys_of_different_types_are_compared_as_everywhere() -> None:
    a = sq.points(pa.table({"at": [1, 2], "k": pa.array([1, 2], pa.int32())}), "at", name="a")
    b = sq.points(pa.table({"at": [3, 4], "k": pa.array([1, 3], pa.int64())}), "at", name="b")
    for modes in ("", "FIRST CONSUME"):
        query = sq.cedr(f"EVENT E WHEN SEQUENCE(A AS x {modes}, B, 9) WHERE CorrelationKey(k, EQUAL)", A=a, B=b)
        assert [row[2:4] for row in answer(query.select("x_k", "B_k"))] == [(1, 1)]
    other = sq.points(pa.table({"at": [3], "k": pa.array([b"1"])}), "at", name="c")
    with pytest.raises(CedrError, match="types that are never equal; found int, binary"):
        sq.cedr("EVENT E WHEN SEQUENCE(A, B, 9) WHERE CorrelationKey(k, EQUAL)", A=a, B=other)


# The CTI that a pattern sends on: it waits for what may still be taken back, and for nothing else.

EMPTY = pa.table({"at": pa.array([], pa.int64()), "k": pa.array([], pa.string())})
A, B = (sq.points(EMPTY, time="at", name=name, progress=sq.explicit()) for name in ("a", "b"))


def ctis(text: str, steps: Sequence[tuple[dict[str, list[int]], int]]) -> list[int]:
    """What a pattern over A and B promises after each micro-batch: starts of events by source, and a CTI of both."""
    run = LocalRun(compiled(rewrite(sq.cedr(text, A=A, B=B).plan).plan, OutputForm.CHANGELOG, buckets=2, ctis=True))
    told = []
    for starts, c in steps:
        rows = {n: pa.table({"at": pa.array(at, pa.int64()), "k": ["x"] * len(at)}) for n, at in starts.items()}
        run.batch(rows, [("a", c), ("b", c)])
        told.append(run.cti)
    return told


@pytest.mark.parametrize("where", ["", "WHERE x.k = y.k"])
def test_unless_promises_up_to_the_first_match_that_may_still_be_taken_back(where: str) -> None:
    steps = [({}, 50), ({"a": [60, 64]}, 66), ({}, 70), ({}, 74), ({"a": [90]}, 80)]
    assert ctis(f"EVENT E WHEN UNLESS(A AS x, B AS y, 10) {where}", steps) == [50, 60, 64, 74, 80]


def test_a_sequence_behind_it_waits_for_no_more() -> None:
    text = "EVENT E WHEN SEQUENCE(UNLESS(A AS x, B AS y, 10), B AS z, 30)"
    # what follows a match comes behind it
    assert ctis(text, [({}, 50), ({"a": [60]}, 66), ({}, 70)]) == [50, 61, 70]


def test_a_run_promises_what_its_inputs_do() -> None:
    assert ctis(
        "EVENT E WHEN REPEAT(A AS f, 2, 10) OUTPUT count(f) AS n", [({}, 50), ({"a": [60, 62]}, 66), ({}, 70)]
    ) == [50, 66, 70]


def test_unless_before_promises_what_its_inputs_do() -> None:
    steps = [({}, 50), ({"a": [60], "b": [45]}, 66), ({"b": [68]}, 70)]
    assert ctis("EVENT E WHEN UNLESS_BEFORE(A AS x, B AS y, 10)", steps) == [50, 66, 70]


def test_other_negations_promise_what_their_inputs_do() -> None:
    steps = [({"a": [45]}, 50), ({"a": [60], "b": [62]}, 66)]
    assert ctis("EVENT E WHEN NOT(B AS y, SEQUENCE(A AS x, A AS z, 10))", steps) == [50, 66]


# Slices at the end of a definition: their bounds are instants of the axis, in-process as on Spark.

TICKS = sq.events([(at, at + 1, {"v": at}) for at in (2, 5, 9)])
DAY = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
TIMES = sq.events([(DAY + dt.timedelta(hours=h), None, {"v": h}) for h in (0, 8, 12)])


def values(text: str, stream: sq.Stream) -> list[object]:
    return [row[2] for row in answer(sq.cedr(f"EVENT E WHEN ANY(A) OUTPUT A.v AS v {text}", A=stream))]


def test_numbers_on_an_integer_axis() -> None:
    assert values("@ [5, 9)", TICKS) == [5]
    assert values("@ [5, )", TICKS) == [5, 9]
    assert values("@ [, 5)", TICKS) == [2]


@pytest.mark.parametrize("bound", ["2024-05-01 08:00", "2024-05-01T08:00:00Z", "2024-05-01 10:00:00+02:00"])
def test_timestamps_in_quotes_on_the_other(bound: str) -> None:
    assert values(f"@ ['{bound}', )", TIMES) == [8, 12]
    assert values(f"@ [, '{bound}')", TIMES) == [0]


@pytest.mark.parametrize(
    ("text", "stream", "message"),
    [
        ("@ [5.9, 21)", TICKS, "a whole number of ticks on an integer axis; found 5.9"),
        ("@ ['5', 21)", TICKS, "a whole number of ticks on an integer axis; found '5'"),
        ("@ [9, 3)", TICKS, "an empty slice"),
        ("# [3, 3)", TICKS, "an empty slice"),
        ("@ [3, 5)", TIMES, "a timestamp in quotes; found 3. Write '2024-05-01 08:00:00'"),
        ("@ ['gestern', )", TIMES, "no timestamp; found 'gestern'"),
        ("@ ['2024-05-02', '2024-05-01')", TIMES, "an empty slice"),
    ],
)
def test_what_is_no_slice_is_refused_at_its_place(text: str, stream: sq.Stream, message: str) -> None:
    with pytest.raises(CedrError, match="line 1, column") as refused:
        values(text, stream)
    assert message in str(refused.value)


def test_types_on_different_axes_are_refused_by_name() -> None:
    with pytest.raises(CedrError, match="'A' is on an integer axis, 'B' on a timestamp axis"):
        sq.cedr("EVENT E WHEN SEQUENCE(A, B, 5)", A=TICKS, B=TIMES)


def test_a_misspelt_function_is_told_before_its_arguments() -> None:
    with pytest.raises(CedrError, match="no function 'CorelationKey'. Did you mean 'CorrelationKey'?"):
        sq.cedr("EVENT E WHEN SEQUENCE(A AS a, A AS b, 5) WHERE CorelationKey(v, EQUAL)", A=TICKS)
