"""Compare the words of a pattern's text with those of its normal form: the parser must not lose, add, change or move one."""

from __future__ import annotations

import re
from collections import Counter
from itertools import zip_longest

from streamq.patterns.advice import keywords

_HYPHENED = {word.replace("_", "-"): word for word in keywords() if "_" in word}
_WORDS = re.compile(
    rf"--[^\n]*|//[^\n]*|/\*.*?\*/|\bAS\s+\w+|(?:{'|'.join(_HYPHENED)})\b|-\s*0+(?![\w.])|\d+(?:\.\d*)?(?:E[+-]?\d+)?"
    r"|\w+|<>|!=|<=|>=|[^\w\s]",
    re.DOTALL | re.IGNORECASE,
)
_DEFAULTS = {"EACH", "REUSE"}
"""Keywords that a normal form leaves out."""
_KEYWORDS = {word.upper() for word in keywords()} - {"AS", *_DEFAULTS}
"""Keywords to be compared."""
_SIGNS = {"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "@", "#"}
_SAME = {"!=": "<>"} | _HYPHENED


def misread(source: str, shown: str) -> str | None:
    """Return the first difference between a text and its normal form: in numbers, else in words and signs; None if there is none.

    Words are keywords and names, in their order; comments are skipped. Variables, which stand after AS or directly after a type,
    are not compared, because a normal form may repeat none; NOT and signs are counted only, because a normal form may move them.
    """
    read, written = _Words(source), _Words(shown)
    if read.numbers != written.numbers:
        return f"the numbers {read.numbers} are read as {written.numbers}"
    lost, added = read.counted - written.counted, written.counted - read.counted
    if lost or added:
        return f"{sorted(lost.elements())} is not read, and {sorted(added.elements())} is read into it"
    if read.ordered != written.ordered:
        at = next(i for i, pair in enumerate(zip_longest(read.ordered, written.ordered)) if pair[0] != pair[1])
        return f"{' '.join(read.ordered[at:])!r} is read as {' '.join(written.ordered[at:])!r}"
    return None


class _Words:
    """The words of a text in capitals, without defaults; words in quotes count as well.

    ``counted``: its keywords and signs. ``ordered``: its keywords but NOT, and its names that are no variables. ``numbers``: its
    numbers in order.
    """

    def __init__(self, text: str):
        self.counted: Counter[str] = Counter()
        self.ordered: list[str] = []
        self.numbers: list[float] = []
        after_name = False
        for match in _WORDS.finditer(re.sub("['`]", " ", text)):
            word = match[0].upper()
            if word in _DEFAULTS:
                continue
            is_name = False
            if word[0].isdigit():
                self.numbers.append(float(word))
            elif word[0] == "-" and word.endswith("0") and word.strip("-0 \n\t") == "":
                # no other number than 0
                self.numbers.append(0.0)
            elif (word := _SAME.get(word, word)) in _KEYWORDS | _SIGNS:
                self.counted[word] += 1
                self.ordered += [word] if word in _KEYWORDS - {"NOT"} else []
            elif is_name := match[0][0].isalpha() or word[0] == "_":
                # a name directly after a name, or after a pattern, is a variable
                self.ordered += [] if after_name or word.startswith("AS ") else [word]
            after_name = is_name or word == ")"


__all__ = ["misread"]
