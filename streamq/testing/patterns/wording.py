"""Compare the words of a pattern's text with those of its normal form, to see if the parser lost, added or changed one."""

from __future__ import annotations

import re
from collections import Counter

from streamq.patterns.legal_words import keywords

_HYPHENED = {word.replace("_", "-"): word for word in keywords() if "_" in word}
_WORDS = re.compile(
    rf"--[^\n]*|//[^\n]*|/\*.*?\*/|\bAS\s+\w+|(?:{'|'.join(_HYPHENED)})\b|-\s*0+(?![\w.])|\d+(?:\.\d*)?(?:E[+-]?\d+)?"
    r"|\w+|<>|!=|<=|>=|[^\w\s]",
    re.DOTALL | re.IGNORECASE,
)
_KEYWORDS = {word.upper() for word in keywords()} - {"AS", "EACH", "REUSE"}
"""Keywords to be compared; the others are defaults, which a normal form leaves out."""
_SIGNS = {"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "@", "#"}
_SAME = {"!=": "<>"} | _HYPHENED


def misread(source: str, shown: str) -> str | None:
    """Return the difference between a text and its normal form in keywords, signs and numbers; None if there is none.

    Names after AS are not compared, because a normal form may repeat none, nor is the order of keywords and signs.
    """
    (words, numbers), (words_shown, numbers_shown) = _words(source), _words(shown)
    if numbers != numbers_shown:
        return f"the numbers {numbers} are read as {numbers_shown}"
    lost, added = words - words_shown, words_shown - words
    if lost or added:
        return f"{sorted(lost.elements())} is not read, and {sorted(added.elements())} is read into it"
    return None


def _words(text: str) -> tuple[Counter[str], list[float]]:
    """Return the keywords and signs of a text, and its numbers in order; words in quotes count as well."""
    words: Counter[str] = Counter()
    numbers = []
    for found in _WORDS.finditer(re.sub("['`]", " ", text)):
        word = found[0].upper()
        if word[0].isdigit():
            numbers.append(float(word))
        elif word[0] == "-" and word.endswith("0") and word.strip("-0 \n\t") == "":
            # no other number than 0
            numbers.append(0.0)
        elif (word := _SAME.get(word, word)) in _KEYWORDS | _SIGNS:
            words[word] += 1
    return words, numbers


__all__ = ["misread"]
