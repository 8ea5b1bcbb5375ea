"""The parser of the CEDR language: an LALR parser, which takes time linear in the text and does not recurse."""

from __future__ import annotations

import functools
import re
from importlib.resources import files
from typing import TYPE_CHECKING, cast

from streamq.errors import CedrError
from streamq.patterns.advice import unexpected_at
from streamq.patterns.checks import check_program
from streamq.patterns.legal_words import keyword_like, keywords, keywords_of, legal_sentence, sign_at
from streamq.patterns.operators import operators
from streamq.patterns.source_text import Refusal, SourceText, source_text
from streamq.patterns.syntax import Program

if TYPE_CHECKING:
    from lark import Lark, UnexpectedInput

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

    from streamq.patterns.operator_call import MisplacedToken

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
    from streamq.patterns.operator_call import legal_in_call

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
