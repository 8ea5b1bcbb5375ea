"""The CTI that a pattern sends on: it waits for what may still be taken back, and for nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from tests.programs import compiled

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
