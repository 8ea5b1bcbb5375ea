"""The picture of a pattern in explain: what stands in what, and what each operator keeps."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

import streamq as sq
from streamq.errors import PlanError

ROWS = [(1, 2, {"k": 1, "v": 2})]
STREAMS = {name: sq.events(ROWS) for name in "ABCD"}
TEXT = """
EVENT P WHEN SEQUENCE(A, B, C AS x, 12) WHERE CorrelationKey(k, EQUAL)
EVENT Q WHEN CANCEL_WHEN(UNLESS(P AS p, ATLEAST(2, B, C, D, 4) AS s, 1, 9),
  NOT(A AS z, SEQUENCE(C AS c FIRST CONSUME, D AS d, 3)))
"""


def test_lines() -> None:
    expected = """
pattern
  P
    SEQUENCE within 12 ticks  (keeps A and B, and what they have begun, for 12 ticks)
    ├ A
    ├ B
    └ C AS x
    WHERE CorrelationKey(k, EQUAL)
  Q
    CANCEL_WHEN  (keeps matches of NOT for 12 ticks, and the 9 ticks that an UNLESS below waits)
    ├ UNLESS within 9 ticks of contributor 1  (keeps p and s for 12 ticks)
    │ ├ P AS p
    │ └ no ATLEAST 2 within 4 ticks AS s  (keeps B, C and D for 4 ticks)
    │   ├ B
    │   ├ C
    │   └ D
    └ no NOT  (keeps z for 3 ticks)
      ├ no A AS z
      └ SEQUENCE within 3 ticks  (keeps c for 3 ticks)
        ├ C AS c FIRST CONSUME
        └ D AS d"""
    assert sq.cedr(TEXT, **STREAMS).explanation("pattern") == expected.strip()


def test_it_comes_before_the_plan_and_as_data() -> None:
    pattern = sq.sequence(STREAMS["A"].alias("a"), STREAMS["B"].alias("b"), within=5)
    assert pattern.explanation().startswith("pattern\n  Pattern\n    SEQUENCE within 5 ticks  (keeps a for 5 ticks)")
    assert "\nlogical plan\n" in pattern.explanation()
    data = json.loads(pattern.explanation("pattern", "json"))["pattern"]
    assert data["text"] == pattern.text and len(data["tree"]) == 4
    with pytest.raises(PlanError, match="mode"):
        STREAMS["A"].explanation("pattern")


def test_boxes_are_well_formed_and_escaped() -> None:
    page = sq.cedr(TEXT, **STREAMS).explanation(format="html")
    open_tags: list[str] = []
    classes: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            open_tags.append(tag)
            classes.append(dict(attrs).get("class") or "")

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Reader().feed(page)
    assert open_tags == []
    assert classes.count("event") == 9 and classes.count("negated") == 3
    odd = sq.cedr("EVENT E WHEN ANY(`<b>` AS x)", **{"<b>": STREAMS["A"]})
    assert "&lt;b&gt;" in odd.explanation(format="html") and "<b>" not in odd.explanation(format="html")
