"""Read the numbers, counts, scopes and strings of a text from their tokens."""

from __future__ import annotations

import math

from lark import Token

from streamq.patterns.source_text import Refusal
from streamq.patterns.syntax import Place, Scope

MAX_DIGITS = 100
"""The greatest length of a number or a duration, so that reading one takes bounded time."""


def token_place(token: Token) -> Place:
    """Return the place of a token."""
    return Place(token.line or 0, token.column or 0)


def unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def token_text(tokens: list[Token]) -> str:
    """Return tokens as text: a sign stands before its number, other tokens are separated by blanks."""
    return " ".join(tokens).replace("- ", "-")


def parse_number(tokens: list[Token]) -> int | float:
    """Return the number that tokens are, with or without a sign; raise Refusal if it is too long or beyond doubles."""
    digits = tokens[-1]
    if len(digits) > MAX_DIGITS:
        raise Refusal(token_place(tokens[0]), f"a number of more than {MAX_DIGITS} characters")
    value = int(digits) if digits.isdigit() else float(digits)
    if math.isinf(value):
        raise Refusal(token_place(tokens[0]), "a number beyond the range of doubles", f"found {token_text(tokens)}")
    return -value if len(tokens) == 2 else value


def parse_whole_number(tokens: list[Token], what: str) -> int:
    """Return the whole number that tokens are; raise Refusal for any other, also ``1.0``.

    ``what`` names it in the message.
    """
    value = parse_number(tokens)
    if not isinstance(value, int):
        raise Refusal(token_place(tokens[0]), f"{what} is a whole number", f"found {token_text(tokens)}")
    return value


def parse_duration(tokens: list[Token]) -> Scope:
    """Return a duration in normal form: a number of ticks, or a string in lower case with single blanks.

    Raises Refusal if it is too long, or a number without a unit that is not whole. Nothing else is checked: a string may be no
    duration, and a number may be negative.
    """
    if max(map(len, tokens)) > MAX_DIGITS or len(tokens) > MAX_DIGITS:
        raise Refusal(token_place(tokens[0]), f"a duration of more than {MAX_DIGITS} characters")
    if tokens[0].type == "STRING":
        return " ".join(unquoted(tokens[0]).lower().split())
    if tokens[-1].type == "NUMBER":
        return parse_whole_number(tokens, "a scope without a unit")
    return token_text(tokens).lower()


__all__ = ["parse_duration", "parse_number", "token_place", "unquoted", "parse_whole_number", "token_text"]
