"""Hints of errors in a text: the words of this language for those of other languages, and none that only Python has."""

from __future__ import annotations

import re
from typing import Final

from streamq.errors import Sentence, StreamqError
from streamq.patterns.syntax import Place, Refusal

_SIGNS: Final = "=<>!&|"
_OF_SIGNS: Final = {
    "==": "Equality is one =.",
    "===": "Equality is one =.",
    "=<": "Write <=.",
    "=>": "Write >=.",
    "<=>": "Write a = b OR a IS NULL AND b IS NULL.",
    "!": "Write NOT before a condition, and <> between values.",
    "!==": "Write <>.",
    "&": "Write AND.",
    "&&": "Write AND.",
    "|": "Write OR.",
    "||": "Write OR; concat(a, b) puts texts together.",
}
"""Hints for groups of signs that other languages have."""

_OF_CHARACTERS: Final = {
    '"': "Strings stand in single quotes, names in backticks.",
    "‘": "Strings stand in plain single quotes: '.",
    "’": "Strings stand in plain single quotes: '.",
    "“": "Strings stand in plain single quotes: '.",
    "`": "A name in backticks has at least one character.",
    "~": "Write x LIKE 'a%', or rlike(x, 'a.*').",
    "^": "Write power(a, b).",
    ":": "Equality is one =.",
}
"""Hints for characters that are legal nowhere, or not at their place."""

CAST: Final = "Write a CAST, as CAST(x.v AS bigint)."
_CASE: Final = "Write a CASE, as CASE WHEN x.v > 1 THEN 'high' ELSE 'low' END."
_NO_COUNT: Final = (
    "count(e) counts the events of REPEAT(A AS e, ...); to count matches put a window over them, .tumbling_window(...)."
)
_NO_DURATION: Final = (
    "A condition has no durations: unix_seconds(b.Vs) - unix_seconds(a.Vs) < 120 compares instants, in seconds."
)
_NO_STAR: Final = "Without OUTPUT a match has all fields of its events."

_BEFORE: Final = (
    (re.compile(r"\bTRY_CAST\s*\([^()]*\Z", re.IGNORECASE), re.compile(r"AS\b", re.IGNORECASE), CAST),
    (re.compile(r"\bCAST\s*\([^()]*\Z", re.IGNORECASE), re.compile(r","), CAST),
    (re.compile(r"\bCASE\s*\Z", re.IGNORECASE), re.compile(r""), _CASE),
    (re.compile(r"\bcount\s*\(\s*\Z", re.IGNORECASE), re.compile(r"\*"), _NO_COUNT),
    (re.compile(r"\bOUTPUT\b[^@#]*\Z", re.IGNORECASE), re.compile(r"\*"), _NO_STAR),
    (re.compile(r"\bIN\s*\Z", re.IGNORECASE), re.compile(r"[\[{]"), "Write IN (1, 2)."),
    (re.compile(r"\bIS(?:\s+NOT)?\s*\Z", re.IGNORECASE), re.compile(r""), "IS is for NULL; write = or <>."),
    (re.compile(r"\bATLEAST\s*\(\s*\d+\s*\Z", re.IGNORECASE), re.compile(r"of\b", re.IGNORECASE),
     "Write ATLEAST(2, A, B, C, 5 minutes)."),
    (re.compile(r"\d\s*\Z"), re.compile(r"(?:(?:micro|milli)?sec|min|hour|day|week)\w*|(?:us|ms|s|h|d|w)\b", re.IGNORECASE),
     _NO_DURATION),
    (re.compile(r"\bINTERVAL\s*\Z", re.IGNORECASE), re.compile(r"['\d]"), _NO_DURATION),
    (re.compile(r"[(,]\s*(?:EACH|FIRST|LAST|REUSE|CONSUME)\s+(?:\w+|`[^`]*`)\s*\Z", re.IGNORECASE),
     re.compile(r"AS\b", re.IGNORECASE), "FIRST, LAST and CONSUME stand behind the name: A AS a FIRST."),
    (re.compile(r""), re.compile(r"WITHIN\b", re.IGNORECASE), "A scope stands behind a comma: SEQUENCE(A, B, 5 minutes)."),
    (re.compile(r"\bWITHIN\s*\Z", re.IGNORECASE), re.compile(r""), "A scope stands behind a comma: SEQUENCE(A, B, 5 minutes)."),
)  # fmt: skip
"""Hints by two patterns: the text before a place, and the text at it. The first entry that fits counts."""

_COMPARISON: Final = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
_TWO_SIDES: Final = "A comparison has two sides: write a = b AND b = c."
_ONLY_IN_PYTHON: Final = re.compile(r"\bsq\.|\.\w+\(|\btimedelta\b|\bschema=|\bDataType\b")
_CASTS: Final = re.compile(r"\bcast\b", re.IGNORECASE)
_LOOK_BACK: Final = 100

_IN_TEXTS: Final = {" == ": " = ", " != ": " <> "}
_OF_PYTHON: Final = re.compile(r"'(?:[^']|'')*'| == | != ")
"""Matches quoted texts, which stay as they are, and the signs of Python that the language spells otherwise."""


def unexpected_at(text: str, offset: int, legal: frozenset[str]) -> tuple[int, str, str]:
    """Return the start of the signs of another language at an offset, as ``&&``, these signs, and a hint.

    ``legal`` are the tokens that are legal there. Without such signs the start is the offset, they are empty, and the hint is
    about the text before or the character, or empty, too.
    """
    first = last = offset
    if text[offset : offset + 1] in _SIGNS:
        while first and text[first - 1] in _SIGNS:
            first -= 1
        while text[last : last + 1] and text[last] in _SIGNS:
            last += 1
    signs = text[first:last]
    if signs in _OF_SIGNS:
        return first, signs, _OF_SIGNS[signs]
    if signs in _COMPARISON and "_AND" in legal and "COMPARISON" not in legal:
        return offset, "", _TWO_SIDES
    before = text[max(0, offset - _LOOK_BACK) : offset]
    for ends, stands, hint in _BEFORE:
        if hint == _NO_DURATION and "PLUS" not in legal:
            continue
        if stands.match(text, offset) and ends.search(before):
            return offset, "", hint
    return offset, "", _OF_CHARACTERS.get(text[offset : offset + 1], "")


def advice_for_name(name: str) -> str:
    """Return the hint for a function that only other languages have; empty for any other name."""
    return {"cast": CAST, "try_cast": CAST, "if": _CASE, "iff": _CASE, "iif": _CASE}.get(name.lower(), "")


def refusal_for(place: Place, error: StreamqError, verb: str, instead: str = "") -> Refusal:
    """Turn an error of a ``verb`` into a refusal at a place; ``instead`` replaces a hint that only helps in Python.

    A hint at a cast becomes CAST, and functions have no prefix in a text.
    """
    text = error.args[0]
    assert isinstance(text, Sentence)
    hint = text.hint.replace("sq.functions.", "")
    if _CASTS.search(hint):
        hint = CAST
    elif _ONLY_IN_PYTHON.search(hint):
        hint = instead
    claim = text.claim.removeprefix(f"{verb}: ").removesuffix(".")
    return Refusal(place, _OF_PYTHON.sub(lambda match: _IN_TEXTS.get(match[0], match[0]), claim), "", hint)
