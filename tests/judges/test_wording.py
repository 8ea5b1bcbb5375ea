"""The words of a pattern's text: what reading must not lose, and what a normal form may leave out or write otherwise."""

from __future__ import annotations

import pytest

from streamq.patterns.parser import parse
from streamq.patterns.pattern_text import render
from tests.judges.wording import misread

TEXTS = (
    "EVENT E WHEN SEQUENCE(A x FIRST, B AS first, 12 hours) WHERE {x.a = 1.50} AND {x.b != -0 or not x.c between -1 and 2e3}"
    " OUTPUT x.first AS first, x.a + 1 AS n @ ['2024-05-01',) # [,'2025-01-01')",
    "event E when CANCEL-WHEN(sequence(A, `ALL` AS b EACH REUSE, '5  minutes'), C) -- not\n"
    "where x.a NOT IN ('NOT', 'it''s', 3) AND [zone EQUAL 'a'] AND CorrelationKey(k, EQUAL) /* 7 */",
)


@pytest.mark.parametrize("text", TEXTS)
def test_of_a_text_that_is_read_rightly_nothing_is_lost(text: str) -> None:
    assert misread(text, render(parse(text))) is None


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("NOT IN", "IN"),
        ("EQUAL 'a'", "UNIQUE"),
        ("5  minutes", "6 minutes"),
        ("'it''s', 3", "'it''s'"),
        ("A, `ALL` AS b", "`ALL` AS b, A"),
        ("(k, EQUAL)", "(EQUAL)"),
        ("x.a NOT", "x.b NOT"),
    ],
)
def test_a_word_that_is_lost_moved_or_another_is_seen(word: str, instead: str) -> None:
    assert word in TEXTS[1]
    assert misread(TEXTS[1], TEXTS[1].replace(word, instead)) is not None
