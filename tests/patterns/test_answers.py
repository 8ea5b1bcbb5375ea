"""Worked examples of the CEDR language: inputs of a few events, with the answer and why it is that one.

Events are ``(instant, v)`` or ``(instant, v, k)``, one tick long; an answer is ``(start, end, fields...)``. The
rules of the language (streamq/testing/patterns/rules.py) give the same answers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.errors import StreamqWarning
from tests.patterns.pattern_cases import brute_force

SCHEMA = pa.schema({"start": pa.int64(), "end": pa.int64(), "v": pa.int64(), "k": pa.string()})
Events = list[tuple[Any, ...]]


def history(events: Events) -> pa.Table:
    rows = [dict(zip(("start", "v", "k"), (*e, "p")[:3], strict=True)) for e in events]
    return pa.Table.from_pylist([{**row, "end": row["start"] + 1} for row in rows], SCHEMA)


def answers(text: str, inputs: Mapping[str, Events]) -> dict[str, list[tuple[Any, ...]]]:
    """What streamq and the rules of the language give."""
    tables = {name: history(events) for name, events in inputs.items()}
    streams = {name: sq.intervals(table, start="start", end="end", name=name) for name, table in tables.items()}
    result = t.history(sq.cedr(text, **streams).to_arrow())
    judged = {
        "streamq": result.to_pylist(),
        "rules": brute_force(text, tables),
    }
    names = result.column_names
    return {who: sorted((tuple(row[n] for n in names) for row in rows), key=repr) for who, rows in judged.items()}


def check(text: str, inputs: Mapping[str, Events], expected: Events) -> None:
    wanted = sorted(expected, key=repr)
    assert answers(text, inputs) == {"streamq": wanted, "rules": wanted}


AB = " OUTPUT A.v AS a, B.v AS b"
ABC = " OUTPUT A.v AS a, B.v AS b, C.v AS c"

ORDERED = {
    # w = 5 allows 6 - 1; the lifetime [6, 1 + 5) is empty, so it is one chronon
    "the scope ends exactly at w": (
        "EVENT E WHEN SEQUENCE(A, B, 5)" + AB, {"A": [(1, 10)], "B": [(6, 20)]}, [(6, 7, 10, 20)]),
    # 7 - 1 > 5
    "a tick beyond w": ("EVENT E WHEN SEQUENCE(A, B, 5)" + AB, {"A": [(1, 10)], "B": [(7, 20)]}, []),
    # "before" is strict: A and B at 3 are no sequence, A at 3 and B at 4 are
    "simultaneous events": (
        "EVENT E WHEN SEQUENCE(A, B, 5)" + AB, {"A": [(3, 10)], "B": [(3, 20), (4, 21)]}, [(4, 8, 10, 21)]),
    # every pair, each with the end of its own first event
    "each with each": (
        "EVENT E WHEN SEQUENCE(A, B, 5)" + AB,
        {"A": [(1, 10), (2, 11)], "B": [(4, 20), (5, 21)]},
        [(4, 6, 10, 20), (5, 6, 10, 21), (4, 7, 11, 20), (5, 7, 11, 21)]),
    # two equal events are two events; they are not before each other
    "equal events": (
        "EVENT E WHEN SEQUENCE(A AS x, A AS y, 5) OUTPUT x.v AS x, y.v AS y",
        {"A": [(1, 10), (1, 10), (3, 11)]}, [(3, 6, 10, 11), (3, 6, 10, 11)]),
    # without OUTPUT: all fields behind their variables, and the root
    "all fields": (
        "EVENT E WHEN SEQUENCE(A AS x, B, 5)", {"A": [(1, 10, "p")], "B": [(2, 20, "q")]}, [(2, 6, 10, "p", 20, "q", 1)]),
    # C is too late for both; A and B are in no order of the text
    "at least two, in any order": (
        "EVENT E WHEN ATLEAST(2, A, B, C, 5)" + ABC,
        {"A": [(2, 10)], "B": [(1, 20)], "C": [(9, 30)]}, [(2, 6, 10, 20, None)]),
    # A.v = B.v fails for the pair of A and B, and says nothing of those that lack one of them
    "a condition on an absent event": (
        "EVENT E WHEN ATLEAST(2, A, B, C, 9) WHERE A.v = B.v" + ABC,
        {"A": [(1, 10)], "B": [(2, 20)], "C": [(3, 30)]}, [(3, 10, 10, None, 30), (3, 11, None, 20, 30)]),
    # nor does IS NULL: a field of an absent event is NULL only in what comes out
    "is null of an absent event": (
        "EVENT E WHEN ANY(A, B) WHERE A.v IS NULL" + AB,
        {"A": [(1, 10), (2, None)], "B": [(3, 20)]}, [(2, 3, None, None), (3, 4, None, 20)]),
    # inputs are distinct: two As are no two of A and B
    "two events of one input": ("EVENT E WHEN ATLEAST(2, A, B, 5)" + AB, {"A": [(1, 10), (2, 11)], "B": []}, []),
    # [4, 2 + 5)
    "all": ("EVENT E WHEN ALL(A, B, 5)" + AB, {"A": [(4, 10)], "B": [(2, 20)]}, [(4, 7, 10, 20)]),
    # ATLEAST(1, ..., 6) lives for its scope, ANY for one tick
    "at least one": ("EVENT E WHEN ATLEAST(1, A, B, 6)" + AB, {"A": [(4, 10)], "B": []}, [(4, 10, 10, None)]),
    "any": ("EVENT E WHEN ANY(A, B)" + AB, {"A": [(4, 10)], "B": [(4, 20)]}, [(4, 5, 10, None), (4, 5, None, 20)]),
    # the sequence that is absent has no field and no start: its condition says nothing of A and C
    "an absent sub-pattern": (
        "EVENT E WHEN ATLEAST(2, SEQUENCE(A, B, 5) AS s, C, A AS d, 9) WHERE s.Vs > 9 OUTPUT B.v AS b, C.v AS c, d.v AS d",
        {"A": [(1, 10)], "B": [(2, 20)], "C": [(3, 30)]}, [(3, 10, None, 30, 10)]),
    # a composite stands at its own Vs, 3: so it is before 5 by 2, though it began at 1
    "a sub-pattern's start": (
        "EVENT E WHEN SEQUENCE(SEQUENCE(A, B, 9) AS s, C, 2) WHERE C.Vs - s.Vs = 2 AND s.root = 1 OUTPUT s.Vs AS at, C.root AS r",
        {"A": [(1, 10), (2, 11)], "B": [(3, 20)], "C": [(5, 30)]}, [(5, 6, 3, 5)]),
    # one of A and B is always absent, and s never: it filters
    "the start of any of two": (
        "EVENT E WHEN SEQUENCE(ANY(A, B) AS s, C, 9) WHERE C.Vs - s.Vs > 3" + ABC,
        {"A": [(1, 10), (4, 11)], "B": [(2, 20)], "C": [(5, 30)]}, [(5, 10, 10, None, 30)]),
    # s.v is B's, or C's; the sum tells which
    "a field of any of two": (
        "EVENT E WHEN SEQUENCE(A, ANY(B, C) AS s, 9) WHERE s.k = A.k AND s.v < 35 OUTPUT A.v AS a, s.v AS v",
        {"A": [(1, 10, "p")], "B": [(2, 20, "p"), (3, 21, "q")], "C": [(4, 30, "p"), (5, 40, "p")]},
        [(2, 10, 10, 20), (4, 10, 10, 30)]),
    # s.w is P's: a condition on it says nothing of C, and there it is NULL
    "a field that one of two has": (
        "EVENT P WHEN ANY(B) OUTPUT B.v AS w; "
        "EVENT E WHEN SEQUENCE(A, ANY(P, C) AS s, 9) WHERE s.w > 20 OUTPUT A.v AS a, s.w AS w, s.Vs AS at",
        {"A": [(1, 10)], "B": [(2, 20), (3, 21)], "C": [(4, 30)]}, [(3, 10, 10, 21, 3), (4, 10, 10, None, 4)]),
    # it is NULL where B's is: then C is not taken
    "a field that is NULL": (
        "EVENT E WHEN ANY(A, B) AS s WHERE s.v IS NULL OR s.v > 20 OUTPUT s.v AS v",
        {"A": [(1, 10), (2, None)], "B": [(3, 20), (4, 21)]}, [(2, 3, None), (4, 5, 21)]),
    # what holds of s holds of its matches: of A at 1 and 2, whose counts are 1 and 2, the first is left out for v only
    "a field of at most": (
        "EVENT E WHEN ATMOST(1, A, 3) AS s WHERE s.v > 10 OUTPUT s.v AS v",
        {"A": [(1, 10), (2, 11), (7, 12)]}, [(7, 10, 12)]),
    "the whole's start": (
        "EVENT E WHEN SEQUENCE(A, B, 9) AS s WHERE s.Vs > 3" + AB,
        {"A": [(1, 10)], "B": [(3, 20), (4, 21)]}, [(4, 10, 10, 21)]),
}  # fmt: skip

AT_MOST = {
    # (e - 3, e]: 1 is alone; at 3 there are 1 and 3; at 4 there are 3 and 4, 1 being out exactly; at 5 there are three
    "at most two": (
        "EVENT E WHEN ATMOST(2, A, B, 3)" + AB,
        {"A": [(1, 10), (4, 11)], "B": [(3, 20), (5, 21)]}, [(1, 4, 10, None), (3, 6, None, 20), (4, 7, 11, None)]),
    # those of one instant count for each other
    "at most one, at once": ("EVENT E WHEN ATMOST(1, A, B, 3)" + AB, {"A": [(1, 10), (9, 11)], "B": [(1, 20)]},
                             [(9, 12, 11, None)]),
    # two that are equal are two
    "at most one of equals": ("EVENT E WHEN ATMOST(1, A, 3) OUTPUT A.v", {"A": [(1, 10), (1, 10)]}, []),
    # B of q does not count for A of p; NULL counts for nothing
    "at most one of a key": (
        "EVENT E WHEN ATMOST(1, A, B, 9) WHERE CorrelationKey(k, EQUAL)" + AB,
        {"A": [(1, 10, "p"), (4, 11, None), (5, 12, None)], "B": [(2, 20, "q"), (3, 21, "p")]},
        [(1, 10, 10, None), (2, 11, None, 20), (4, 13, 11, None), (5, 14, 12, None)]),
    # B at 2 is 5 more than A at 1, and counts; so at 2 there are two
    "at most one by a condition": (
        "EVENT E WHEN ATMOST(1, A, B, 9) WHERE B.v - A.v = 5" + AB,
        {"A": [(1, 10)], "B": [(2, 15)]}, [(1, 10, 10, None)]),
    "what does not satisfy it does not count": (
        "EVENT E WHEN ATMOST(1, A, B, 9) WHERE B.v - A.v = 5 AND B.v > 3" + AB,
        {"A": [(1, 10)], "B": [(2, 16), (0, 2)]}, [(1, 10, 10, None), (2, 11, None, 16)]),
}  # fmt: skip

REPEATED = {
    # (6 - 5, 6] has 2, 4, 6: with each event from the second on a run ends; 12 is alone
    "runs of two": (
        "EVENT E WHEN REPEAT(A AS f, 2, 5) OUTPUT collect(f.v) AS l",
        {"A": [(2, 10), (4, 11), (6, 12), (12, 13)]}, [(4, 7, [10, 11]), (6, 7, [10, 11, 12])]),
    # just w apart they are in no run
    "a run of w": ("EVENT E WHEN REPEAT(A AS f, 2, 5) OUTPUT count(f) AS n", {"A": [(1, 10), (6, 11), (10, 12)]}, [(10, 11, 2)]),
    "runs of two at most": (
        "EVENT E WHEN REPEAT(A AS f, 1, 2, 5) OUTPUT count(f) AS n", {"A": [(1, 10), (2, 11), (3, 12)]}, [(1, 6, 1), (2, 6, 2)]),
    # of one instant they go by their payload, and each is the last of its own run
    "at once": (
        "EVENT E WHEN REPEAT(A AS f, 1, 5) OUTPUT collect(f.v) AS l",
        {"A": [(1, 11), (1, 10)]}, [(1, 6, [10]), (1, 6, [10, 11])]),
    "equal events repeat": ("EVENT E WHEN REPEAT(A AS f, 2, 5) OUTPUT count(f) AS n", {"A": [(1, 10), (1, 10)]}, [(1, 6, 2)]),
    # a NULL is no value, but an event
    "of nothing": (
        "EVENT E WHEN REPEAT(A AS f, 2, 5) OUTPUT count(f) AS n, count(f.v) AS c, sum(f.v) AS s, first(f.v) AS a, "
        "collect(f.v) AS l",
        {"A": [(1, None), (2, None)]}, [(2, 6, 2, 0, None, None, [])]),
    # the condition on each event comes before the run, that on the run behind it
    "conditions on events and on the run": (
        "EVENT E WHEN REPEAT(A AS f, 2, 9) WHERE f.v > 0 AND sum(f.v) > 25 OUTPUT count(f) AS n",
        {"A": [(1, 10), (2, -5), (3, 11), (4, 12)]}, [(4, 10, 3)]),
    # a key of NULL is equal to nothing
    "runs of a key": (
        "EVENT E WHEN REPEAT(A AS f, 1, 9) WHERE CorrelationKey(k, EQUAL) OUTPUT collect(f.v) AS l",
        {"A": [(1, 10, "p"), (2, 11, "q"), (3, 12, None), (4, 13, "p")]}, [(1, 10, [10]), (2, 11, [11]), (4, 10, [10, 13])]),
    # an event that is A or B; of an absent one there is no value
    "runs of two types": (
        "EVENT E WHEN REPEAT(ANY(A, B) AS e, 2, 5) OUTPUT count(e) AS n, count(A.v) AS a, sum(B.v) AS b, collect(e.Vs) AS at",
        {"A": [(1, 10), (4, 11)], "B": [(3, 20)]}, [(3, 6, 2, 1, 20, [1, 3]), (4, 6, 3, 2, 20, [1, 3, 4])]),
    "runs of a definition": (
        "EVENT P WHEN SEQUENCE(A, B, 4) OUTPUT A.v + B.v AS v; "
        "EVENT E WHEN REPEAT(P AS p, 2, 9) OUTPUT count(p) AS n, max(p.v) AS v",
        {"A": [(1, 10), (4, 11)], "B": [(3, 20), (6, 21)]}, [(6, 12, 2, 32)]),
    # the second of the run is at 3: C at 5 follows it by less than 4
    "unless, from the second of a run": (
        "EVENT E WHEN UNLESS(REPEAT(A AS f, 2, 2, 4), C, 2, 4) OUTPUT sum(f.v) AS s",
        {"A": [(1, 1), (3, 2), (6, 4)], "C": [(5, 30), (10, 31)]}, [(6, 10, 6)]),
}  # fmt: skip

CONSUMED = {
    # the run of the third is gone, so that of the sixth is the next
    "three of six, consumed": (
        "EVENT E WHEN REPEAT(A AS f CONSUME, 3, 9) OUTPUT sum(f.v) AS s",
        {"A": [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)]}, [(3, 10, 6), (6, 13, 15)]),
    # three failures, then a success, within 4 of the third
    "three failures and a success": (
        "EVENT E WHEN SEQUENCE(REPEAT(A AS f CONSUME, 3, 5) AS r, B, 4) WHERE CorrelationKey(k, EQUAL) "
        "OUTPUT B.k AS k, count(f) AS n, r.root AS since, first(f.v) AS a",
        {"A": [(1, 10, "p"), (2, 11, "p"), (3, 12, "q"), (4, 13, "p"), (5, 14, "p")], "B": [(6, 20, "p"), (7, 21, "q")]},
        [(6, 8, "p", 3, 1, 10)]),
}  # fmt: skip
"""What consumes, of which there are no set definitions."""

NEGATED = {
    # the scope of A at 1 is (1, 6)
    "unless: at the match": ("EVENT E WHEN UNLESS(A, B, 5) OUTPUT A.v", {"A": [(1, 10)], "B": [(1, 20)]}, [(1, 6, 10)]),
    "unless: a tick later": ("EVENT E WHEN UNLESS(A, B, 5) OUTPUT A.v", {"A": [(1, 10)], "B": [(2, 20)]}, []),
    "unless: the last tick": ("EVENT E WHEN UNLESS(A, B, 5) OUTPUT A.v", {"A": [(1, 10)], "B": [(5, 20)]}, []),
    "unless: at w": ("EVENT E WHEN UNLESS(A, B, 5) OUTPUT A.v", {"A": [(1, 10)], "B": [(6, 20)]}, [(1, 6, 10)]),
    # (1, 2) has no instant
    "unless: an empty scope": ("EVENT E WHEN UNLESS(A, B, 1) OUTPUT A.v", {"A": [(1, 10)], "B": [(2, 20)]}, [(1, 2, 10)]),
    # from A at 1 the scope is (1, 5): C at 2 ends what B at 4 would complete; the match of B at 5 has its first at 3
    "unless, from the first contributor": (
        "EVENT E WHEN UNLESS(SEQUENCE(A, B, 2), C, 1, 4)" + AB,
        {"A": [(1, 10), (3, 11)], "B": [(3, 20), (5, 21)], "C": [(2, 30), (7, 31)]}, [(5, 9, 11, 21)]),
    # from the second it is the scope of B's own
    "unless, from the second contributor": (
        "EVENT E WHEN UNLESS(SEQUENCE(A, B, 9), C, 2, 4)" + AB,
        {"A": [(1, 10)], "B": [(3, 20), (6, 21)], "C": [(5, 30), (10, 31)]}, [(6, 10, 10, 21)]),
    # (1, 3) is over when B at 8 completes the match, whose lifetime is its own
    "unless, from a scope that is over": (
        "EVENT E WHEN UNLESS(SEQUENCE(A, B, 9), C, 1, 2)" + AB,
        {"A": [(1, 10)], "B": [(8, 20)], "C": [(3, 30), (9, 31)]}, [(8, 10, 10, 20)]),
    # the scope of A at 9 is [4, 9): B at 4 is in it, B at 3 is not, nor is B at 9
    "unless before: at its own start": (
        "EVENT E WHEN UNLESS_BEFORE(A, B, 5) OUTPUT A.v", {"A": [(9, 10)], "B": [(9, 20)]}, [(9, 10, 10)]),
    "unless before: a tick before": (
        "EVENT E WHEN UNLESS_BEFORE(A, B, 5) OUTPUT A.v", {"A": [(9, 10)], "B": [(8, 20)]}, []),
    "unless before: at w": ("EVENT E WHEN UNLESS_BEFORE(A, B, 5) OUTPUT A.v", {"A": [(9, 10)], "B": [(4, 20)]}, []),
    "unless before: a tick beyond w": (
        "EVENT E WHEN UNLESS_BEFORE(A, B, 5) OUTPUT A.v", {"A": [(9, 10)], "B": [(3, 20)]}, [(9, 10, 10)]),
    # a match stands at its own start, 5: what counts are C in [3, 5), whatever its root
    "unless before a sequence": (
        "EVENT E WHEN UNLESS_BEFORE(SEQUENCE(A, B, 9), C, 2)" + AB,
        {"A": [(1, 10)], "B": [(5, 20), (8, 21)], "C": [(2, 30), (6, 31)]}, [(5, 6, 10, 20)]),
    # B of q is not before A of p, and nothing is before a key of NULL
    "unless before, by key": (
        "EVENT E WHEN UNLESS_BEFORE(A, B, 5) WHERE CorrelationKey(k, EQUAL) OUTPUT A.v",
        {"A": [(5, 10, "p"), (6, 11, "q"), (6, 12, None)], "B": [(4, 20, "q"), (4, 21, None)]}, [(5, 6, 10), (6, 7, 12)]),
    # strictly between: not at 1, not at 5
    "not: at either end": (
        "EVENT E WHEN NOT(C, SEQUENCE(A, B, 9))" + AB,
        {"A": [(1, 10)], "B": [(5, 20)], "C": [(1, 30), (5, 31), (6, 32)]}, [(5, 10, 10, 20)]),
    "not: between": ("EVENT E WHEN NOT(C, SEQUENCE(A, B, 9))" + AB, {"A": [(1, 10)], "B": [(5, 20)], "C": [(2, 30)]}, []),
    # whichever comes first: B at 1, A at 4, and C at 3 is between
    "not, in all": ("EVENT E WHEN NOT(C, ALL(A, B, 9))" + AB, {"A": [(4, 10), (2, 11)], "B": [(1, 20)], "C": [(3, 30)]},
                    [(2, 10, 11, 20)]),
    # its first contributor is the sequence, at 3: D at 2 is before it
    "not, over what began before": (
        "EVENT E WHEN NOT(D, SEQUENCE(SEQUENCE(A, B, 9), C, 9))" + ABC,
        {"A": [(1, 10)], "B": [(3, 20)], "C": [(6, 30)], "D": [(2, 40)]}, [(6, 12, 10, 20, 30)]),
    # its root is A at 1: D at 2 cancels it; D at 1 and at 6 would not
    "cancelled where it began": (
        "EVENT E WHEN CANCEL_WHEN(SEQUENCE(SEQUENCE(A, B, 9), C, 9), D)" + ABC,
        {"A": [(1, 10), (2, 11)], "B": [(3, 20)], "C": [(6, 30)], "D": [(2, 40), (6, 41)]}, [(6, 12, 11, 20, 30)]),
    # C and D make an event at 2, between 1 and 5, though it began before A
    "a sequence that is negated": (
        "EVENT E WHEN NOT(SEQUENCE(C, D, 3), SEQUENCE(A, B, 9))" + AB,
        {"A": [(1, 10), (2, 11)], "B": [(5, 20)], "C": [(0, 30)], "D": [(2, 40)]}, [(5, 11, 11, 20)]),
    # UNLESS stands at A's start: C at 2 follows it, long before 6, when it is known
    "unless, followed": (
        "EVENT E WHEN SEQUENCE(UNLESS(A, B, 5), C, 9) OUTPUT A.v AS a, C.v AS c",
        {"A": [(1, 10), (3, 11)], "B": [(7, 20)], "C": [(2, 30), (5, 31)]}, [(2, 10, 10, 30), (5, 10, 10, 31)]),
    # B at 2 is ended by C at 3, so nothing ends A; the B at 9 is not
    "unless in unless": (
        "EVENT E WHEN UNLESS(A, UNLESS(B, C, 3), 6) OUTPUT A.v",
        {"A": [(1, 10), (8, 11)], "B": [(2, 20), (9, 21)], "C": [(3, 30)]}, [(1, 7, 10)]),
    # two that are equal end it as one does
    "negated twice": ("EVENT E WHEN UNLESS(A, B, 5) OUTPUT A.v", {"A": [(1, 10), (1, 10), (9, 11)], "B": [(2, 20), (2, 20)]},
                      [(9, 14, 11)]),
}  # fmt: skip

CONDITIONS = {
    # the first branch that is true counts; where none is, ELSE, or NULL
    "case": (
        "EVENT E WHEN ANY(A) OUTPUT CASE WHEN A.v > 10 THEN 'high' WHEN A.v > 5 THEN 'middle' ELSE A.k END AS c, "
        "CASE WHEN A.v > 5 THEN A.v END AS v",
        {"A": [(1, 11, "p"), (2, 6, "q"), (3, 5, "r"), (4, None, "s")]},
        [(1, 2, "high", 11), (2, 3, "middle", 6), (3, 4, "r", None), (4, 5, "s", None)]),
    "cast": (
        "EVENT E WHEN SEQUENCE(A, B, 9) WHERE CAST(A.v AS string) = B.k OUTPUT CAST(A.v AS double) AS d",
        {"A": [(1, 7), (2, None)], "B": [(3, 1, "7"), (4, 1, "8")]}, [(3, 10, 7.0)]),
    # NULL equals nothing, NULL neither
    "keys of NULL": (
        "EVENT E WHEN SEQUENCE(A, B, 9) WHERE CorrelationKey(k, EQUAL)" + AB,
        {"A": [(1, 10, None), (2, 11, "p")], "B": [(3, 20, None), (4, 21, "p")]}, [(4, 11, 11, 21)]),
    # so a key of NULL is ended by nothing
    "negated keys of NULL": (
        "EVENT E WHEN UNLESS(A, B, 5) WHERE CorrelationKey(k, EQUAL) OUTPUT A.v",
        {"A": [(1, 10, None), (1, 11, "p"), (1, 12, "q")], "B": [(2, 20, None), (3, 21, "p")]}, [(1, 6, 10), (1, 6, 12)]),
    # nor is NULL other than anything
    "unique keys": (
        "EVENT E WHEN ALL(A, B, 9) WHERE CorrelationKey(k, UNIQUE)" + AB,
        {"A": [(1, 10, "p")], "B": [(2, 20, "p"), (3, 21, "q"), (4, 22, None)]}, [(3, 10, 10, 21)]),
    # B of q is not of p, so it ends nothing; A of q is none
    "a key of all": (
        "EVENT E WHEN UNLESS(A, B, 5) WHERE [k EQUAL 'p'] OUTPUT A.v",
        {"A": [(1, 10, "p"), (1, 11, "q"), (8, 12, "p")], "B": [(2, 20, "q"), (9, 21, "p")]}, [(1, 6, 10)]),
    # inside the test: B.v > A.v ends 10 and not 30
    "injected": (
        "EVENT E WHEN UNLESS(A, B, 5) WHERE B.v > A.v OUTPUT A.v", {"A": [(1, 10), (1, 30)], "B": [(2, 20)]}, [(1, 6, 30)]),
    "injected, on the negated alone": (
        "EVENT E WHEN UNLESS(A, B, 5) WHERE B.v = 7 OUTPUT A.v", {"A": [(1, 10), (8, 11)], "B": [(2, 20), (9, 7)]}, [(1, 6, 10)]),
    # what is unknown does not end: NULL > 10
    "injected, unknown": ("EVENT E WHEN UNLESS(A, B, 5) WHERE B.v > A.v OUTPUT A.v", {"A": [(1, 10)], "B": [(2, None)]},
                          [(1, 6, 10)]),
    "injected, either or": (
        "EVENT E WHEN UNLESS(A, B, 5) WHERE {B.v = A.v OR B.k = 'x'} OUTPUT A.v",
        {"A": [(1, 10), (1, 11), (8, 12)], "B": [(2, 10, "p"), (9, 0, "x")]}, [(1, 6, 11)]),
    # the C of q does not end B of p, which therefore ends A of p; for q, C ends B
    "injected in a nested negation": (
        "EVENT E WHEN UNLESS(A, UNLESS(B, C, 3), 6) WHERE A.k = B.k AND B.k = C.k OUTPUT A.v",
        {"A": [(1, 10, "p"), (1, 11, "q")], "B": [(2, 20, "p"), (2, 21, "q")], "C": [(3, 30, "q")]}, [(1, 7, 11)]),
    # A.k = B.k filters; C.k = A.k is inside; D.k = B.k is inside another
    "injected twice": (
        "EVENT E WHEN UNLESS(NOT(C, SEQUENCE(A, B, 9)), D, 3) WHERE A.k = B.k AND C.k = A.k AND D.k = B.k" + AB,
        {"A": [(1, 10, "p"), (1, 11, "q"), (1, 12, "r")], "B": [(5, 20, "p"), (5, 21, "q"), (5, 22, "r")],
         "C": [(3, 30, "q")], "D": [(6, 40, "r")]}, [(5, 8, 10, 20)]),
    # A.v = C.v says nothing where the match has no A, so any C ends that one
    "injected, on an absent event": (
        "EVENT E WHEN UNLESS(ANY(A, B), C, 5) WHERE A.v = C.v" + AB,
        {"A": [(1, 10)], "B": [(1, 20)], "C": [(2, 30)]}, [(1, 6, 10, None)]),
    # s is what is negated
    "injected, by a sub-pattern's start": (
        "EVENT E WHEN NOT(SEQUENCE(C, D, 9) AS s, SEQUENCE(A, B, 9)) WHERE s.Vs - A.Vs < 3 AND s.root > A.Vs" + AB,
        {"A": [(1, 10), (2, 11)], "B": [(8, 20)], "C": [(2, 30)], "D": [(3, 40)]}, [(8, 11, 11, 20)]),
    # no variable, so no negation: nothing matches, and everything does
    "never": ("EVENT E WHEN NOT(C, SEQUENCE(A, B, 9)) WHERE 1 = 2" + AB, {"A": [(1, 10)], "B": [(2, 20)], "C": []}, []),
    "never any": ("EVENT E WHEN ANY(A, B) WHERE FALSE" + AB, {"A": [(1, 10)], "B": [(2, 20)]}, []),
    "ever": (
        "EVENT E WHEN UNLESS(A, B, 5) WHERE 1 = 1 OUTPUT A.v", {"A": [(1, 10), (8, 11)], "B": [(2, 20)]}, [(8, 13, 11)]),
}  # fmt: skip

PAIR = "EVENT Pair WHEN SEQUENCE(A, B, 9) WHERE A.k = B.k"

DEFINITIONS = {
    # Pair stands at 3 and 5; [5, 7) of the second, from A at 2, is that of its own scope
    "a definition is a type": (
        PAIR + " OUTPUT A.v + B.v AS sum; EVENT E WHEN SEQUENCE(Pair AS p, Pair AS q, 4) OUTPUT p.sum AS p, q.sum AS q",
        {"A": [(1, 10, "p"), (2, 11, "q")], "B": [(3, 20, "p"), (5, 21, "q")]}, [(5, 7, 30, 32)]),
    # its fields are those of its result; the root of E is that of Pair
    "a definition without OUTPUT": (
        PAIR + "; EVENT E WHEN ANY(Pair)", {"A": [(1, 10)], "B": [(3, 20)]}, [(3, 4, 10, "p", 20, "p", 1, 1)]),
    # Pair began at 1, so C at 2 cancels it
    "a definition's root": (
        PAIR + " OUTPUT A.v AS a; EVENT E WHEN ANY(CANCEL_WHEN(Pair, C)) OUTPUT Pair.a AS a, Pair.root AS root",
        {"A": [(1, 10), (2, 11)], "B": [(4, 20)], "C": [(2, 30)]}, [(4, 5, 11, 2)]),
    # its contributors are A and B: from A at 1 the scope (1, 4) has C at 2, from A at 3 the scope (3, 6) has none
    "a definition's contributors": (
        PAIR + " OUTPUT A.v AS a; EVENT E WHEN UNLESS(Pair, C, 1, 3) OUTPUT Pair.a AS a",
        {"A": [(1, 10, "p"), (3, 11, "q")], "B": [(5, 20, "p"), (5, 21, "q")], "C": [(2, 30), (6, 31)]}, [(5, 8, 11)]),
    # from B at 3 the scope (3, 5), from B at 6 (6, 8); so it is for a definition of a definition
    "a definition's last contributor": (
        PAIR + "; EVENT Same WHEN Pair; EVENT E WHEN UNLESS(Same, C, 2, 2) OUTPUT Same.Pair_A_v AS a",
        {"A": [(1, 10, "p"), (3, 11, "q")], "B": [(3, 20, "p"), (6, 21, "q")], "C": [(4, 30), (8, 31)]}, [(6, 8, 11)]),
    # a definition that is negated
    "two definitions": (
        PAIR + "; EVENT Lone WHEN UNLESS(C, Pair, 5) WHERE C.k = Pair.A_k OUTPUT C.v; EVENT E WHEN SEQUENCE(A, Lone, 9) "
        "OUTPUT A.v AS a, Lone.v AS c", {"A": [(1, 10)], "B": [(4, 20)], "C": [(2, 30), (3, 31, "q")]}, [(3, 10, 10, 31)]),
    # matches at 3 and 5, [3, 9) and [5, 9)
    "a slice of occurrence": (
        "EVENT E WHEN SEQUENCE(A, B, 9) OUTPUT B.v AS b @ [3, 5)", {"A": [(0, 10)], "B": [(3, 20), (5, 21)]}, [(3, 9, 20)]),
    "a slice of validity": (
        "EVENT E WHEN SEQUENCE(A, B, 9) OUTPUT B.v AS b # [4, 6)",
        {"A": [(0, 10)], "B": [(3, 20), (5, 21), (6, 22)]}, [(4, 6, 20), (5, 6, 21)]),
    # what is cut stands where it is cut, at 4: C at 4 does not follow it
    "a cut definition": (
        "EVENT P WHEN SEQUENCE(A, B, 9) OUTPUT B.v AS b # [4, ); EVENT E WHEN SEQUENCE(P, C, 9) OUTPUT P.b AS b, C.v AS c",
        {"A": [(0, 10)], "B": [(3, 20)], "C": [(4, 30), (5, 31)]}, [(5, 13, 20, 31)]),
    # though it stands at 8 it began at 1, as did its contributor: C at 3 is in between, and in (1, 6)
    "a cut definition is cancelled": (
        "EVENT P WHEN UNLESS(A, B, 10) OUTPUT A.v AS a # [8, ); EVENT E WHEN ANY(CANCEL_WHEN(P, C)) OUTPUT P.a AS a",
        {"A": [(1, 10), (4, 11)], "B": [], "C": [(3, 30)]}, [(8, 9, 11)]),
    "a cut definition's contributor": (
        "EVENT P WHEN UNLESS(A, B, 10) OUTPUT A.v AS a # [8, ); EVENT E WHEN UNLESS(P, C, 1, 5) OUTPUT P.a AS a",
        {"A": [(1, 10), (4, 11)], "B": [], "C": [(3, 30)]}, [(8, 13, 11)]),
}  # fmt: skip

CASES = {**ORDERED, **AT_MOST, **REPEATED, **CONSUMED, **NEGATED, **CONDITIONS, **DEFINITIONS}


@pytest.mark.parametrize("name", CASES)
def test_answer(name: str) -> None:
    check(*CASES[name])


def test_a_primitive_is_never_cancelled() -> None:
    with pytest.warns(StreamqWarning, match="CANCEL_WHEN over the events of a type, here A, cancels none"):
        check("EVENT E WHEN CANCEL_WHEN(A, B) OUTPUT A.v", {"A": [(3, 10)], "B": [(2, 20), (3, 21)]}, [(3, 4, 10)])


def test_a_function_of_ones_own() -> None:
    @sq.udf(returns="bigint", name="tests_patterns_tripled")
    def tripled(v: int) -> int:
        return 3 * v

    streams = {
        "A": sq.events([(1, 2, {"v": 2})], schema={"v": "bigint"}, name="A"),
        "B": sq.events([(2, 3, {"v": 5}), (3, 4, {"v": 6})], schema={"v": "bigint"}, name="B"),
    }
    # 6 = 3 * 2, and 5 is not; inside a negation B at 3 ends A, and B at 2 does not
    matches = sq.cedr(
        "EVENT E WHEN SEQUENCE(A, B, 9) WHERE tests_patterns_tripled(A.v) = B.v OUTPUT B.v AS b", **streams
    )
    assert t.history(matches.to_arrow()).to_pylist() == [{"start": 3, "end": 10, "b": 6}]
    for scope, left in ((2, 1), (3, 0)):
        text = f"EVENT E WHEN UNLESS(A, B, {scope}) WHERE tests_patterns_tripled(A.v) = B.v OUTPUT A.v"
        assert sq.cedr(text, **streams).to_arrow().num_rows == left


PAPER = """EVENT CIDR07_Example
WHEN UNLESS(SEQUENCE(INSTALL x, SHUTDOWN AS y, 12 hours), RESTART AS z, 5 minutes)
WHERE {x.Machine_Id = y.Machine_Id} AND {x.Machine_Id = z.Machine_Id}
"""
"""The running example of "Consistent Streaming Through Time" (CIDR 2007), section 3.1, as it stands there."""


def test_the_running_example_of_the_paper() -> None:
    def at(hour: int, minute: int = 0, microsecond: int = 0) -> dt.datetime:
        return dt.datetime(2007, 1, 7, hour, minute, 0, microsecond, tzinfo=dt.UTC)

    def machines(name: str, *rows: tuple[dt.datetime, str]) -> sq.Stream:
        table = pa.table({"at": [time for time, _ in rows], "Machine_Id": [machine for _, machine in rows]})
        return sq.points(table, time="at", name=name)

    install = machines("INSTALL", *((at(8), f"m{i}") for i in range(1, 6)))
    shutdown = machines(
        "SHUTDOWN",
        (at(9), "m1"), (at(9), "m2"), (at(20), "m3"), (at(20, 0, 1), "m4"), (at(10), "m5"), (at(10), "m6"),
    )  # fmt: skip
    restart = machines("RESTART", (at(9, 4), "m2"), (at(20, 5), "m3"), (at(10, 1), "m1"), (at(10, 1), "m6"))
    result = sq.cedr(PAPER, INSTALL=install, SHUTDOWN=shutdown, RESTART=restart).to_arrow()
    matches = {(row["x_Machine_Id"], row["y_Machine_Id"], row["start"], row["end"]) for row in result.to_pylist()}
    assert matches == {
        # nothing restarts it within five minutes
        ("m1", "m1", at(9), at(9, 5)),
        # m2 is restarted after four minutes; m3 after exactly 12 hours and exactly five minutes: the one is in, the other out
        ("m3", "m3", at(20), at(20, 5)),
        # m4 is a microsecond too late; of m5 none restarts, only others do; m6 was not installed
        ("m5", "m5", at(10), at(10, 5)),
    }
    assert result.num_rows == 3
