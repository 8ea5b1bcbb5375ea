"""The words of errors in a text: its tokens and those that would be legal, and hints for the words of other languages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from streamq.patterns.operators import operators
from streamq.patterns.syntax import CASE, CAST

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
    (re.compile(r"\bCASE\s*\Z", re.IGNORECASE), re.compile(r""), CASE),
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
_LOOK_BACK: Final = 100


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


RESERVED: Final = (
    "EVENT", "WHEN", "WHERE", "OUTPUT", "AS", "AND", "OR", "NOT", "IS", "IN", "BETWEEN", "LIKE", "TRUE", "FALSE", "NULL",
)  # fmt: skip
"""Reserved keywords: names only after a dot or in backticks."""
OTHERS: Final = (
    "EACH", "FIRST", "LAST", "REUSE", "CONSUME", "CorrelationKey", "EQUAL", "UNIQUE",
    "CASE", "THEN", "ELSE", "END", "CAST",
)  # fmt: skip
"""Keywords that are names wherever the grammar expects no keyword; those of operators are of this kind, too."""


@cache
def keywords() -> tuple[str, ...]:
    """Return all keywords, with those of the operators."""
    return (*RESERVED, *(word for word in operators() if word not in RESERVED), *OTHERS)


@cache
def _spellings() -> Mapping[str, str]:
    """Return the keywords by their spellings in upper case; those of operators may have hyphens for underscores."""
    return {word.upper(): word for word in keywords()} | {word.replace("_", "-"): word for word in operators()}


_GROUPS: Final = (
    ({"OPERATOR", "NAME", "QUOTED"},
     "an event type, a pattern ({operators})"),
    ({"CORRELATIONKEY", "NAME", "QUOTED", "NUMBER", "STRING", "TRUE", "FALSE", "NULL", "NOT", "MINUS", "LPAR", "LSQB", "LBRACE",
      "CASE", "CAST"},
     "a condition or an expression"),
    ({"CORRELATIONKEY", "NAME", "QUOTED", "NUMBER", "STRING", "TRUE", "FALSE", "NULL", "MINUS", "LPAR", "LSQB", "LBRACE",
      "CASE", "CAST"},
     "an expression"),
    ({"COMPARISON", "_IS", "_IN", "_BETWEEN", "_LIKE", "NOT"}, "a comparison (=, <>, <, <=, >, >=, IS, IN, BETWEEN, LIKE)"),
    ({"_IN", "_BETWEEN", "_LIKE"}, "IN, BETWEEN, LIKE"),
    ({"PLUS", "MINUS", "STAR", "SLASH", "PERCENT"}, "an arithmetic operator"),
    ({"PLUS", "MINUS"}, "an arithmetic operator"),
    ({"TRUE", "FALSE", "NULL", "NUMBER", "STRING", "MINUS"}, "a value"),
    ({"_AS", "NAME", "QUOTED"}, "AS and a variable"),
    ({"NAME", "STRING"}, "a type such as bigint"),
    ({"NAME", "QUOTED"}, "a name"),
    ({"WORD", "QUOTED"}, "a name"),
    ({"COMMA", "NUMBER", "STRING", "MINUS"}, "a number, a quoted timestamp, ','"),
    ({"RPAR", "NUMBER", "STRING", "MINUS"}, "a number, a quoted timestamp, ')'"),
    ({"NUMBER", "STRING", "MINUS"}, "a scope such as 5 minutes"),
    ({"NUMBER", "MINUS"}, "a number"),
    ({"NAME", "RPAR"}, "a unit of time, ')'"),
    ({"NAME"}, "a unit of time"),
    ({"NUMBER"}, "a number"),
)  # fmt: skip
"""Names of sets of tokens; the first sets that are contained in the legal tokens count."""

_SINGLE: Final = {
    "SELECTION": "EACH, FIRST, LAST", "CONSUMPTION": "REUSE, CONSUME", "EQUALITY": "EQUAL, UNIQUE",
    "OPERATOR": "{operators}", "CORRELATIONKEY": "CorrelationKey", "COMPARISON": "a comparison",
    "$END": "the end of the text",
    "COMMA": "','", "RPAR": "')'", "LPAR": "'('", "RSQB": "']'", "LSQB": "'['", "RBRACE": "'}'", "LBRACE": "'{'", "DOT": "'.'",
    "AT": "'@'", "HASH": "'#'", "SEMICOLON": "';'",
}  # fmt: skip
_ORDER: Final = ("_AS", "SELECTION", "CONSUMPTION", "_AND", "_OR", "COMMA", "DOT", "LPAR", "RPAR", "RBRACE", "RSQB")
_LAST: Final = ("_WHERE", "_OUTPUT", "AT", "HASH", "_EVENT", "SEMICOLON", "$END")
_WORD = re.compile(r"[^\W\d][\w-]*")
_SIGN = re.compile(r"'[^']*(?:''[^']*)*'|`[^`]*`|[0-9][0-9.]*|[^\W\d]\w*|<>|!=|<=|>=|.")


def is_keyword(word: str) -> bool:
    """Return True if a word is a keyword, in upper or lower case."""
    return word.upper() in _spellings()


def legal_sentence(tokens: Iterable[str]) -> str:
    """Return a sentence that names the legal tokens; empty if there are none."""
    left = set(tokens)
    words: list[str] = []
    for group, called in _GROUPS:
        if group <= left:
            words.append(called)
            left -= group
    order = [*_ORDER, *sorted(left - {*_ORDER, *_LAST}), *_LAST]
    words += [_SINGLE.get(token, token.removeprefix("_")) for token in order if token in left]
    text = ", ".join(words).replace("{operators}", ", ".join(operators()))
    return f"Legal here: {text}." if words else ""


def sign_at(text: str, offset: int) -> str:
    """Return a name for the token at an offset of a text: ``the name 'a'``, ``the keyword WHERE``, ``'('``."""
    hyphened = _WORD.match(text, offset)
    token = hyphened if hyphened and hyphened[0].upper() in _spellings() else _SIGN.match(text, offset)
    if token is None:
        return "the end of a line"
    shown = token[0] if len(token[0]) <= 40 else token[0][:37] + "..."
    if not shown.isprintable():
        return f"the character U+{ord(shown[0]):04X}" if len(shown) == 1 else repr(shown)
    if shown[0] == "'":
        return f"the string {shown}"
    if shown[0] in "0123456789":
        return f"the number {shown}"
    if shown.upper() in _spellings():
        return f"the keyword {_spellings()[shown.upper()]}"
    if shown[0] == "`" or _WORD.match(shown):
        return f"the name {shown.strip('`')!r}"
    return f'"{shown}"' if "'" in shown else f"'{shown}'"


def keyword_like(word: str, words: Iterable[str], likeness: float = 0.6) -> str:
    """Return that of ``words`` which is nearest to a misspelt word; empty if none is as like as ``likeness`` (1: equal).

    Empty also for a keyword, and for a word of fewer than 3 or more than 40 characters.
    """
    if not 3 <= len(word) <= 40 or word.upper() in _spellings():
        return ""
    upper = {_plain(keyword): keyword for keyword in words}
    close = difflib.get_close_matches(_plain(word), list(upper), n=1, cutoff=likeness)
    return upper[close[0]] if close else ""


def keywords_of(tokens: Iterable[str]) -> list[str]:
    """Return the keywords among tokens; the token of an operator stands for the keywords of all operators."""
    shown = (_SINGLE.get(token, token.removeprefix("_")) for token in tokens)
    words = [w for one in shown for w in (operators() if one == "{operators}" else one.split(", "))]
    return [word for word in words if word.upper() in _spellings()]


def _plain(word: str) -> str:
    return word.upper().replace("-", "_")
