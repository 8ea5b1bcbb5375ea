"""Parameters that select or consume, over what comes late, is taken back, and goes out of state."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.run.rehearsal import Rehearsal
from tests.judged import answer
from tests.patterns.chosen import stream

pytestmark = pytest.mark.slow

Row = tuple[Any, ...]


def folded(changes: list[pa.Table]) -> list[Row]:
    """The rows that are left of a changelog: ``start, x_n, y_n``."""
    rows: list[Row] = []
    for change in (change for table in changes for change in table.to_pylist()):
        row = (change["start"], change["x_n"], change["y_n"])
        rows.append(row) if change["kind"] == "insert" else rows.remove(row)
    return sorted(rows)


def over(a: list[Any], b: list[Any], modes: str = "LAST CONSUME") -> sq.Stream:
    """Matches of items; a column a variable."""
    kinds = {"n": "string", "v": "bigint"}
    streams = {"A": sq.events(a, name="a", schema=kinds), "B": sq.events(b, name="b", schema=kinds)}
    found = sq.cedr(f"EVENT E WHEN SEQUENCE(A AS x {modes}, B AS y, 10)", **streams)
    return found.select("x_n", "y_n")


def at(start: int, name: str) -> Any:
    return sq.insert(start, start + 1, n=name)


def test_a_late_event_changes_decisions() -> None:
    """
    A  a1 1  a2 2 (late)
    B                     b1 3  b2 5
    """
    found = over([at(1, "a1"), at(2, "a2"), at(9, "a3")], [at(3, "b1"), at(5, "b2"), at(9, "b3")])
    run = Rehearsal(found, "changelog")
    early = [run.arrive(a=1, b=2), run.arrive(b=1)]
    assert folded(early) == [(3, "a1", "b1")]
    late = run.arrive(a=1)
    assert sorted((r["kind"], r["x_n"], r["y_n"]) for r in late.to_pylist()) == [
        ("insert", "a1", "b2"),
        ("insert", "a2", "b1"),
        ("retract", "a1", "b1"),
    ]
    changes = [*early, late, run.arrive(), run.finish()]
    assert folded(changes) == [(r[0], *r[2:]) for r in answer(found)] == [(3, "a2", "b1"), (5, "a1", "b2")]


def test_a_retraction_gives_back_what_was_consumed() -> None:
    """b1 has consumed a1; without it, b2 does."""
    a = [at(1, "a1"), at(9, "a2")]
    b = [at(3, "b1"), at(5, "b2"), at(9, "b3"), sq.retract(3, 4, 3, n="b1")]
    found = over(a, b)
    run = Rehearsal(found, "changelog")
    early = [run.arrive(a=2, b=3)]
    assert folded(early) == [(3, "a1", "b1")]
    changes = [*early, run.arrive(b=1)]
    assert folded(changes) == [(5, "a1", "b2")]
    assert folded([*changes, run.finish()]) == [(r[0], *r[2:]) for r in answer(found)] == [(5, "a1", "b2")]


@pytest.mark.parametrize("modes", ["FIRST", "LAST CONSUME"])
def test_every_order_of_arrival_gives_one_answer(modes: str) -> None:
    a, b = [at(s, f"a{s}") for s in (1, 2, 4)], [at(s, f"b{s}") for s in (3, 5, 6)]
    answers = set()
    for order in permutations(range(3)):
        found = over([a[i] for i in order], [b[i] for i in reversed(order)], modes)
        run = Rehearsal(found, "changelog")
        changes = [run.arrive(**{name: 1}) for _ in range(3) for name in ("a", "b")] + [run.finish()]
        answers |= {tuple(folded(changes)), tuple((r[0], *r[2:]) for r in answer(found))}
    assert len(answers) == 1 and answers.pop()


PATTERNS = (
    "SEQUENCE(A AS x FIRST, A AS y LAST CONSUME, B AS z, 4) WHERE x.v <= z.v",
    "ATLEAST(2, A AS x LAST CONSUME, B AS y FIRST, C AS z CONSUME, 3) WHERE x.v <= y.v",
    "ALL(A AS x CONSUME, SEQUENCE(B AS y LAST CONSUME, C AS z, 3) AS s FIRST CONSUME, 5) WHERE x.v = y.v AND y.v = z.v",
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_streams_in_micro_batches_agree_with_the_oracle(pattern: str) -> None:
    names = [name for name in "ABC" if f"{name} AS" in pattern]
    found = sq.cedr(f"EVENT E WHEN {pattern}", **{name: stream("1:n") for name in names})
    intent = t.Intent(duration="point", events=6, payload={"v": [1, 2], "n": ["p", "q"]}, unit=1)
    report = t.verify(found, intent, profile="fast", examples=2)
    assert report.empty < report.cases
