"""Errors of the CEDR language, each as ``tests/golden/cedr_errors.txt`` has it: the text, then the whole message.

``STREAMQ_GOLDEN=1 pytest tests/patterns/test_errors.py`` writes the messages anew; read the difference before you keep it.
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
from streamq.patterns.pattern_text import render
from streamq.patterns.pattern_tree import parts_of
from streamq.patterns.syntax import Program, shown_duration
from tests.drawn.programs import programs
from tests.each import each

GOLDEN = Path(__file__).parents[1] / "golden" / "cedr_errors.txt"

WHERE = "EVENT E\nWHEN A AS x\nWHERE "


BLOCKS = re.split("^=== ", GOLDEN.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
CASES = {block.partition("\n")[0]: block.partition("\n")[2].partition("\n---\n")[0] for block in BLOCKS}
"""Texts, by what is wrong with them."""

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


def test_messages_are_as_in_the_golden_file() -> None:
    """The file has the texts, too: a block is a name, a text and its message, which ``STREAMQ_GOLDEN=1`` writes anew."""
    blocks = "".join(map(block, CASES))
    if os.environ.get("STREAMQ_GOLDEN"):
        GOLDEN.write_text(blocks, encoding="utf-8")
    assert blocks == GOLDEN.read_text(encoding="utf-8")


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
