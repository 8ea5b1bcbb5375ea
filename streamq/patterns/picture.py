"""Draw a pattern for explain: its operators as a tree of lines or as boxes of a page, each with the events that it keeps.

An operator keeps an event as long as its scope: until no later event can make a match with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from streamq.compiler.explain_html import Section
from streamq.markup import markup_text
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_text import render, shown_part, shown_pattern
from streamq.patterns.picture_words import PictureWords
from streamq.patterns.syntax import Part, Program

STYLE: Final = """
  .streamq .event, .streamq .negated, .streamq .pattern { display: inline-block; vertical-align: middle; margin: .2em;
    padding: .3em .6em; border: 1px solid #4a8; border-radius: .4em; }
  .streamq .event { background: color-mix(in srgb, #4a8 14%, transparent); }
  .streamq .negated { border: 1px dashed #c44; }
  .streamq .negated > .no { color: #c44; font-weight: 600; }
  .streamq .keeps { font-size: .85em; opacity: .75; }
  .streamq .parts { display: flex; align-items: center; }
  .streamq .parts.alternatives { flex-direction: column; align-items: start; }
"""

ARROW: Final = "<span>&#8594;</span>"


@dataclass(frozen=True)
class Box:
    """An operator of a pattern, or the events of a type: its title, the events that it keeps, and its parts.

    negated: True if it must not occur; is_ordered: True if its parts come one after the other.
    """

    title: str
    keeps: str = ""
    parts: tuple[Box, ...] = ()
    negated: bool = False
    is_ordered: bool = False


def picture_section(program: Program, text: str) -> Section:
    """Return the part of an explanation that shows a pattern; ``text`` is the pattern as text."""
    definitions = {d.name: d for d in program.definitions}
    words = PictureWords(definitions)
    lines: list[str] = []
    pictures: list[str] = []
    for name, definition in definitions.items():
        box, rest = _box(definition.pattern, words), render(Program((definition,))).split("\n")[2:]
        lines += [name, *_lines(box, "  ", "  "), *(f"  {line}" for line in rest)]
        below = f'<div class="keeps">{"<br>".join(map(markup_text, rest))}</div>' if rest else ""
        pictures.append(f"<div>{markup_text(name)}</div>{_boxes(box)}{below}")
    data = {"text": text, "tree": lines}
    return Section("pattern", "pattern", lines, data, f"<style>{STYLE}</style>\n" + "\n".join(pictures))


# lines


def _lines(box: Box, first: str, rest: str) -> Iterator[str]:
    """Yield the lines of a box and of the parts below it; ``first`` begins its own line, ``rest`` those of its parts."""
    no = "no " if box.negated else ""
    keeps = f"  (keeps {box.keeps})" if box.keeps else ""
    yield f"{first}{no}{box.title}{keeps}"
    for number, part in enumerate(box.parts, 1):
        is_last = number == len(box.parts)
        yield from _lines(part, rest + ("└ " if is_last else "├ "), rest + ("  " if is_last else "│ "))


# boxes


def _boxes(box: Box) -> str:
    """Return the HTML of a box, with those of its parts inside."""
    kind = "negated" if box.negated else "pattern" if box.parts else "event"
    no = '<span class="no">no </span>' if box.negated else ""
    arrangement = "parts" if box.is_ordered else "parts alternatives"
    parts = (ARROW if box.is_ordered else "").join(map(_boxes, box.parts))
    below = f'<div class="{arrangement}">{parts}</div>' if box.parts else ""
    keeps = f'<div class="keeps">keeps {markup_text(box.keeps)}</div>' if box.keeps else ""
    return f'<div class="{kind}">{no}{markup_text(box.title)}{below}{keeps}</div>'


# boxes of parts


def _box(part: Part, words: PictureWords, *, negated: bool = False) -> Box:
    """Return the box of a part, with those of its own parts; ``negated``: no event of the part must be there."""
    pattern = part.pattern
    negatives = set(map(id, pattern.negatives))
    parts = tuple(_box(p, words, negated=id(p) in negatives) for p in pattern.children)
    if not isinstance(pattern, PatternOperator):
        return Box(shown_part(part), negated=negated)
    scope, keeps = pattern.scope_in_words(words), pattern.keeps(words)
    waits = max(words.extent(p).waits for p in pattern.children)
    if keeps and waits:
        keeps += f", and the {words.amount(waits, part)} that an UNLESS below waits"
    naming = shown_part(part).removeprefix(shown_pattern(pattern))
    title = f"{pattern.title}{scope and f' within {scope}'}{naming}"
    return Box(title, keeps, parts, negated, pattern.is_ordered)


__all__ = ["picture_section"]
