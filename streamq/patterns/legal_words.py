"""What an error calls the tokens of the grammar: what was found in a text, and what would be legal there."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

OPERATORS: Final = ("SEQUENCE", "ATLEAST", "ALL", "ANY", "ATMOST", "UNLESS", "NOT", "CANCEL_WHEN")
"""The operators of patterns."""
RESERVED: Final = (
    "EVENT", "WHEN", "WHERE", "OUTPUT", "AS", "AND", "OR", "NOT", "IS", "IN", "BETWEEN", "LIKE", "TRUE", "FALSE", "NULL",
)  # fmt: skip
"""Keywords that are no name anywhere but after a dot, unless in backticks."""
KEYWORDS: Final = (
    *RESERVED, *(o for o in OPERATORS if o != "NOT"),
    "EACH", "FIRST", "LAST", "REUSE", "CONSUME", "CorrelationKey", "EQUAL", "UNIQUE",
)  # fmt: skip

_GROUPS: Final = (
    ({"SEQUENCE", "ATLEAST", "ALL", "ANY", "ATMOST", "UNLESS", "NOT", "CANCEL_WHEN", "NAME", "QUOTED"},
     f"an event type, a pattern ({', '.join(OPERATORS)})"),
    ({"CORRELATIONKEY", "NAME", "QUOTED", "NUMBER", "STRING", "TRUE", "FALSE", "NULL", "NOT", "MINUS", "LPAR", "LSQB", "LBRACE"},
     "a condition or an expression"),
    ({"CORRELATIONKEY", "NAME", "QUOTED", "NUMBER", "STRING", "TRUE", "FALSE", "NULL", "MINUS", "LPAR", "LSQB", "LBRACE"},
     "an expression"),
    ({"COMPARISON", "_IS", "_IN", "_BETWEEN", "_LIKE", "NOT"}, "a comparison (=, <>, <, <=, >, >=, IS, IN, BETWEEN, LIKE)"),
    ({"_IN", "_BETWEEN", "_LIKE"}, "IN, BETWEEN, LIKE"),
    ({"PLUS", "MINUS", "STAR", "SLASH", "PERCENT"}, "an arithmetic operator"),
    ({"PLUS", "MINUS"}, "an arithmetic operator"),
    ({"TRUE", "FALSE", "NULL", "NUMBER", "STRING", "MINUS"}, "a value"),
    ({"_AS", "NAME", "QUOTED"}, "AS and a variable"),
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
"""Tokens that are legal together, and what they are called; the first that fit count."""

_SINGLE: Final = {
    "SELECTION": "EACH, FIRST, LAST", "CONSUMPTION": "REUSE, CONSUME", "EQUALITY": "EQUAL, UNIQUE",
    "CORRELATIONKEY": "CorrelationKey", "COMPARISON": "a comparison", "$END": "the end of the text",
    "COMMA": "','", "RPAR": "')'", "LPAR": "'('", "RSQB": "']'", "LSQB": "'['", "RBRACE": "'}'", "LBRACE": "'{'", "DOT": "'.'",
    "AT": "'@'", "HASH": "'#'", "SEMICOLON": "';'",
}  # fmt: skip
_ORDER: Final = ("_AS", "SELECTION", "CONSUMPTION", "_AND", "_OR", "COMMA", "DOT", "LPAR", "RPAR", "RBRACE", "RSQB")
_LAST: Final = ("_WHERE", "_OUTPUT", "AT", "HASH", "_EVENT", "SEMICOLON", "$END")
_WORD = re.compile(r"[^\W\d][\w-]*")
_SIGN = re.compile(r"'[^']*(?:''[^']*)*'|`[^`]*`|[0-9][0-9.]*|CANCEL-WHEN\b|[^\W\d]\w*|<>|!=|<=|>=|.", re.IGNORECASE)


def legal(tokens: Iterable[str]) -> str:
    """Return what tokens are called, in one sentence, or nothing if there are none."""
    left = set(tokens)
    words: list[str] = []
    for group, called in _GROUPS:
        if group <= left:
            words.append(called)
            left -= group
    order = [*_ORDER, *sorted(left - {*_ORDER, *_LAST}), *_LAST]
    words += [_SINGLE.get(token, token.removeprefix("_")) for token in order if token in left]
    return f"Legal here: {', '.join(words)}." if words else ""


def sign_at(text: str, offset: int) -> str:
    """Return what stands at an offset of a text: ``the name 'a'``, ``the keyword WHERE``, ``'('``."""
    token = _SIGN.match(text, offset)
    if token is None:
        return "the end of a line"
    shown = token[0] if len(token[0]) <= 40 else token[0][:37] + "..."
    if not shown.isprintable():
        return f"the character U+{ord(shown[0]):04X}" if len(shown) == 1 else repr(shown)
    if shown[0] == "'":
        return f"the string {shown}"
    if shown[0] in "0123456789":
        return f"the number {shown}"
    if shown.upper() in _UPPER:
        return f"the keyword {_UPPER[shown.upper()]}"
    if shown[0] == "`" or _WORD.match(shown):
        return f"the name {shown.strip('`')!r}"
    return f'"{shown}"' if "'" in shown else f"'{shown}'"


def keyword_like(word: str, keywords: Iterable[str], likeness: float = 0.6) -> str:
    """Return the keyword that a word is almost, or nothing; ``likeness`` is 1 for equal words, and a keyword is like no other."""
    if not 3 <= len(word) <= 40 or word.upper() in _UPPER:
        return ""
    upper = {_plain(keyword): keyword for keyword in keywords}
    close = difflib.get_close_matches(_plain(word), list(upper), n=1, cutoff=likeness)
    return upper[close[0]] if close else ""


def keywords_of(tokens: Iterable[str]) -> list[str]:
    """Return the keywords among tokens."""
    words = [w for token in tokens for w in _SINGLE.get(token, token.removeprefix("_")).split(", ")]
    return [word for word in words if word.upper() in _UPPER]


def _plain(word: str) -> str:
    return word.upper().replace("-", "_")


_UPPER: Final = {word.upper(): word for word in KEYWORDS} | {"CANCEL-WHEN": "CANCEL_WHEN"}
