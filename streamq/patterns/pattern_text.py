"""Write programs as text in a normal form, ``parse(render(program)) == program`` for every program, and draw them for explain.

A picture shows operators as a tree of lines or as boxes of a page, each with the events that it keeps: an event is kept as long
as its scope, until no later event can make a match with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from streamq.choices import Consumption, Selection
from streamq.compiler.plan_graph import Section
from streamq.html import markup_text
from streamq.patterns import syntax
from streamq.patterns.advice import is_keyword
from streamq.patterns.pattern_operator import PatternOperator, PictureWords
from streamq.patterns.pattern_tree import ArgumentKind, PatternTree, Type
from streamq.patterns.syntax import Definition, Part, Program

OR, AND, NOT, COMPARISON, SUM, PRODUCT, SIGN, PRIMARY = range(8)
"""The precedence of expressions; an operand of lower precedence than its place requires stands in parentheses."""

_BINARY: Final = dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), COMPARISON) | {
    "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "%": PRODUCT,
}  # fmt: skip
_PLAIN_TYPE = re.compile(r"[a-z_]\w*(\([0-9]+(, [0-9]+)?\))?")
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")


def render(program: Program) -> str:
    """Return the text of a program in normal form.

    >>> from streamq.patterns.parser import parse
    >>> print(render(parse("event P when sequence(A x, B first, 5 min) where {x.a=1} and {x.b is null}")))
    EVENT P
    WHEN SEQUENCE(A AS x, B FIRST, 5 min)
    WHERE x.a = 1
      AND x.b IS NULL
    """
    return "\n\n".join(map(_definition, program.definitions))


def _definition(definition: Definition) -> str:
    """Return the text of a definition, a line for each clause."""
    lines = [f"EVENT {_name(definition.name)}", f"WHEN {shown_part(definition.pattern)}"]
    if definition.where:
        least = OR if len(definition.where) == 1 else NOT
        lines.append("WHERE " + "\n  AND ".join(shown_expression(c, least) for c in definition.where))
    if definition.output:
        lines.append("OUTPUT " + ", ".join(map(_output_field, definition.output)))
    if definition.occurrence:
        lines.append(f"@ {_slice(definition.occurrence)}")
    if definition.validity:
        lines.append(f"# {_slice(definition.validity)}")
    return "\n".join(lines)


def shown_part(part: Part) -> str:
    """Return the text of a part; EACH and REUSE, which are the default, are left out."""
    words = [shown_pattern(part.pattern)]
    if part.variable is not None:
        words += ["AS", _name(part.variable)]
    if part.selection != Selection.EACH:
        words.append(part.selection.upper())
    if part.consumption != Consumption.REUSE:
        words.append(part.consumption.upper())
    return " ".join(words)


def shown_pattern(pattern: PatternTree) -> str:
    """Return the text of a pattern."""
    if isinstance(pattern, Type):
        return _name(pattern.name)
    shown: list[str] = []
    for argument in pattern.signature:
        value = getattr(pattern, argument.field)
        match argument.form:
            case ArgumentKind.PARTS:
                shown += map(shown_part, value)
            case ArgumentKind.PART:
                shown.append(shown_part(value))
            case ArgumentKind.SCOPE:
                shown.append(syntax.shown_duration(value))
            case ArgumentKind.COUNT:
                shown += [] if value is None else [str(value)]
    return _call(pattern.keyword, *shown)


def _call(name: str, *arguments: str) -> str:
    return f"{name}({', '.join(arguments)})"


def _output_field(field: syntax.OutputField) -> str:
    """Return the text of an output field; the name is left out if it is that of the field that the expression reads."""
    text = shown_expression(field.expression)
    match field.expression:
        case syntax.EventField(_, name) if name == field.name:
            return text
    return f"{text} AS {_word(field.name)}"


def _slice(bounds: syntax.Slice) -> str:
    start, end = ("" if bound is None else _literal(bound) for bound in (bounds.start, bounds.end))
    return f"[{start}, {end})"


def shown_expression(node: syntax.Condition, least: int = OR) -> str:
    """Return the text of a condition or an expression, in parentheses if its precedence is below ``least``."""
    match node:
        case syntax.EventField(variable, name):
            return _name(name) if variable is None else f"{_name(variable)}.{_word(name)}"
        case syntax.Literal():
            return _literal(node)
        case syntax.CorrelationKey(attributes, equal):
            return _call("CorrelationKey", *map(_name, attributes), "EQUAL" if equal else "UNIQUE")
        case syntax.AttributeEquals(attribute, value):
            return f"[{_name(attribute)} EQUAL {_literal(value)}]"
        case syntax.Apply():
            text, binding = _operation(node)
            return f"({text})" if binding < least else text


def _operation(node: syntax.Apply) -> tuple[str, int]:
    """Return the text of a function call or operator, and its precedence."""
    match node.function, node.arguments:
        case "or", arguments:
            return " OR ".join(shown_expression(a, AND) for a in arguments), OR
        case "and", arguments:
            return " AND ".join(shown_expression(a, NOT) for a in arguments), AND
        case "not", (syntax.Apply("in" | "between" | "like") as inner,):
            return _comparison(inner, "NOT "), COMPARISON
        case "not", (operand,):
            return f"NOT {shown_expression(operand, NOT)}", NOT
        case "in" | "between" | "like", _:
            return _comparison(node, ""), COMPARISON
        case "is null" | "is not null" as test, (operand,):
            return f"{shown_expression(operand, SUM)} {test.upper()}", COMPARISON
        case "negative", (operand,) if not _is_positive_number(operand):
            return f"- {shown_expression(operand, SIGN)}", SIGN
        case "case when", parts:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            branches = "".join(f" WHEN {shown_expression(c)} THEN {shown_expression(v)}" for c, v in pairs)
            default = f" ELSE {shown_expression(parts[-1])}" if len(parts) % 2 else ""
            return f"CASE{branches}{default} END", PRIMARY
        case "cast as", (value, syntax.Literal(str() as kind)):
            shown = kind if _PLAIN_TYPE.fullmatch(kind) else syntax.shown_text(kind)
            return f"CAST({shown_expression(value)} AS {shown})", PRIMARY
        case function, (left, right) if function in _BINARY:
            binding = _BINARY[function]
            before = SUM if binding == COMPARISON else binding
            return f"{shown_expression(left, before)} {function} {shown_expression(right, binding + 1)}", binding
        case function, arguments:
            return _call(function, *(shown_expression(a) for a in arguments)), PRIMARY


def _comparison(node: syntax.Apply, inverse: str) -> str:
    """Return the text of IN, BETWEEN or LIKE; ``inverse``, "NOT " or "", stands before the keyword."""
    operand, *others = node.arguments
    left = f"{shown_expression(operand, SUM)} {inverse}{node.function.upper()}"
    if node.function == "in":
        return _call(f"{left} ", *(shown_expression(o) for o in others))
    return f"{left} {' AND '.join(shown_expression(o, SUM) for o in others)}"


def _is_positive_number(node: syntax.Expression) -> bool:
    """Return True if the parser would read a sign before the expression as part of a constant."""
    match node:
        case syntax.Literal(int() | float() as value) if not isinstance(value, bool):
            return math.copysign(1, value) > 0
    return False


def _literal(node: syntax.Literal) -> str:
    match node.value:
        case None:
            return "NULL"
        case bool() as value:
            return str(value).upper()
        case str() as value:
            return syntax.shown_text(value)
        case value:
            return repr(value)


def _name(name: str) -> str:
    """Return the text of a name, in backticks if it is a keyword or no plain word."""
    return f"`{name}`" if is_keyword(name) else _word(name)


def _word(name: str) -> str:
    """Return the text of a name where no keyword can stand, in backticks if it is no plain word."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


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
    html = f"<style>{STYLE}</style>\n" + "\n".join(pictures)
    return Section("pattern", "pattern", lines, lambda: {"text": text, "tree": lines}, html)


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
