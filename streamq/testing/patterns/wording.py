"""The words of a pattern's text: whether reading it has lost, added or changed one."""

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
"""Those that are not said where they go without saying."""
_SIGNS = {"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "@", "#"}
_SAME = {"!=": "<>"} | _HYPHENED


def misread(source: str, shown: str) -> str | None:
    """What a text and the same in normal form do not have in common, of keywords, signs and numbers; None: nothing.

    What is called by AS is no part of it, as a normal form need not repeat it, nor is the order of keywords and signs.
    """
    (words, numbers), (words_shown, numbers_shown) = _words(source), _words(shown)
    if numbers != numbers_shown:
        return f"the numbers {numbers} are read as {numbers_shown}"
    lost, added = words - words_shown, words_shown - words
    if lost or added:
        return f"{sorted(lost.elements())} is not read, and {sorted(added.elements())} is read into it"
    return None


def _words(text: str) -> tuple[Counter[str], list[float]]:
    """The keywords and signs of a text, and its numbers in order; of what stands in quotes the words as well."""
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
