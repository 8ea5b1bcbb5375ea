"""A picture of a pattern, for explain: its operators as a tree of lines or as boxes of a page, each with what it keeps.

What an operator keeps is bounded by its scope: an event stays until nothing that may still come can make a match with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from streamq.compiler.explain_html import Part as Explained
from streamq.patterns import syntax
from streamq.patterns.checks import children, chooses, parts_of
from streamq.patterns.rendering import render, shown_duration, shown_part
from streamq.patterns.syntax import Definition, Part, Program
from streamq.time import TIMESTAMP, length, show_duration

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
    """An operator of a pattern, or the events of a type: what it is, what it keeps, and its parts.

    negated: whether it must not be there; is_ordered: whether its parts come one after the other.
    """

    title: str
    keeps: str = ""
    parts: tuple[Box, ...] = ()
    negated: bool = False
    is_ordered: bool = False


def explained(program: Program, text: str) -> Explained:
    """The pattern, which is written so, as a part of an explanation."""
    definitions = {d.name: d for d in program.definitions}
    lines: list[str] = []
    pictures: list[str] = []
    for name, definition in definitions.items():
        box, rest = _box(definition.pattern, definitions), render(Program((definition,))).split("\n")[2:]
        lines += [name, *_lines(box, "  ", "  "), *(f"  {line}" for line in rest)]
        below = f'<div class="keeps">{"<br>".join(map(escape, rest))}</div>' if rest else ""
        pictures.append(f"<div>{escape(name)}</div>{_boxes(box)}{below}")
    data = {"text": text, "tree": lines}
    return Explained("pattern", "pattern", lines, data, f"<style>{STYLE}</style>\n" + "\n".join(pictures))


# lines


def _lines(box: Box, first: str, rest: str) -> Iterator[str]:
    no = "no " if box.negated else ""
    keeps = f"  (keeps {box.keeps})" if box.keeps else ""
    yield f"{first}{no}{box.title}{keeps}"
    for number, part in enumerate(box.parts, 1):
        is_last = number == len(box.parts)
        yield from _lines(part, rest + ("└ " if is_last else "├ "), rest + ("  " if is_last else "│ "))


# boxes


def _boxes(box: Box) -> str:
    kind = "negated" if box.negated else "pattern" if box.parts else "event"
    no = '<span class="no">no </span>' if box.negated else ""
    arrangement = "parts" if box.is_ordered else "parts alternatives"
    parts = (ARROW if box.is_ordered else "").join(map(_boxes, box.parts))
    below = f'<div class="{arrangement}">{parts}</div>' if box.parts else ""
    keeps = f'<div class="keeps">keeps {escape(box.keeps)}</div>' if box.keeps else ""
    return f'<div class="{kind}">{no}{escape(box.title)}{below}{keeps}</div>'


# what is shown


def _box(part: Part, definitions: Mapping[str, Definition], *, negated: bool = False) -> Box:
    def below(*parts: Part) -> tuple[Box, ...]:
        return tuple(_box(p, definitions) for p in parts)

    def absent(other: Part) -> Box:
        return _box(other, definitions, negated=True)

    def shown(name: str, parts: tuple[Box, ...], within: str = "", keeps: str = "", *, is_ordered: bool = False) -> Box:
        scope = f" within {within}" if within else ""
        lag = max((_lag(p, definitions) for p in children(part.pattern)), default=0)
        if keeps and lag:
            keeps += f", and the {_amount(lag, part, definitions)} that an UNLESS below waits"
        words = shown_part(part).removeprefix(shown_part(Part(part.pattern)))
        return Box(f"{name}{scope}{words}", keeps, parts, negated, is_ordered)

    match part.pattern:
        case syntax.Type():
            return Box(shown_part(part), negated=negated)
        case syntax.Sequence(parts, within):
            scope = _scope(within)
            earlier = _names(parts[:-1])
            begun = ", and what they have begun," if len(parts) > 2 and not chooses(parts) else ""
            return shown("SEQUENCE", below(*parts), scope, f"{earlier}{begun} for {scope}", is_ordered=True)
        case syntax.All(parts, within) | syntax.AtLeast(_, parts, within):
            count = len(parts) if isinstance(part.pattern, syntax.All) else part.pattern.count
            name = "ALL" if isinstance(part.pattern, syntax.All) else f"ATLEAST {count}"
            scope = _scope(within)
            begun = ", and what they have begun," if count > 2 and not chooses(parts) else ""
            return shown(name, below(*parts), scope, f"{_names(parts)}{begun} for {scope}" if count > 1 else "")
        case syntax.AnyOf(parts):
            return shown("ANY", below(*parts))
        case syntax.AtMost(count, parts, within):
            scope = _scope(within)
            return shown(f"ATMOST {count}", below(*parts), scope, f"{_names(parts)} for {scope}")
        case syntax.Unless(positive, other, within, nth):
            scope = _scope(within)
            since = "" if nth is None else f" of contributor {nth}"
            reaches_further = nth is not None and _span(positive, definitions) > length(within)
            keeps = f"{_names([positive, other])} for {_reach(positive, definitions) if reaches_further else scope}"
            return shown("UNLESS", (*below(positive), absent(other)), f"{scope}{since}", keeps, is_ordered=True)
        case syntax.Not(other, positive):
            inner = positive.pattern
            assert isinstance(inner, syntax.Sequence | syntax.AtLeast | syntax.All)
            return shown("NOT", (absent(other), *below(positive)), "", f"{_names([other])} for {_scope(inner.within)}")
        case syntax.CancelWhen(positive, other):
            reach = f"{_names([other])} for {_reach(positive, definitions)}"
            return shown("CANCEL_WHEN", (*below(positive), absent(other)), keeps=reach)


def _names(parts: tuple[Part, ...] | list[Part]) -> str:
    """What parts are called, as an enumeration."""
    names = [
        p.variable or (p.pattern.name if isinstance(p.pattern, syntax.Type) else "matches of " + _word(p))
        for p in parts
    ]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _word(part: Part) -> str:
    return shown_part(Part(part.pattern)).partition("(")[0]


def _scope(within: syntax.Duration) -> str:
    return f"{within} ticks" if isinstance(within, int) else shown_duration(within)


def _lag(part: Part, definitions: Mapping[str, Definition]) -> int:
    """How long a match may wait at most until nothing can take it back, in ticks."""
    below = max((_lag(p, definitions) for p in children(part.pattern)), default=0)
    match part.pattern:
        case syntax.Type(name) if name in definitions:
            return _lag(definitions[name].pattern, definitions)
        case syntax.Unless(_, _, within):
            return below + length(within)
    return below


def _amount(ticks: int, part: Part, definitions: Mapping[str, Definition]) -> str:
    """A number of ticks in words, in units where the pattern's scopes have such."""
    scopes = [p.pattern.within for p in _all_parts(part, definitions) if hasattr(p.pattern, "within")]
    return show_duration(ticks, TIMESTAMP) if any(isinstance(scope, str) for scope in scopes) else _scope(ticks)


def _reach(part: Part, definitions: Mapping[str, Definition]) -> str:
    """How far a match's root can lie before its start."""
    return _amount(_span(part, definitions), part, definitions)


def _all_parts(whole: Part, definitions: Mapping[str, Definition]) -> Iterator[Part]:
    """Yield a part and all parts below it, those of the definitions that it uses too."""
    for part in parts_of(whole):
        yield part
        if isinstance(part.pattern, syntax.Type) and part.pattern.name in definitions:
            yield from _all_parts(definitions[part.pattern.name].pattern, definitions)


def _span(part: Part, definitions: Mapping[str, Definition]) -> int:
    """How far a match's root can lie before its start, in ticks."""
    match part.pattern:
        case syntax.Type(name):
            return _span(definitions[name].pattern, definitions) if name in definitions else 0
        case syntax.Sequence(parts, within) | syntax.All(parts, within) | syntax.AtLeast(_, parts, within):
            return length(within) + max(_span(p, definitions) for p in parts)
        case syntax.AnyOf(parts) | syntax.AtMost(_, parts):
            return max(_span(p, definitions) for p in parts)
        case syntax.Unless(positive) | syntax.Not(_, positive) | syntax.CancelWhen(positive):
            return _span(positive, definitions)


__all__ = ["explained"]
