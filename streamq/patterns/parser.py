"""The parser of the CEDR language: an LALR parser, which takes time linear in the text and does not recurse.

A text has limits, and errors show an excerpt of it.
A program is then checked beyond its grammar: counts, negations, variables, and the places of conditions.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Final, cast

from streamq.choices import Consumption, Selection
from streamq.errors import CedrError, PlanError, kind_of, sentence
from streamq.patterns import syntax
from streamq.patterns.advice import keyword_like, keywords, keywords_of, legal_sentence, sign_at, unexpected_at
from streamq.patterns.operators import operators
from streamq.patterns.pattern_text import shown_expression
from streamq.patterns.pattern_tree import Extent, extent_of, leaves, parts_of
from streamq.patterns.syntax import MAX_DEPTH, MAX_EVENTS, Definition, Part, Place, Program, Refusal

if TYPE_CHECKING:
    from lark import Lark, UnexpectedInput


MAX_LENGTH: Final = 1_000_000
"""The greatest number of characters of a text."""
MAX_SIGNS: Final = 105_000
"""The greatest number of words, numbers, strings and other signs of a text: 10,000 comparisons, or about two seconds."""


SHOWN_WIDTH: Final = 76
"""The number of characters of a line that an error shows around its caret."""

_FORBIDDEN = re.compile("[\0\ud800-\udfff]")
_SIGNS = re.compile(r"'[^']*'|`[^`]*`|--[^\n]*|//[^\n]*|/\*.*?\*/|/\*|\w+|[^\w\s]", re.DOTALL)
_OPENED = {
    "'": "a string without its closing '",
    "`": "a name without its closing `",
    "/*": "a comment without its closing */",
}


class SourceText:
    """A text whose characters have places."""

    def __init__(self, text: str) -> None:
        self.text = text

    def place(self, offset: int) -> Place:
        """Return the place of the character at an offset."""
        return Place(self.text.count("\n", 0, offset) + 1, offset - (self.text.rfind("\n", 0, offset) + 1) + 1)

    def offset(self, place: Place) -> int:
        """Return the offset of the character at a place."""
        start = 0
        for _ in range(place.line - 1):
            start = self.text.index("\n", start) + 1
        return start + place.column - 1

    def end(self) -> Place:
        """Return the place after the last character that is not blank."""
        return self.place(len(self.text.rstrip()))

    def error(self, place: Place, wrong: str, observed: str = "", hint: str = "") -> CedrError:
        """Return the error for a place: a sentence with line and column, then the line with a caret under the place."""
        message = sentence(f"cedr, line {place.line}, column {place.column}", wrong, observed, hint)
        return CedrError(f"{message}\n{self._excerpt(place)}", place.line, place.column)

    def refused(self, refusal: Refusal) -> CedrError:
        """Return a refusal as an error of this text."""
        return self.error(refusal.place, refusal.wrong, refusal.observed, refusal.hint)

    def _excerpt(self, place: Place) -> str:
        """Return the line of a place, cut to SHOWN_WIDTH, and below it a line with a caret under the place."""
        lines = self.text.split("\n", place.line)
        line = lines[place.line - 1] if place.line <= len(lines) else ""
        caret = place.column - 1
        start = max(0, min(caret - SHOWN_WIDTH // 2, len(line) - SHOWN_WIDTH))
        shown = "".join(c if c.isprintable() else " " for c in line[start : start + SHOWN_WIDTH])
        left, right = "..." if start else "", "..." if start + SHOWN_WIDTH < len(line) else ""
        return f"    {left}{shown.rstrip()}{right}\n    {' ' * (len(left) + caret - start)}^"


def source_text(text: str | bytes) -> SourceText:
    """Return a text that can be parsed in bounded time.

    Raises CedrError for a text that is too long, is not UTF-8, has an illegal character, nests its brackets too deep, or has a
    string, a name or a comment without an end; PlanError for anything but text.
    """
    if not isinstance(text, str | bytes):
        raise PlanError("cedr", "the text is a string, or bytes in UTF-8", f"found {kind_of(text)}")
    if len(text) > (MAX_LENGTH if isinstance(text, str) else 4 * MAX_LENGTH):
        raise _too_long(text[:1000] if isinstance(text, str) else text[:1000].decode("utf-8", "replace"))
    source = SourceText(text if isinstance(text, str) else _decoded(text))
    if len(source.text) > MAX_LENGTH:
        raise _too_long(source.text[:1000])
    if wrong := _FORBIDDEN.search(source.text):
        code = f"found U+{ord(wrong[0]):04X}"
        raise source.error(source.place(wrong.start()), "a character that no text has", code)
    _check_signs(source)
    return source


def _too_long(beginning: str) -> CedrError:
    return SourceText(beginning).error(Place(1, 1), f"the text is longer than {MAX_LENGTH:,} characters")


def _decoded(text: bytes) -> str:
    """Return bytes in UTF-8 as text; raise CedrError at the first byte that is none."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as e:
        source = SourceText(text.decode("utf-8", "replace"))
        place = source.place(len(text[: e.start].decode("utf-8")))
        raise source.error(place, "the text is not UTF-8", f"found byte 0x{text[e.start]:02X}") from None


def _check_signs(source: SourceText) -> None:
    """Raise CedrError for too many signs, brackets, NOT or minus nested too deep, a string, name or comment without an end."""
    depth = prefixes = 0
    for number, sign in enumerate(_SIGNS.finditer(source.text)):
        prefixes = prefixes + 1 if sign[0].upper() in ("-", "NOT") else 0
        match sign[0]:
            case "[" | "(" | "{":
                depth += 1
            case "]" | ")" | "}":
                depth -= 1
            case "/*" | "'" | "`" as opening:
                raise source.error(source.place(sign.start()), _OPENED[opening])
        if max(depth, prefixes) > MAX_DEPTH:
            what = "brackets" if depth > MAX_DEPTH else "an expression"
            raise source.error(source.place(sign.start()), f"{what} nested more than {MAX_DEPTH} deep")
        if number == MAX_SIGNS:
            raise source.error(source.place(sign.start()), f"the text has more than {MAX_SIGNS:,} words and signs")


def check_program(program: Program) -> None:
    """Raise Refusal at the first place of a program that is wrong whatever its event types are."""
    extents: dict[str, Extent] = {}
    names = [definition.name for definition in program.definitions]
    for at, definition in enumerate(program.definitions):
        if definition.name in extents:
            raise Refusal(definition.place, "two definitions of one name", f"found {definition.name!r} again")
        _check_uses(definition, names[at:])
        _check_depth(definition.pattern)
        _check_variables(definition)
        for part in _innermost_first(definition.pattern):
            for other in part.pattern.negatives:
                _check_negated(other)
            part.pattern.check(extents)
        for condition in definition.where:
            _check_condition(condition, top=True)
        _check_output(definition)
        extents[definition.name] = extent_of(definition, extents)


def advise(program: Program, primitive: Collection[str]) -> Iterator[str]:
    """Yield the warnings about a program; ``primitive`` are the event types that are not patterns."""
    for definition in program.definitions:
        for part in parts_of(definition.pattern):
            yield from part.pattern.advice(primitive)
    for comparison in _compared_with_null(program):
        yield f"{comparison} is never true, as NULL is equal to nothing; write IS NULL, or IS NOT NULL"


def _compared_with_null(program: Program) -> Iterator[str]:
    """Yield each comparison with NULL in the conditions of a program, as written: none is ever true."""
    for definition in program.definitions:
        for expression in syntax.expressions_in(definition.where):
            if isinstance(expression, syntax.Apply) and expression.function in COMPARISONS:
                if syntax.Literal(None) in expression.arguments:
                    yield shown_expression(expression)


COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


def _innermost_first(whole: Part) -> list[Part]:
    """Return a part and all parts below it, each after its own parts, so that the innermost error is raised first."""
    return [*(part for child in whole.pattern.children for part in _innermost_first(child)), whole]


def _check_depth(whole: Part) -> None:
    """Raise Refusal for operators nested deeper than brackets of a text may be, as verbs can nest them."""
    level = [whole]
    for _ in range(MAX_DEPTH + 1):
        level = [below for part in level for below in part.pattern.children]
    if level:
        hint = "Make an earlier definition of a part, or a stream of its own."
        raise Refusal(level[0].place, f"operators nested more than {MAX_DEPTH} deep", "", hint)


def _check_uses(definition: Definition, names: Iterable[str]) -> None:
    """Raise Refusal for a type that is this definition itself or a later one; ``names`` are those of both."""
    for _, part, kind in leaves(definition.pattern):
        if kind.name in names:
            if kind.name == definition.name:
                wrong, hint = (
                    "a definition that uses itself",
                    "A pattern is made of events and of definitions before it.",
                )
            else:
                wrong, hint = "a definition used before it stands", "Put it first."
            raise Refusal(part.place, wrong, f"found {kind.name!r}", hint)


def _check_variables(definition: Definition) -> None:
    """Raise Refusal for too many events, and for two variables of one name or of names that differ in case only.

    Events without a variable are not compared.
    """
    variables: set[str] = set()
    events = [part for _, part, _ in leaves(definition.pattern)]
    if len(events) > MAX_EVENTS:
        hint = "Make definitions of some of them, or streams that are joined."
        raise Refusal(
            events[MAX_EVENTS].place, f"a pattern of more than {MAX_EVENTS} events", f"found {len(events):,}", hint
        )
    for part in parts_of(definition.pattern):
        if part.variable is not None:
            if part.variable in variables:
                raise Refusal(part.place, "a variable used twice", f"found {part.variable!r} again")
            alike = next((v for v in variables if v.lower() == part.variable.lower()), None)
            if alike is not None:
                hint = "Column names differ in more than case."
                raise Refusal(
                    part.place, "variables that differ in case only", f"found {part.variable!r} and {alike!r}", hint
                )
            variables.add(part.variable)


def _check_negated(part: Part) -> None:
    """Raise Refusal for a negated part that selects or consumes."""
    if part.selection != Selection.EACH or part.consumption != Consumption.REUSE:
        observed = f"found {part.selection.upper()} {part.consumption.upper()}"
        hint = "Nothing of it is in a match, so there is nothing to select or consume."
        raise Refusal(part.place, "a negated pattern is taken as EACH REUSE", observed, hint)


def _check_condition(condition: syntax.Condition, top: bool) -> None:
    """Raise Refusal for a condition over all variables inside another one, and for an IN of too many values.

    ``top``: the condition is one that AND connects in WHERE, so it may itself be over all variables.
    """
    for expression in syntax.expressions_in([condition]):
        match expression:
            case syntax.Apply("in", arguments) as values if len(arguments) > syntax.MAX_VALUES + 1:
                hint = "Join the stream with a table of them first: stream.join_table(values, on=...)."
                raise Refusal(
                    values.place, f"IN of more than {syntax.MAX_VALUES:,} values", f"found {len(arguments) - 1:,}", hint
                )
            case (syntax.CorrelationKey() | syntax.AttributeEquals()) as node if not top or node is not condition:
                name = "CorrelationKey" if isinstance(node, syntax.CorrelationKey) else "[... EQUAL ...]"
                hint = "Connect it with the others by AND."
                raise Refusal(
                    node.place, f"{name} is a whole condition of WHERE", "found it inside an expression", hint
                )


def _check_output(definition: Definition) -> None:
    """Raise Refusal for two output fields of one name, and for a condition over all variables in one."""
    names: set[str] = set()
    for field in definition.output:
        _check_condition(field.expression, top=False)
        if field.name in names:
            raise Refusal(field.place, "two output fields of one name", f"found {field.name!r} again")
        names.add(field.name)


_WORD = re.compile(r"[\w-]+")
_WORD_BEFORE = re.compile(r"(?<![\w.`])([^\W\d][\w-]*)\s*\Z")


def parse(text: str | bytes | SourceText) -> Program:
    """Return the definitions of a text in the CEDR language.

    Bytes are UTF-8. Keywords may be in upper or lower case; names are case-sensitive. Raises CedrError at the first place that
    is wrong, with the tokens that would be legal there.

    >>> from streamq.patterns.parser import parse
    >>> parse("EVENT Pair WHEN SEQUENCE(A, B, 5 minutes)").definitions[0].pattern.pattern.within
    '5 minutes'
    """
    from lark import UnexpectedInput

    from streamq.patterns.tree_builder import MisplacedToken

    source = text if isinstance(text, SourceText) else source_text(text)
    try:
        # lark declares a tree, which the transformer has turned into a program
        program = cast(Program, _language().parse(source.text))
        check_program(program)
    except Refusal as refusal:
        raise source.refused(refusal) from None
    except MisplacedToken as misplaced:
        raise _unexpected(source, source.offset(misplaced.place), misplaced.legal) from None
    except UnexpectedInput as unexpected:
        raise _unexpected_token(source, unexpected) from None
    return program


@functools.cache
def _language() -> Lark:
    """Return the parser of the grammar, with the keywords of all operators; it builds the program while it parses."""
    from lark import Lark

    from streamq.patterns.tree_builder import TreeBuilder

    words = "|".join(word.replace("_", "[_-]") for word in sorted(operators(), key=len, reverse=True))
    grammar = (
        files("streamq.patterns").joinpath("grammar.lark").read_text(encoding="utf-8").replace("{operators}", words)
    )
    return Lark(grammar, parser="lalr", lexer="contextual", transformer=TreeBuilder())


def _unexpected_token(source: SourceText, unexpected: UnexpectedInput) -> CedrError:
    """Return the error for a token at an illegal place, or for a character that begins no token."""
    tokens = frozenset(unexpected.interactive_parser.accepts())
    offset = cast(int, unexpected.pos_in_stream)
    if getattr(getattr(unexpected, "token", None), "type", "") == "$END":
        offset = len(source.text.rstrip())
    from streamq.patterns.tree_builder import legal_in_call

    misplaced, tokens = legal_in_call(unexpected.interactive_parser.parser_state.value_stack, tokens)
    return _unexpected(source, offset if misplaced is None else misplaced, tokens)


def _unexpected(source: SourceText, offset: int, tokens: frozenset[str]) -> CedrError:
    """Return the error for the text at an offset, where ``tokens`` are legal."""
    text = source.text
    if offset >= len(text.rstrip()):
        observed, word = "found the end of the text", None
    else:
        observed, word = f"found {sign_at(text, offset)}", _WORD.match(text, offset)
    before = _WORD_BEFORE.search(text, max(0, offset - 100), offset)
    if before and text.startswith("(", offset) and "_AS" in tokens and "COMPARISON" not in tokens:
        near = keyword_like(before[1], operators())
        hint = f"Did you mean {near!r}?" if near else f"There are: {', '.join(operators())}."
        return source.error(source.place(before.start()), "no operator of patterns", f"found {before[1]!r}", hint)
    if near := keyword_like(word[0] if word else "", keywords_of(tokens)):
        hint = f"Did you mean {near!r}?"
    elif before and (near := keyword_like(before[1], keywords(), likeness=0.8)):
        hint = f"Did you mean {near!r} for the word before it, {before[1]!r}?"
    else:
        offset, signs, hint = unexpected_at(text, offset, tokens)
        observed = f"found {signs!r}" if signs else observed
    return source.error(
        source.place(offset), "this cannot stand here", observed, f"{hint} {legal_sentence(tokens)}".strip()
    )
