"""Errors of the CEDR language, each as ``tests/golden/cedr_errors.txt`` has it: the text, then the whole message.

``STREAMQ_GOLDEN=1 pytest tests/patterns/test_errors.py`` writes the file anew; read the difference before you keep it.
"""

from __future__ import annotations

import datetime as dt
import functools
import os
import pickle
import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import streamq as sq
from streamq.errors import CedrError, PlanError, StreamqError, StreamqWarning
from streamq.patterns.parser import parse
from streamq.patterns.pattern_text import render, shown_duration
from streamq.patterns.pattern_tree import parts_of
from streamq.patterns.syntax import Program
from tests.drawn.programs import programs
from tests.each import each

GOLDEN = Path(__file__).parents[1] / "golden" / "cedr_errors.txt"

WHERE = "EVENT E\nWHEN A AS x\nWHERE "


def when(pattern: str) -> str:
    return f"EVENT E\nWHEN {pattern}"


CASES = {
    "no definition": "",
    "a misspelt first keyword": "EVNT E WHEN A",
    "a definition without a name": "EVENT WHEN A",
    "a definition without a pattern": "EVENT E",
    "a definition that uses itself": "EVENT E WHEN SEQUENCE(A, E, 5)",
    "a definition used too early": "EVENT D WHEN SEQUENCE(A, E, 5); EVENT E WHEN A",
    "two signs of equality": WHERE + "x.a == 1",
    "variables that differ in case": when("SEQUENCE(A AS x, B AS X, 5)"),
    "a misspelt operator": when("SEQUENC(A, B, 5 minutes)"),
    "an operator that there is not": when("FOLLOWS(A, B, 5 minutes)"),
    "a misspelt operator with a count": when("ATLEST(2, A, B, 5)"),
    "a misspelt cancel_when": when("CANCELWHEN(A, B)"),
    "a misspelt clause is taken for a variable": when("A\nWHER x.a = 1"),
    "a misspelt selection": when("SEQUENCE(A AS x FRIST, B, 5 minutes)"),
    "a reserved word as a type": when("SEQUENCE(A, where, 5 minutes)"),
    "an open operator": when("SEQUENCE(A,"),
    "an open scope": when("SEQUENCE(A, B, 5 minutes"),
    "a closing bracket too many": when("SEQUENCE(A, B, 5 minutes))"),
    "no count": when("ATLEAST(A, B, 5 minutes)"),
    "a scope before the end": when("SEQUENCE(A, 5 minutes, B)"),
    "sequence without a scope": when("SEQUENCE(A, B)"),
    "all without a scope": when("SEQUENCE(A, ALL(B, C), 5)"),
    "atleast without a scope": when("ATLEAST(1, A, B)"),
    "atmost without a scope": when("ATMOST(1, A, B)"),
    "unless without a scope": when("UNLESS(A, B)"),
    "repeat without a count": when("REPEAT(A, 5 minutes)"),
    "repeat without a scope": when("REPEAT(A, 3)"),
    "repeat of two patterns": when("REPEAT(A, B, 3, 5)"),
    "repeat of none": when("REPEAT(A, 0, 5)"),
    "repeat of fewer at most": when("REPEAT(A, 3, 2, 5)"),
    "repeat with three counts": when("REPEAT(A, 3, 4, 5, 6)"),
    "a repeat inside a repeat": when("REPEAT(REPEAT(A, 2, 5) AS r, 2, 9)"),
    "output of what is repeated": "EVENT E WHEN REPEAT(A AS f, 3, 5) OUTPUT f.v",
    "a condition on what is repeated": when("SEQUENCE(REPEAT(A AS f, 3, 5), B, 5)\nWHERE f.v = B.v"),
    "a sum of repeated texts": when("REPEAT(A AS f, 3, 5)\nWHERE count(f) > 3 AND sum(f.k) > 3"),
    "an aggregate that runs have not": when("REPEAT(A AS f, 3, 5)\nWHERE median(f.v) > 3"),
    "a sum of events": when("REPEAT(A AS f, 3, 5)\nWHERE sum(f) > 3"),
    "different keys of what is repeated": when("REPEAT(A AS f, 3, 5)\nWHERE CorrelationKey(k, UNIQUE)"),
    "unless from behind the least of a run": when("UNLESS(REPEAT(A, 3, 5), B, 4, 5)"),
    "unless_before without a scope": when("UNLESS_BEFORE(A, B)"),
    "unless_before with a count": when("UNLESS_BEFORE(A, B, 2, 5 minutes)"),
    "a misspelt unless_before": when("UNLESS_BEFOR(A, B, 5)"),
    "unless with a third pattern": when("UNLESS(A, B, C, 5 minutes)"),
    "any with a scope": when("ANY(A, B, 5 minutes)"),
    "sequence of one": when("SEQUENCE(A, 5 minutes)"),
    "atleast of none": when("ATLEAST(0, A, B, 5 minutes)"),
    "atleast of a negative count": when("ATLEAST(-1, A, B, 5 minutes)"),
    "atleast of too many": when("ATLEAST(3, A, B, 5 minutes)"),
    "atleast of a fraction": when("ATLEAST(1.5, A, B, 5 minutes)"),
    "atmost of none": when("ATMOST(0, A, B, 5 minutes)"),
    "a scope of nothing": when("SEQUENCE(A, B, 0 minutes)"),
    "a negative scope": when("SEQUENCE(A, B, -5)"),
    "a scope in fractions of ticks": when("SEQUENCE(A, B, 2.5)"),
    "an unknown unit": when("SEQUENCE(A, B, 5 mintes)"),
    "a quoted scope without a unit": when("SEQUENCE(A, B, '5')"),
    "a scope finer than a microsecond": when("SEQUENCE(A, B, 0.0000001 seconds)"),
    "a scope longer than the time axis": when("SEQUENCE(A, B, 99999999999999999999)"),
    "not over a type": when("NOT(A, B)"),
    "not over any": when("NOT(A, ANY(B, C))"),
    "not over a single contributor": when("NOT(A, ATLEAST(1, B, C, 5))"),
    "unless from contributor 0": when("UNLESS(SEQUENCE(A, B, 5), C, 0, 5)"),
    "unless from a contributor that is not there": when("UNLESS(SEQUENCE(A, B, 5), C, 3, 5)"),
    "unless from the second contributor of a type": when("UNLESS(A, C, 2, 5)"),
    "a negated part that is consumed": when("UNLESS(A, B AS y LAST CONSUME, 5)"),
    "a variable used twice": when("UNLESS(SEQUENCE(A AS x, B AS y, 5),\n            C AS x, 5)"),
    "a variable of the whole used twice": when("SEQUENCE(A x, B y, 5) AS y"),
    "a definition twice": "EVENT E WHEN A\nEVENT F WHEN B\nEVENT E WHEN C",
    "a comparison of three": WHERE + "1 < x.a < 3",
    "a comparison without its right side": WHERE + "x.a =",
    "two conditions without and": WHERE + "{x.a = 1}\n      {x.b = 2}",
    "a field that is almost a keyword": WHERE + "x.events y.list",
    "a dot without a field": WHERE + "x.",
    "double quotes": WHERE + 'x.a = "v"',
    "typographic quotes": WHERE + "[a EQUAL ‘v’]",
    "a misspelt equal": WHERE + "[a EQUL 'v']",
    "a field where a value stands": WHERE + "[a EQUAL b]",
    "a correlation key without its mode": WHERE + "CorrelationKey(a)",
    "a correlation key below or": WHERE + "x.a = 1 OR CorrelationKey(a, EQUAL)",
    "an equal attribute below not": WHERE + "x.a = 1 AND NOT [a EQUAL 'v']",
    "a correlation key in the output": "EVENT E WHEN A OUTPUT CorrelationKey(a, EQUAL) AS k",
    "a number too large": WHERE + "x.a = 1e999",
    "a number too long": WHERE + "x.a = " + "1" * 101,
    "an empty name": WHERE + "x.`` = 1",
    "a character that begins nothing": WHERE + "x.a = $1",
    "an open string": WHERE + "x.a = 'abc\n  AND x.b = 1",
    "an open name": WHERE + "x.`a = 1",
    "an open comment": WHERE + "x.a = 1 /* and so on",
    "output without a name": "EVENT E WHEN A AS x OUTPUT x.a + 1",
    "output without as": "EVENT E WHEN A AS x OUTPUT x.a b",
    "two output fields of one name": "EVENT E WHEN A AS x OUTPUT x.a, x.b AS a",
    "a closed slice": "EVENT E WHEN A @ [1, 5]",
    "a slice without a comma": "EVENT E WHEN A # [1 5)",
    "slices in the other order": "EVENT E WHEN A # [1, 5) @ [1, 5)",
    "a slice of names": "EVENT E WHEN A @ [today, )",
    "tabs": "EVENT E\n\tWHEN\tSEQUENCE(A,\tB)",
    "not of other languages": WHERE + "!x.yes",
    "and of other languages": WHERE + "x.v = 1 && x.yes",
    "or of other languages": WHERE + "x.v = 1 || x.yes",
    "three signs of equality": WHERE + "x.v === 1",
    "less or equal the other way round": WHERE + "x.v =< 1",
    "equal and NULL is": WHERE + "x.v <=> 1",
    "equalities in a chain": WHERE + "x.k = x.k = x.k",
    "is for equality": WHERE + "x.v IS 5",
    "in brackets": WHERE + "x.v IN [1, 2]",
    "a regular expression": WHERE + "x.k ~ 'a'",
    "a cast to no type": WHERE + "CAST(x.v AS strung) = 'a'",
    "a cast without a type": WHERE + "CAST(x.v) = 'a'",
    "a case without an end": WHERE + "CASE WHEN x.yes THEN 1 ELSE 2 = 1",
    "a case without a value": WHERE + "CASE WHEN x.yes END = 1",
    "a case of a number": WHERE + "CASE WHEN x.v THEN 1 END = 1",
    "a try_cast": WHERE + "TRY_CAST(x.v AS string) = 'a'",
    "a call of cast": WHERE + "cast(x.v, 'string') = 'a'",
    "a case of a value": WHERE + "CASE x.yes WHEN TRUE THEN 1 END = 1",
    "an if": WHERE + "if(x.yes, 1, 2) = 1",
    "a star": "EVENT E WHEN A AS x OUTPUT *",
    "a star of a variable": "EVENT E WHEN A AS x OUTPUT x.*",
    "a count of a run": "EVENT E WHEN REPEAT(A AS f, 2, 5) AS run OUTPUT count(run) AS n",
    "a sum of a run": "EVENT E WHEN REPEAT(A AS f, 2, 5) AS run OUTPUT sum(run.v) AS n",
    "a count of one event beside a run": "EVENT E WHEN SEQUENCE(A AS a, REPEAT(B AS f, 2, 5), 9) OUTPUT count(a) AS n",
    "a count of all": "EVENT E WHEN A AS x OUTPUT count(*) AS n",
    "an aggregate": "EVENT E WHEN A AS x OUTPUT sum(x.v) AS s",
    "an aggregate in upper case": "EVENT E WHEN A AS x OUTPUT SUM(x.v) AS s",
    "a count and of": when("ATLEAST(2 of A, B, 5)"),
    "within": when("SEQUENCE(A, B AS y WITHIN 5)"),
    "a scope with a unit on an integer axis": when("UNLESS(A AS x, SEQUENCE(B AS y, C AS z, 5), 5 minutes)"),
    "a scope without a unit on a timestamp axis": when("SEQUENCE(T AS s, T AS t, 5)"),
    "an unknown type": when("SEQUENCE(A, D, 5)"),
    "types on different axes": when("SEQUENCE(A, T, 5)"),
    "one name for two events": when("SEQUENCE(A, A, 5)"),
    "an unknown field": WHERE + "x.events = 1",
    "an unknown field of any": WHERE + "valeu = 1",
    "an unknown variable": WHERE + "y.v = 1",
    "an unknown function": WHERE + "uper(x.k) = 'A'",
    "too many arguments": WHERE + "upper(x.k, 1) = 'A'",
    "a field that two events of a sub-pattern have": when(
        "SEQUENCE(SEQUENCE(A AS a, B AS b, 5) AS s, C AS c, 9)\nWHERE s.v = c.v"
    ),
    "a field that two of three events may have": when(
        "SEQUENCE(ATLEAST(2, A, B, C, 5) AS s, C AS c, 9)\nWHERE s.v > 1"
    ),
    "a field of a run": when("SEQUENCE(REPEAT(A AS f, 3, 5) AS r, B AS b, 9)\nWHERE r.v = b.v"),
    "a field of a run and of an event": "EVENT E WHEN SEQUENCE(REPEAT(A AS f, 3, 5), B AS b, 9) AS s OUTPUT s.v",
    "a field of two types": "EVENT P WHEN A OUTPUT A.k AS v\nEVENT E WHEN ANY(P, B AS b) AS s WHERE s.v = 1",
    "a field that no event of a sub-pattern has": when("SEQUENCE(ANY(A, B) AS s, C, 5)\nWHERE s.w = 1"),
    "a field of a sub-pattern, misspelt": when("UNLESS(ANY(A, B) AS s, C, 5)\nWHERE s.yess"),
    "a field of what is negated in a sub-pattern": "EVENT P WHEN A OUTPUT A.v AS w\n"
    "EVENT E WHEN SEQUENCE(UNLESS(A, P AS n, 5) AS s, B, 9) WHERE s.w = 1",
    "a condition on what is negated and on its whole": when("UNLESS(ANY(A, B) AS s, C AS n, 5) AS u\nWHERE n.k = u.k"),
    "an unknown variable beside a run": when("REPEAT(A AS f, 3, 5) AS r\nWHERE g.v = 1"),
    "a number and a text": WHERE + "x.v = 'a'",
    "a number and a truth": WHERE + "x.v = true",
    "a sum of texts": WHERE + "x.k + 'a' = 'ba'",
    "a number as a condition": WHERE + "x.v",
    "a negated number": WHERE + "NOT x.v",
    "an instant and a text": WHERE + "x.Vs < '2024-05-01'",
    "an id and a number": "EVENT E WHEN SEQUENCE(A, B, 5) AS s WHERE s.id = 1",
    "contributors and a number": "EVENT E WHEN SEQUENCE(A, B, 5) AS s WHERE s.contributors = 1",
    "a root and a text": "EVENT E WHEN SEQUENCE(A, B, 5) AS s WHERE s.root = 'a'",
    "a key that a type lacks": WHERE + "CorrelationKey(host, EQUAL)",
    "a value of another type": WHERE + "[k EQUAL 1]",
    "output of what is negated": "EVENT E WHEN UNLESS(A AS x, B AS y, 5) OUTPUT y.v",
    "output called as the lifetime is": "EVENT E WHEN A AS x OUTPUT x.v AS start",
    "a slice of instants on an integer axis": "EVENT E WHEN A @ ['2024-05-01', )",
    "a slice of numbers on a timestamp axis": "EVENT E WHEN T @ [1, 5)",
    "an empty slice": "EVENT E WHEN A @ [5, 1)",
    "a duration in a condition": WHERE + "y.Vs - x.Vs < 2 minutes",
    "an interval": WHERE + "y.Vs - x.Vs < INTERVAL '2' MINUTE",
    "a mode before its name": "EVENT E WHEN SEQUENCE(FIRST A AS x, B AS y, 5)",
}

STREAM = sq.events([(1, 2, {"v": 1, "k": "a", "yes": True})], name="s")
TYPES = {
    **dict.fromkeys("ABC", STREAM),
    "T": sq.events([(dt.datetime(2024, 5, 1), None, {"v": 1})], name="t"),
}


@functools.cache
def error(text: str | bytes) -> CedrError:
    """Return the error that a text raises."""
    with pytest.raises(CedrError) as raised:
        sq.cedr(text, **TYPES)
    return raised.value


def block(name: str) -> str:
    return f"=== {name}\n{CASES[name]}\n---\n{error(CASES[name])}\n"


@pytest.fixture(scope="module")
def golden() -> dict[str, str]:
    if os.environ.get("STREAMQ_GOLDEN"):
        GOLDEN.write_text("".join(map(block, CASES)), encoding="utf-8")
    blocks = re.split("^=== ", GOLDEN.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {one.partition("\n")[0]: "=== " + one for one in blocks}


def test_messages_are_as_in_the_golden_file(golden: dict[str, str]) -> None:
    assert list(golden) == list(CASES)
    assert {name: block(name) for name in CASES} == golden


@each(CASES)
def test_advice_is_for_a_text_and_in_its_words(name: str) -> None:
    """It names nothing that only Python has, but what is done to a stream before or behind; and no column of a plan's."""
    message, *_ = str(error(CASES[name])).splitlines()
    assert not re.search(r"[Cc]ast (it|one|the)|\bsq\.(?!udf\b)|timedelta|\.@|@\.|__", message)
    assert not message.rpartition("; found ")[2].startswith("array_compact")


def claim(name: str) -> str:
    """What an error says is wrong, without what was found and what to write."""
    return str(error(CASES[name])).partition(";")[0].partition(". ")[0]


COUNTS_AND_SCOPES = re.compile(r"\b(count|scope|duration)\b|contributor that is not there")


@pytest.mark.parametrize("name", [n for n in CASES if COUNTS_AND_SCOPES.search(claim(n))])
def test_what_is_wrong_with_a_count_or_a_scope_is_shown_there(name: str) -> None:
    e = error(CASES[name])
    at = CASES[name].splitlines()[e.line - 1][e.column - 1 :]
    assert re.match(r"[0-9'-]" if "found" in str(e) else "[A-Z_]+\\(", at)


def shown_argument(value: int | str) -> str:
    """A count or a scope as it is written."""
    return shown_duration(value)


@pytest.mark.slow
@settings(max_examples=50, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.randoms(use_true_random=False))
def test_a_count_or_a_scope_of_nothing_is_shown_wherever_it_stands(program: Program, rng: random.Random) -> None:
    text = render(program)
    patterns = [part.pattern for d in parse(text).definitions for part in parts_of(d.pattern)]
    numbers = [(place, shown_argument(getattr(p, field))) for p in patterns for field, place in p.places.items()]
    assume(numbers)
    place, number = rng.choice(numbers)
    lines = text.split("\n")
    line, at = lines[place.line - 1], place.column - 1
    assert line[at:].startswith(number)
    lines[place.line - 1] = f"{line[:at]}0{line[at + len(number) :]}"
    with pytest.raises(CedrError) as raised:
        parse("\n".join(lines))
    assert (raised.value.line, raised.value.column) == place


def test_an_error_knows_its_place() -> None:
    e = error("EVENT E\nWHEN SEQUENCE(A)")
    assert (e.line, e.column) == (2, 6)
    assert isinstance(e, StreamqError)
    copy = pickle.loads(pickle.dumps(e))
    assert (str(copy), copy.line, copy.column) == (str(e), 2, 6)


def test_lines_end_with_either_newline() -> None:
    e = error("EVENT E\r\nWHEN SEQUENCE(A)\r\n")
    assert (e.line, e.column) == (2, 6)
    assert str(e).splitlines()[1:] == ["    WHEN SEQUENCE(A)", "         ^"]


def test_what_cannot_be_shown_is_named() -> None:
    message, line, caret = str(error(WHERE + "x.a = \x07")).splitlines()
    assert "found the character U+0007." in message
    assert (line, caret) == ("    WHERE x.a =", "    " + " " * 12 + "^")


def test_tabs_are_as_wide_as_the_caret_takes_them() -> None:
    assert str(error("EVENT E\n\tWHEN\tSEQUENCE(A,\tB)")).splitlines()[1:] == [
        "     WHEN SEQUENCE(A, B)",
        "          ^",
    ]


@pytest.mark.parametrize("before", [0, 1, 10, 40])
@pytest.mark.parametrize("behind", [0, 1, 10, 40])
def test_a_long_line_is_cut_around_the_caret(before: int, behind: int) -> None:
    text = "EVENT E WHEN A WHERE " + "x.a = 1 AND " * before + "x.b == 1" + " AND x.a = 1" * behind
    _, line, caret = str(error(text)).splitlines()
    assert line[caret.index("^") - 4 :].startswith("x.b == 1")
    assert len(line) <= 4 + 3 + 76 + 3
    assert line.startswith("    ...") == (len(text) > 76 and before > 1)
    assert line.endswith("...") == (len(text) > 76 and behind > 1)


@pytest.mark.parametrize("text", [None, 5, ["EVENT E WHEN A"]])
def test_what_is_no_text(text: object) -> None:
    with pytest.raises(PlanError, match="cedr: the text is a string, or bytes in UTF-8; found "):
        parse(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("comparison", ["x.k = NULL", "NULL <> x.k"])
def test_a_comparison_with_null_is_a_warning(comparison: str) -> None:
    with pytest.warns(
        StreamqWarning, match=f"cedr: {comparison} is never true, .* write IS NULL, or IS NOT NULL"
    ) as warned:
        sq.cedr(f"EVENT E WHEN A AS x WHERE x.v > 0 AND ({comparison} OR x.v = 1)", **TYPES)
    assert [w.filename for w in warned] == [__file__]
