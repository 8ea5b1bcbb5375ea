"""Correlated patterns never compare the events of different keys."""

from __future__ import annotations

import pyarrow as pa
import pytest

import streamq as sq
from streamq.errors import CedrError
from streamq.operators import Join, Scan
from streamq.plan.node import expanded, nodes
from tests.judged import answer
from tests.patterns.pattern_cases import CHOICES, SETS, STREAMS

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
