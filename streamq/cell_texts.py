"""Texts of values and names in tables and sentences: no character controls a terminal, and a long value is shortened."""

from __future__ import annotations

import re
from collections.abc import Callable

WIDEST = 500
"""The characters of a value that a table as text shows."""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Matches what moves the cursor, ends a line or turns it round, or controls a terminal, and halves of surrogate pairs."""

_HALVES = re.compile("[\ud800-\udfff]")


def with_escapes(text: str) -> str:
    r"""Return a text with the escapes of Python's literals in the place of control characters and line ends.

    >>> print(with_escapes("a\tb\x1b[31m"))
    a\tb\x1b[31m
    """
    return _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


def has_half_a_pair(text: str) -> bool:
    r"""Return True for a text with half a surrogate pair, which cannot be encoded.

    >>> has_half_a_pair("\ud83d"), has_half_a_pair("\U0001f600")
    (True, False)
    """
    return _HALVES.search(text) is not None


def shortened_value(text: str, quote: Callable[[str], str] = with_escapes) -> str:
    """Return the text of a value as ``quote`` shows it; of one longer than WIDEST the beginning, with its length behind."""
    if len(text) <= WIDEST:
        return quote(text)
    return f"{quote(text[:WIDEST])}… ({len(text):,} characters)"


__all__ = ["WIDEST", "has_half_a_pair", "shortened_value", "with_escapes"]
