"""Texts in which every operator of the CEDR language stands in every other, and what arrives at the streams they are over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.patterns.parser import parse
from streamq.patterns.pattern_text import render
from streamq.patterns.syntax import Program
from streamq.testing.case import Case
from streamq.testing.patterns.rules import matches_by_rules, primitives, rows_of

STREAMS = {
    name: sq.events([sq.insert(1, 4, k="a", v=3), sq.retract(1, 4, 1, k="a", v=3), sq.cti(2)],
        name=name, schema={"k": "string", "v": "bigint"})
    for name in "ABC"
}  # fmt: skip


def crowded(random: Random, many: int) -> list[tuple[int, int | None]]:
    """Lifetimes that start close to each other, some at once."""
    starts = [random.randint(1, 14) for _ in range(6)]
    return [(start, random.choice([start + 1, start + 5, None])) for start in starts]


DATA = t.Intent(
    pattern=crowded,
    late="none",
    invalid=False,
    payload={"k": ["a"] * 5 + ["b", None], "v": [0, 1, 2, 3, None]},
)
"""Disorder, corrections, deletions and duplicates, over keys that are mostly equal."""


def brute_force(
    text: str, histories: Mapping[str, pa.Table], functions: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the matches of a text by the rules, over histories on an integer axis, as rows of a history."""
    types = {name: primitives(name, history) for name, history in histories.items()}
    return rows_of(matches_by_rules(parse(text), types, functions=functions))


def cut(case: Case) -> Case:
    """The case in three micro-batches."""
    n = len(case.arrival)
    lengths = [n * (i + 1) // 3 - n * i // 3 for i in range(3)]
    return replace(case, until=case.latest + 60).with_cut(*lengths)


def apart(random: Random, many: int) -> list[tuple[int, int | None]]:
    """A few lifetimes, no two of which start at once."""
    return [(start, random.choice([start + 1, start + 5, None])) for start in random.sample(range(1, 14), 3)]


UNION = reduce(sq.Stream.union, STREAMS.values())

CASES: st.SearchStrategy[Case] = t.concrete(UNION, DATA).filter(lambda case: len(case.arrival) >= 9).map(cut)
"""What arrives at the three streams; the query is their union."""

SPARSE: st.SearchStrategy[Case] = t.concrete(UNION, DATA.but(pattern=apart)).map(cut)
"""Cases so small that the rules often determine which events texts select and consume that choose among many."""


def matching(case: Case, text: str) -> Case:
    """The same arrivals at a query that matches a text."""
    return replace(case, plan=sq.cedr(text, **STREAMS).plan)


def one_by_one(case: Case, text: str) -> Case:
    """The same arrivals at a query of which each definition is a pattern in a variable, used as a type in the next ones."""
    types: dict[str, sq.Stream] = dict(STREAMS)
    for definition in parse(text).definitions:
        types[definition.name] = sq.cedr(render(Program((definition,))), **types)
    return replace(case, plan=types[definition.name].plan)


def histories(case: Case) -> Mapping[str, pa.Table]:
    return {name: t.history(table) for name, table in case.tables.items()}


def bag(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows as a bag, whatever the order of their columns."""
    lists_as_tuples = ({n: tuple(v) if isinstance(v, list) else v for n, v in row.items()} for row in rows)
    return Counter(tuple(sorted(row.items())) for row in lists_as_tuples)


PATTERNS: Mapping[str, str] = {
    "sequence": "SEQUENCE(A, B, C, 8) WHERE CorrelationKey(k, EQUAL)",
    "a stream against itself": "SEQUENCE(A AS x, A AS y, 6) WHERE x.k = y.k AND x.v < y.v",
    "at least": "ATLEAST(2, A, B, C, 5) WHERE A.v = B.v AND CorrelationKey(k, EQUAL)",
    "at least one": "ATLEAST(1, A, B, 4) WHERE A.v IS NOT NULL",
    "all": "ALL(A, B, 5) WHERE CorrelationKey(v, UNIQUE) AND [k EQUAL 'a']",
    "any": "ANY(A, B x) AS e WHERE e.Vs > 3 AND x.v > 0",
    "unless": "UNLESS(A, B, 5) WHERE A.k = B.k AND B.v > A.v - 1",
    "unless, from the first": "UNLESS(SEQUENCE(A, B, 6) AS s, C, 1, 7) WHERE CorrelationKey(k, EQUAL)",
    "not": "NOT(C, SEQUENCE(A, B, 8)) WHERE A.k = C.k AND (C.v = B.v OR C.v IS NULL)",
    "not, at least": "NOT(C, ATLEAST(2, A, B, A d, 8)) WHERE CorrelationKey(k, EQUAL)",
    "not, all": "NOT(A z, ALL(A, B, C, 8)) WHERE z.v = A.v",
    "cancel": "CANCEL_WHEN(SEQUENCE(SEQUENCE(A, B, 6), A d, 9), C) WHERE A.k = C.k",
    "unless over cancel": "UNLESS(CANCEL_WHEN(ALL(A, B, 6), C), C z, 4) WHERE A.k = C.k AND z.k = B.k",
    "sequence of not": "SEQUENCE(NOT(C, SEQUENCE(A, B, 6)), A d, 9) WHERE C.k = A.k AND d.k = B.k",
    "not a sequence": "NOT(SEQUENCE(A p, C, 5) AS s, SEQUENCE(A, B, 9)) WHERE p.k = A.k AND C.v = p.v AND s.root < B.Vs",
    "sequence of any": "SEQUENCE(ANY(A, B) AS s, C, 7) WHERE C.Vs - s.Vs > 1 AND C.k = A.k",
    "all of unless": "ALL(UNLESS(A, B, 4), UNLESS(C, B z, 3), 8) WHERE A.k = B.k AND C.k = z.k AND A.k = C.k",
    "unless an unless": "UNLESS(UNLESS(A, B, 3), UNLESS(C, B z, 3), 6) WHERE A.k = B.k AND C.k = z.k AND A.k = C.k",
    "at least of all": "ATLEAST(2, ALL(A, B, 4) AS s, C, B d, 7) WHERE A.k = C.k AND s.root < d.Vs",
    "not at least": "NOT(ATLEAST(2, A p, B q, C, 3), SEQUENCE(A, B, 9)) WHERE p.k = A.k AND C.k = B.k",
    "cancel by not": "CANCEL_WHEN(SEQUENCE(NOT(C, ALL(A, B, 6)), B d, 9), NOT(A p, SEQUENCE(C q, B r, 5))) "
    "WHERE q.k = A.k AND p.k = q.k",
    "any of any": "ANY(ANY(A, B), SEQUENCE(C, A d, 4)) WHERE A.v > 0 AND C.k = d.k",
    "cancel by unless": "CANCEL_WHEN(ATLEAST(2, A, B, C, 6), UNLESS(A p, B q, 3)) WHERE p.k = C.k AND q.k = p.k",
    "sequence of cancel": "SEQUENCE(A, CANCEL_WHEN(ALL(B, C, 5), A z), 9) WHERE z.v = C.v AND CorrelationKey(k, EQUAL)",
    "sequence of at least": "SEQUENCE(ATLEAST(2, A, B, C, 4), ALL(B p, UNLESS(C q, A r, 2), 5), 9) WHERE r.v = q.v AND A.k = q.k",
    "sequence of unless": "SEQUENCE(UNLESS(A, SEQUENCE(B p, C q, 3), 5), UNLESS(B, ANY(A r, C t), 3), 9) "
    "WHERE p.v = A.v AND r.v = B.v",
    "at least of many": "ATLEAST(2, SEQUENCE(A, B, 4) AS s, ANY(C, B q) AS u, UNLESS(A r, B t, 3), 5) "
    "WHERE t.k = r.k AND u.Vs > s.root",
    "at least of negations": "ATLEAST(2, ATLEAST(1, A, B, 2) s, NOT(C, SEQUENCE(A p, B q, 6)), "
    "CANCEL_WHEN(ALL(A r, B t, 4), C u), 6) "
    "WHERE C.k = p.k AND u.v = r.v AND s.Vs > 4",
    "all of some": "ALL(SEQUENCE(A, B, 4), ATLEAST(2, A p, B q, C r, 3), ANY(A t), 7) WHERE CorrelationKey(k, EQUAL)",
    "all of negations": "ALL(NOT(C, SEQUENCE(A, B, 6)), CANCEL_WHEN(ALL(A p, B q, 5), C r), 8) "
    "WHERE C.v = A.v AND r.k = q.k AND p.v = A.v",
    "any of many": "ANY(ATLEAST(2, A, B, C, 4), ALL(A p, B q, 5), UNLESS(A r, B t, 4)) "
    "WHERE A.v < B.v AND t.v = r.v AND p.k = q.k",
    "any of negations": "ANY(NOT(C, SEQUENCE(A, B, 6)) AS n, CANCEL_WHEN(ALL(A p, B q, 5), C r)) "
    "WHERE C.k = A.k AND n.Vs > 5 AND r.v > p.v",
    "unless over at least": "UNLESS(ATLEAST(2, A, B, C, 5), ALL(A p, B q, 3), 2, 5) WHERE p.v = A.v AND q.k = C.k",
    "unless over all": "UNLESS(ALL(A, B, 6), ATLEAST(2, A p, B q, C, 3), 1, 7) WHERE p.v = A.v AND C.k = q.k",
    "unless a not": "UNLESS(ANY(A, B), NOT(C, SEQUENCE(A p, B q, 5)), 5) WHERE A.k = p.k AND C.v = q.v AND B.v = q.v",
    "unless a cancel": "UNLESS(NOT(C, SEQUENCE(A, B, 6)), CANCEL_WHEN(SEQUENCE(C p, B q, 4), A r), 2, 7) "
    "WHERE C.v = A.v AND q.k = B.k",
    "not all": "NOT(ALL(A p, C q, 4), ATLEAST(2, A, B, C, 8)) WHERE p.v = A.v AND q.v <> B.v",
    "not any": "NOT(ANY(A p, B q), ALL(A, UNLESS(B, C, 2), 7)) WHERE p.v = A.v AND q.v = B.v AND C.k = B.k",
    "not an unless": "NOT(UNLESS(C, A p, 3), SEQUENCE(A, CANCEL_WHEN(ALL(B, C q, 4), A r), 9)) "
    "WHERE C.k = A.k AND p.v = C.v AND r.v = q.v",
    "not a not": "NOT(NOT(C, SEQUENCE(A p, B q, 5)), SEQUENCE(A, B, 9)) WHERE p.k = A.k AND C.v = q.v",
    "not a cancel": "NOT(CANCEL_WHEN(SEQUENCE(B p, C q, 5), A r), ATLEAST(2, A, B, C, 8)) WHERE q.v = C.v AND r.k = p.k",
    "cancel twice": "CANCEL_WHEN(CANCEL_WHEN(SEQUENCE(A, B, 8), C), ANY(A p, B q)) WHERE C.k = A.k AND p.v = A.v AND q.v = B.v",
    "cancel by a sequence": "CANCEL_WHEN(ANY(SEQUENCE(A, B, 6), SEQUENCE(B p, C, 6)), SEQUENCE(A q, B r, 4)) "
    "WHERE q.v = A.v AND r.v = C.v",
    "cancel by at least": "CANCEL_WHEN(NOT(C, SEQUENCE(A, B, 9)), ATLEAST(2, A p, B q, C r, 3)) WHERE C.k = A.k AND p.v = A.v",
    "cancel by all": "CANCEL_WHEN(UNLESS(SEQUENCE(A, B, 9), C, 4), ALL(A p, C q, 3)) WHERE C.k = A.k AND p.v = A.v",
    "cancel by a cancel": "CANCEL_WHEN(SEQUENCE(A, B, 9), CANCEL_WHEN(SEQUENCE(A p, C, 3), B q)) WHERE p.k = A.k AND q.v = C.v",
    "at most": "ATMOST(2, A, B, 5) WHERE A.v <> B.v",
    "at most, by key": "ATMOST(1, A, B, C, 4) WHERE CorrelationKey(k, EQUAL)",
    "at most, of one type": "ATMOST(2, A p, A q, B, 5) WHERE p.v <> B.v AND q.v > 0",
    "at most, by an equation": "ATMOST(1, A, B, 5) WHERE A.k = B.k",
    "at most, by another": "ATMOST(2, A p, A q, 5) WHERE p.k = q.k AND p.v <> q.v",
    "a sequence with an at most, by an equation": "SEQUENCE(ATMOST(1, A, 5), B, 9) WHERE A.k = B.k",
    "at most of some": "ATMOST(2, SEQUENCE(A, B, 4), ALL(A p, C, 4), ATLEAST(2, B q, C r, A t, 3), 5) "
    "WHERE B.k = p.k AND q.v = A.v",
    "at most of at most": "ATMOST(2, ATMOST(1, A, B, 3) AS s, ANY(C, B p) AS u, 4) WHERE A.v = p.v AND s.Vs < u.Vs",
    "at most of negations": "ATMOST(1, UNLESS(A, B, 4), NOT(C, SEQUENCE(A p, B q, 5)), CANCEL_WHEN(ALL(A r, B t, 4), C u), 5) "
    "WHERE B.k = A.k AND C.v = p.v AND u.v = r.v AND A.k = p.k",
    "sequence of at most": "SEQUENCE(ATMOST(1, A, B, 3), ATLEAST(2, ATMOST(2, C, B p, 3), A q, 6), 9) "
    "WHERE A.k = q.k AND C.v <> p.v",
    "all of at most": "ALL(ALL(A, B, 5), ATMOST(1, C, 3), 7) WHERE A.k = C.k",
    "any of at most": "ANY(ATMOST(1, A, B, 3), C) WHERE A.v < B.v",
    "unless an at most": "UNLESS(ATMOST(2, A, B, 5), ATMOST(1, C, A p, 4), 4) WHERE C.k = A.k AND p.v <> C.v",
    "not an at most": "NOT(ATMOST(1, C, 3), SEQUENCE(A, B, 8)) WHERE C.k = A.k",
    "cancel by at most": "CANCEL_WHEN(ATMOST(2, SEQUENCE(A, B, 6), C, 4), ATMOST(1, A p, C q, 3)) WHERE p.k = A.k AND q.v = C.v",
    "unless before": "UNLESS_BEFORE(A, B, 5) WHERE A.k = B.k AND B.v > A.v - 1",
    "unless before, by key": "UNLESS_BEFORE(SEQUENCE(A, B, 6) AS s, C, 3) WHERE CorrelationKey(k, EQUAL) AND s.root < 9",
    "unless before an any, of at least": "UNLESS_BEFORE(ATLEAST(2, A, B, C, 5), ANY(A p, B q), 2) WHERE p.v = A.v AND q.k = C.k",
    "unless before an all, of any": "UNLESS_BEFORE(ANY(A, B) AS e, ALL(A p, C q, 4), 6) WHERE p.v = A.v AND e.Vs > 3",
    "unless before a sequence, of all": "UNLESS_BEFORE(ALL(A, B, 6), SEQUENCE(A p, C q, 3), 4) WHERE p.v = A.v AND q.k = B.k",
    "unless before at least, of unless": "UNLESS_BEFORE(UNLESS(A, B, 3), ATLEAST(2, A p, B q, C, 3), 4) "
    "WHERE B.v = A.v AND C.k = A.k",
    "unless before an unless, of not": "UNLESS_BEFORE(NOT(C, SEQUENCE(A, B, 8)), UNLESS(A p, C q, 3), 5) "
    "WHERE C.k = A.k AND p.v = B.v AND q.v = p.v",
    "unless before a not, of cancel": "UNLESS_BEFORE(CANCEL_WHEN(SEQUENCE(A, B, 8), C), NOT(C q, SEQUENCE(A p, B r, 5)), 4) "
    "WHERE C.k = A.k AND p.v = A.v AND q.k = r.k",
    "unless before a cancel, of at most": "UNLESS_BEFORE(ATMOST(2, A, B, 4), CANCEL_WHEN(ALL(A p, C q, 4), B r), 5) "
    "WHERE p.v = A.v AND r.v = q.v",
    "unless before at most, of itself": "UNLESS_BEFORE(UNLESS_BEFORE(A, B, 3), ATMOST(1, C, B p, 4), 5) "
    "WHERE B.k = A.k AND C.k = A.k",
    "sequence of unless before": "SEQUENCE(UNLESS_BEFORE(A, B, 4) AS s, UNLESS_BEFORE(C, A p, 2), 9) "
    "WHERE A.k = B.k AND p.v = C.v",
    "at least of unless before": "ATLEAST(2, UNLESS_BEFORE(A, B, 3), C, B d, 7) WHERE A.k = B.k AND C.k = d.k",
    "all of unless before": "ALL(UNLESS_BEFORE(A, B, 4), UNLESS_BEFORE(C, B z, 3), 8) WHERE A.k = B.k AND C.k = z.k",
    "any and at most of unless before": "ANY(UNLESS_BEFORE(A, B, 4), ATMOST(1, UNLESS_BEFORE(C, B z, 3), 4)) WHERE A.k = B.k",
    "unless an unless before": "UNLESS(UNLESS_BEFORE(A, B, 3), UNLESS_BEFORE(C, B z, 3), 6) WHERE A.k = B.k AND C.k = A.k",
    "not an unless before": "NOT(UNLESS_BEFORE(C, A p, 3), SEQUENCE(A, UNLESS_BEFORE(B, C q, 2), 9)) "
    "WHERE C.k = A.k AND q.v = B.v",
    "cancel by an unless before": "CANCEL_WHEN(UNLESS_BEFORE(SEQUENCE(A, B, 8), C, 3), UNLESS_BEFORE(C p, A q, 3)) "
    "WHERE C.k = A.k AND p.v = B.v",
    "repeat": "REPEAT(A, 2, 5) WHERE A.v > 0",
    "repeat, by key": "REPEAT(A AS f, 2, 4, 6) WHERE CorrelationKey(k, EQUAL) "
    "OUTPUT count(f) AS n, sum(f.v) AS s, avg(f.v) AS m, "
    "min(f.v) AS lo, max(f.v) AS hi, first(f.v) AS a, last(f.v) AS z, collect(f.v) AS l, first(f.k) AS k, count(f.v) AS c",
    "repeat, by its run": "REPEAT(A AS f, 2, 6) AS r WHERE sum(f.v) > 3 AND first(f.v) <> last(f.v) AND r.Vs - r.root > 1 "
    "OUTPUT count(f) AS n, max(f.Vs) - min(f.Vs) AS span",
    "repeat, then another": "SEQUENCE(REPEAT(A AS f, 2, 5), B, 9) WHERE CorrelationKey(k, EQUAL) AND max(f.v) > B.v",
    "another, then repeat": "SEQUENCE(B, REPEAT(A AS f, 2, 3, 5) AS r, 9) WHERE r.Vs - B.Vs > 1 AND count(f) < 3 "
    "OUTPUT B.v AS b, collect(f.v) AS l",
    "at least and all of repeat": "ATLEAST(2, REPEAT(A AS f, 2, 4), B, ALL(REPEAT(C AS g, 1, 3), B d, 5), 7) "
    "WHERE count(f) = 2 AND min(g.v) >= 0 OUTPUT sum(f.v) AS f, B.v AS b, count(g) AS g",
    "any and at most of repeat": "ANY(REPEAT(A AS f, 2, 5), ATMOST(1, REPEAT(B AS g, 2, 5), C, 3)) "
    "OUTPUT count(f) AS f, count(g) AS g",
    "unless a repeat": "UNLESS(REPEAT(A AS f, 2, 4), REPEAT(B AS g, 2, 4), 2, 5) WHERE sum(g.v) > sum(f.v) OUTPUT count(f) AS n",
    "unless before a repeat": "UNLESS_BEFORE(REPEAT(A AS f, 2, 4), REPEAT(B AS g, 2, 4), 5) WHERE max(g.v) > min(f.v) "
    "OUTPUT last(f.v) AS v",
    "not a repeat": "NOT(REPEAT(C AS g, 2, 4), SEQUENCE(A, REPEAT(B AS f, 1, 3), 9)) WHERE max(g.v) > A.v OUTPUT count(f) AS n",
    "cancel a repeat": "CANCEL_WHEN(REPEAT(A AS f, 2, 5), REPEAT(C AS g, 1, 3)) WHERE CorrelationKey(k, EQUAL) "
    "OUTPUT sum(f.v) AS s",
    "output": "SEQUENCE(A x, ANY(B, C) AS s, 6) WHERE x.v + 1 > B.v OUTPUT x.v + C.v AS n, s.Vs - x.Vs AS gap, x.k AS k",
    "case and cast": "SEQUENCE(A, B, 6) WHERE CASE WHEN A.v > 1 THEN B.v > 1 WHEN A.v IS NULL THEN FALSE ELSE B.v < 2 END "
    "AND CAST(A.v AS double) < 3 OUTPUT CASE WHEN A.v > B.v THEN 'more' END AS c, CAST(B.v AS string) AS s",
    "a field of a sub-pattern": "SEQUENCE(A, ANY(B, C) AS s, 6) WHERE s.k = A.k AND s.v > A.v - 1 OUTPUT s.v AS v, s.k AS k",
    "a field of a sub-pattern, negated": "UNLESS(SEQUENCE(A, ANY(B, C) AS s, 6), ANY(A p, B q) AS n, 5) "
    "WHERE n.k = s.k AND n.v <> A.v",
    "a field of one event": "ATLEAST(2, NOT(C, SEQUENCE(A, UNLESS(B AS b, C AS z, 2) AS s, 6)), ANY(A p, B q) AS u, C d, 7) "
    "WHERE s.v > 0 AND u.v <> s.v AND C.k = s.k OUTPUT s.v AS s, u.v AS u",
    "fields of at most and at least": "SEQUENCE(ATMOST(2, A, B, 4) AS s, ATLEAST(1, C, ANY(A p, B q), 3) AS u, 9) "
    "WHERE s.k = u.k AND s.v < 3 OUTPUT s.v AS s, u.v AS u",
    "a field that some lack": "EVENT P WHEN ANY(A) OUTPUT A.v AS w, A.k AS k; "
    "EVENT E WHEN SEQUENCE(C, ANY(P, B, ALL(P x, B y, 4)) AS s, 6) AS whole WHERE s.w > 1 OUTPUT C.v AS v, s.Vs AS at",
    "slices": "UNLESS(A, B, 6) WHERE A.v = B.v OUTPUT A.v AS v @ [2, 12) # [3, 9)",
    "a constant that is every event's": "UNLESS(SEQUENCE(A, B, 6), C, 5) WHERE CorrelationKey(k, EQUAL) AND B.k = 'a'",
    "a constant that only the negated has": "UNLESS(ALL(A, B, 6), C, 5) WHERE CorrelationKey(k, EQUAL) AND C.k = 'a'",
    "a constant that few have": "SEQUENCE(A, ATLEAST(1, B, C, 4), 9) WHERE CorrelationKey(k, EQUAL) AND B.k IN ('a', 'b')",
    "definitions": "EVENT P WHEN SEQUENCE(A, B, 6) WHERE A.k = B.k OUTPUT A.k AS k, A.v AS v; "
    "EVENT E WHEN CANCEL_WHEN(UNLESS(P AS p, C, 1, 7), P AS q) WHERE p.k = C.k AND q.v = p.v",
    "definitions of all": "EVENT P WHEN ALL(A, B, 6); EVENT N WHEN UNLESS(C, A, 4) WHERE A.k = C.k; "
    "EVENT E WHEN NOT(N, SEQUENCE(P, P AS q, 9)) WHERE N.C_k = P.A_k AND q.A_k = P.A_k",
}  # fmt: skip
"""Patterns by what stands in what, with their conditions, or texts of several definitions."""

SETS = {name: text if text.startswith("EVENT") else f"EVENT E WHEN {text}" for name, text in PATTERNS.items()}
"""Texts whose matches are sets. Each operator stands in every other, also in what is negated, where that is legal."""

CHOICES = {
    text: f"EVENT E WHEN {text}"
    for text in (
        "SEQUENCE(A FIRST, B, 8)",
        "SEQUENCE(A LAST, B CONSUME, 8) WHERE A.k = B.k",
        "SEQUENCE(B FIRST CONSUME, A, 8)",
        "SEQUENCE(A LAST CONSUME, B CONSUME, 8) WHERE A.v < B.v",
        "SEQUENCE(A FIRST CONSUME, B LAST CONSUME, C CONSUME, 9) WHERE A.v <> C.v AND B.k = C.k",
        "SEQUENCE(A x CONSUME, A y, 6)",
        "SEQUENCE(A x FIRST CONSUME, A y CONSUME, 6) WHERE x.k = y.k",
        "SEQUENCE(A x LAST, A y, A z CONSUME, 6)",
        "ALL(A FIRST CONSUME, B LAST CONSUME, 7)",
        "ALL(A LAST, B FIRST CONSUME, C, 8) WHERE CorrelationKey(k, EQUAL)",
        "ATLEAST(2, A CONSUME, B, C FIRST CONSUME, 6)",
        "ATLEAST(2, A LAST CONSUME, B LAST CONSUME, C LAST CONSUME, 6) WHERE A.v = B.v",
        "ATLEAST(1, A CONSUME, B FIRST, 6)",
        "ATMOST(1, A CONSUME, B, 5) WHERE A.v <> B.v",
        "ATMOST(2, A p CONSUME, A q, B CONSUME, 5) WHERE CorrelationKey(k, EQUAL) AND p.v > 0",
        "SEQUENCE(ATMOST(1, A CONSUME, C, 3), B p FIRST, 9)",
        "SEQUENCE(A, B FIRST, C, 9) WHERE A.k = B.k AND A.k = C.k",
        "SEQUENCE(SEQUENCE(A FIRST CONSUME, B, 9), C, 9) WHERE A.k = C.k AND B.k = C.k",
        "ALL(A LAST, B, C FIRST, 9) WHERE A.k = B.k AND B.k = C.k",
        "NOT(C, SEQUENCE(A FIRST CONSUME, B, 8)) WHERE C.k = A.k",
        "UNLESS(SEQUENCE(A LAST CONSUME, B, 8), C, 1, 9) WHERE C.k = A.k",
        "UNLESS(A, SEQUENCE(B FIRST CONSUME, C CONSUME, 5), 6) WHERE A.k = B.k",
        "CANCEL_WHEN(ALL(A FIRST, B, 7), C)",
        "SEQUENCE(SEQUENCE(A, B, 4) s FIRST, C, 9)",
        "SEQUENCE(UNLESS(A, B, 3) FIRST CONSUME, C, 9) WHERE A.k = B.k",
        "SEQUENCE(A, ATLEAST(2, B, C FIRST, 4) s LAST, 9)",
        "REPEAT(A CONSUME, 2, 6)",
        "REPEAT(A AS f CONSUME, 2, 3, 6) WHERE CorrelationKey(k, EQUAL) AND f.v >= 0",
        "REPEAT(SEQUENCE(A, B, 4) AS s CONSUME, 2, 9) OUTPUT count(s) AS n, sum(A.v) AS a, last(s.root) AS r",
        "REPEAT(ANY(A, B) AS e, 2, 2, 4) WHERE A.v > 0 OUTPUT count(e) AS n, count(A.v) AS a, sum(B.v) AS b",
        "REPEAT(ANY(A, B) AS e CONSUME, 2, 5) WHERE e.v > 0 AND max(e.v) < 9 "
        "OUTPUT sum(e.v) AS s, first(e.k) AS k, count(e.v) AS n, last(e.v) AS z",
        "SEQUENCE(REPEAT(ANY(A, B) AS e CONSUME, 2, 9) AS r, C, 12) WHERE CorrelationKey(k, EQUAL) "
        "OUTPUT sum(e.v) AS s, C.v AS v",
        "ATMOST(1, REPEAT(SEQUENCE(A, B, 3) AS e, 1, 5), C, 4) WHERE CorrelationKey(k, EQUAL) OUTPUT count(e) AS n, C.v AS v",
        "REPEAT(UNLESS(A, B, 3), 2, 9) WHERE CorrelationKey(k, EQUAL)",
        "SEQUENCE(REPEAT(A AS f CONSUME, 2, 5) r FIRST CONSUME, B, 9) WHERE count(f) < 4",
        "ALL(REPEAT(A AS f, 2, 4) LAST, B CONSUME, 7)",
        "SEQUENCE(A FIRST, B p, B q LAST CONSUME, C, 9) WHERE p.v <> A.v AND q.k = C.k",
    )
}
"""Texts that select and consume."""
