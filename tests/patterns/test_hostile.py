"""Texts that are meant to do harm end in an error, or in a program, after a bounded time and without deep recursion."""

from __future__ import annotations

import time

import pytest

from streamq.errors import CedrError
from streamq.patterns.parser import MAX_LENGTH, MAX_SIGNS, parse
from streamq.patterns.pattern_text import render
from streamq.patterns.syntax import MAX_DEPTH, EventField

WHERE = "EVENT E WHEN A WHERE "

TEXTS: dict[str, tuple[str | bytes, str]] = {
    "parentheses": ("(" * 100_000, "brackets nested more than 64 deep"),
    "parentheses of a condition": (WHERE + "(" * 100_000, "brackets nested more than 64 deep"),
    "balanced parentheses": (WHERE + "(" * 50_000 + "x" + ")" * 50_000, "brackets nested more than 64 deep"),
    "braces": (WHERE + "{" * 100_000, "brackets nested more than 64 deep"),
    "square brackets": (WHERE + "[" * 100_000, "brackets nested more than 64 deep"),
    "operators": ("EVENT E WHEN " + "SEQUENCE(A, " * 50_000, "brackets nested more than 64 deep"),
    "functions": (WHERE + "f(" * 100_000, "brackets nested more than 64 deep"),
    "not": (WHERE + "NOT Not not " * 80_000 + "x", "an expression nested more than 64 deep"),
    "minus": (WHERE + "- " * 400_000 + "x", "an expression nested more than 64 deep"),
    "not and minus": (WHERE + "NOT ( - " * 60 + "x", "cannot stand here"),
    "a sum": (WHERE + "x" + "+x" * 50_000, "an expression nested more than 64 deep"),
    "a product": (WHERE + "x" + "/x" * 50_000, "an expression nested more than 64 deep"),
    "closing brackets": (WHERE + ")" * 100_000, "cannot stand here; found ')'"),
    "commas": (WHERE + "x IN (" + "1," * 450_000, "more than 105,000 words and signs"),
    "parts": (
        f"EVENT E WHEN SEQUENCE({', '.join(f'A AS a{i}' for i in range(101))}, 5)",
        "more than 100 events; found 101",
    ),
    "values": (WHERE + f"x.a IN ({', '.join(map(str, range(5_001)))})", "IN of more than 5,000 values; found 5,001"),
    "words": ("a " * 450_000, "more than 105,000 words and signs"),
    "one word": ("EVENT " + "a" * 900_000, "Legal here: WHEN"),
    "one number": (WHERE + "x = " + "9" * 900_000, "a number of more than 100 characters"),
    "one fraction": (WHERE + "x = 0." + "9" * 900_000, "a number of more than 100 characters"),
    "an exponent": (WHERE + "x = 1e" + "9" * 50, "a number beyond the range of doubles"),
    "a scope of many digits": (f"EVENT E WHEN SEQUENCE(A, B, {'9' * 5000})", "a duration of more than 100 characters"),
    "a quoted scope": (f"EVENT E WHEN SEQUENCE(A, B, '{'9' * 5000} s')", "a duration of more than 100 characters"),
    "a scope of many units": (
        f"EVENT E WHEN SEQUENCE(A, B, {'9 s ' * 1000})",
        "a duration of more than 100 characters",
    ),
    "a string": (WHERE + "'" + "a" * 900_000, "a string without its closing '"),
    "quotes": (WHERE + "'" * 9_001, "a string without its closing '"),
    "backticks": (WHERE + "`" * 9_001, "a name without its closing `"),
    "a comment": (WHERE + "/*" + "*" * 900_000, "a comment without its closing */"),
    "comments": (WHERE + "/* " * 300_000, "a comment without its closing */"),
    "a comment in a comment": (WHERE + "/*/", "a comment without its closing */"),
    "blanks": (WHERE + " " * 900_000 + "$", "found '$'"),
    "lines": ("\n" * 900_000 + "$", "cedr, line 900001, column 1: "),
    "nul": (WHERE + "x = 'a\0b'", "a character that no text has; found U+0000"),
    "nul in a comment": ("-- \0", "a character that no text has; found U+0000"),
    "a lone surrogate": (WHERE + "x = '\ud800'", "a character that no text has; found U+D800"),
    "not utf-8": (b"EVENT E\nWHEN \xc3\xa9 \xff", "cedr, line 2, column 8: the text is not UTF-8; found byte 0xFF"),
    "half a character": ("EVENT é".encode()[:-1], "cedr, line 1, column 7: the text is not UTF-8; found byte 0xC3"),
    "utf-16": ("EVENT E WHEN A".encode("utf-16"), "the text is not UTF-8; found byte 0xFF"),
    "a surrogate in bytes": (b"EVENT \xed\xa0\x80", "the text is not UTF-8; found byte 0xED"),
    "ten megabytes": ("(" * 10_000_000, "the text is longer than 1,000,000 characters"),
    "ten megabytes of bytes": (b"\xff" * 10_000_000, "the text is longer than 1,000,000 characters"),
    "wide characters": (("é" * (MAX_LENGTH + 1)).encode(), "the text is longer than 1,000,000 characters"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_text_is_an_error_soon(name: str) -> None:
    text, message = TEXTS[name]
    begun = time.process_time()
    with pytest.raises(CedrError) as raised:
        parse(text)
    assert time.process_time() - begun < 2
    assert message in str(raised.value)
    assert len(str(raised.value)) < 1000
    str(raised.value).encode()


def test_many_conditions_are_no_depth() -> None:
    """Each is a sign here; 10,000 comparisons in braces, ten signs each, are within what a text may have."""
    program = parse(WHERE + " AND ".join(f"a{i}" for i in range(10_000)))
    where = program.definitions[0].where
    assert len(where) == 10_000
    assert where[-1] == EventField(None, "a9999")
    assert render(program).count("AND") == 9_999
    assert len(["{", "x", ".", "a", "=", "y", ".", "b", "}", "AND"]) * 10_000 < MAX_SIGNS


def test_brackets_as_deep_as_allowed() -> None:
    shallow = parse(WHERE + "x.a = 1")
    assert parse(WHERE + "(" * MAX_DEPTH + "x.a = 1" + ")" * MAX_DEPTH) == shallow
    deep = parse("EVENT E WHEN " + "ALL(" * MAX_DEPTH + "A" + ", 5)" * MAX_DEPTH)
    assert parse(render(deep)) == deep
    hash(deep)
    repr(deep)


@pytest.mark.parametrize("operand", ["NOT ", "f(", "x + (", "x AND (y OR ", "- "])
def test_expressions_as_deep_as_allowed(operand: str) -> None:
    depth = MAX_DEPTH // (2 if "OR" in operand else 1) - 1
    program = parse(WHERE + operand * depth + "x" + ")" * (operand.count("(") * depth))
    assert parse(render(program)) == program
    hash(program)
    repr(program)


def test_the_longest_text() -> None:
    text = WHERE + "x.a = 1"
    assert parse(text.ljust(MAX_LENGTH)) == parse(text)
    with pytest.raises(CedrError, match="the text is longer than"):
        parse(text.ljust(MAX_LENGTH + 1))
    assert MAX_SIGNS < MAX_LENGTH
