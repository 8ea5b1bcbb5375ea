"""Read an operator of a text, ``WORD(arguments)``, argument by argument, by the signature of its kind.

Numbers, counts, scopes and strings are read from their tokens.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from lark import Token, Tree

from streamq.errors import TimeError
from streamq.patterns.advice import refusal_for
from streamq.patterns.operators import operators
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import SCOPE, Argument, ArgumentKind
from streamq.patterns.syntax import Part, Place, Refusal, Scope
from streamq.time import length

MAX_DIGITS = 100
"""The greatest length of a number or a duration, so that reading one takes bounded time."""


def token_place(token: Token) -> Place:
    """Return the place of a token."""
    return Place(token.line or 0, token.column or 0)


def unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def token_text(tokens: list[Token]) -> str:
    """Return tokens as text: a sign stands before its number, other tokens are separated by blanks."""
    return " ".join(tokens).replace("- ", "-")


def parse_number(tokens: list[Token]) -> int | float:
    """Return the number that tokens are, with or without a sign; raise Refusal if it is too long or beyond doubles."""
    digits = tokens[-1]
    if len(digits) > MAX_DIGITS:
        raise Refusal(token_place(tokens[0]), f"a number of more than {MAX_DIGITS} characters")
    value = int(digits) if digits.isdigit() else float(digits)
    if math.isinf(value):
        raise Refusal(token_place(tokens[0]), "a number beyond the range of doubles", f"found {token_text(tokens)}")
    return -value if len(tokens) == 2 else value


def parse_whole_number(tokens: list[Token], what: str) -> int:
    """Return the whole number that tokens are; raise Refusal for any other, also ``1.0``.

    ``what`` names it in the message.
    """
    value = parse_number(tokens)
    if not isinstance(value, int):
        raise Refusal(token_place(tokens[0]), f"{what} is a whole number", f"found {token_text(tokens)}")
    return value


def parse_duration(tokens: list[Token]) -> Scope:
    """Return a duration in normal form: a number of ticks, or a string in lower case with single blanks.

    Raises Refusal if it is too long, or a number without a unit that is not whole. Nothing else is checked: a string may be no
    duration, and a number may be negative.
    """
    if max(map(len, tokens)) > MAX_DIGITS or len(tokens) > MAX_DIGITS:
        raise Refusal(token_place(tokens[0]), f"a duration of more than {MAX_DIGITS} characters")
    if tokens[0].type == "STRING":
        return " ".join(unquoted(tokens[0]).lower().split())
    if tokens[-1].type == "NUMBER":
        return parse_whole_number(tokens, "a scope without a unit")
    return token_text(tokens).lower()


PATTERNS = frozenset({"OPERATOR", "NAME", "QUOTED"})
NUMBERS = frozenset({"NUMBER", "MINUS"})
TOKENS = {
    ArgumentKind.PART: PATTERNS, ArgumentKind.PARTS: PATTERNS,
    ArgumentKind.COUNT: NUMBERS, ArgumentKind.SCOPE: NUMBERS | {"STRING"},
}  # fmt: skip
"""The tokens with which an argument begins."""
PARTS = frozenset({ArgumentKind.PART, ArgumentKind.PARTS})
AMOUNTS = frozenset({ArgumentKind.COUNT, ArgumentKind.SCOPE})


class MisplacedToken(Exception):
    """A token that the grammar allows and the signature of its operator does not; ``legal`` are the tokens that fit."""

    def __init__(self, place: Place, legal: Iterable[str]) -> None:
        super().__init__()
        self.place, self.legal = place, frozenset(legal)


@dataclass(frozen=True)
class Amount:
    """A count or a scope as its tokens."""

    tokens: tuple[Token, ...]

    @property
    def place(self) -> Place:
        """The place of its first token."""
        return token_place(self.tokens[0])

    @property
    def is_number(self) -> bool:
        """True if it is a number without a unit."""
        return self.tokens[-1].type == "NUMBER"

    @property
    def has_unit(self) -> bool:
        """True if it is a number with a unit."""
        return self.tokens[-1].type == "NAME"

    def count(self) -> int:
        """Return it as a count; raise Refusal for a number that is not whole."""
        return parse_whole_number(list(self.tokens), "a count")

    def scope(self) -> Scope:
        """Return it as a scope; raise Refusal for what is no duration, or not positive."""
        within = parse_duration(list(self.tokens))
        try:
            ticks = length(within, "scope")
        except TimeError as error:
            raise refusal_for(self.place, error, "scope", "Write 5 minutes, or '5 minutes'.") from None
        if ticks <= 0:
            raise Refusal(self.place, "a scope that is not positive", f"found {token_text(list(self.tokens))}")
        return within


class OperatorCall:
    """An operator with the arguments read so far, and the ways in which its signature may continue."""

    def __init__(self, keyword: Token) -> None:
        self.keyword = keyword
        self.kind = operators()[keyword.upper().replace("-", "_")]
        self.arguments: list[Part | Amount] = []
        self.ways: tuple[Way, ...] = (self.kind.signature,)

    def add(self, argument: Part | Amount, comma: Place) -> None:
        """Add an argument after a comma; raise MisplacedToken or Refusal if no argument, or another one, is legal there."""
        if isinstance(argument, Amount) and not self._has_scope and not self.expects_count:
            observed = f"found {argument.scope()!r}"
            raise Refusal(argument.place, f"{self.keyword.upper()} has no scope", observed, self.kind.instead_of_scope)
        if not any(self.ways):
            last = self.arguments[-1]
            raise MisplacedToken(comma, {"RPAR", *(["NUMBER"] if isinstance(last, Amount) and last.has_unit else [])})
        ways = tuple(rest for way in self.ways for expected, rest in _steps(way) if _fits(argument, expected.form))
        if not ways and isinstance(argument, Amount) and argument.has_unit and self.expects_count:
            raise MisplacedToken(token_place(argument.tokens[-1]), {"COMMA"})
        if not ways:
            raise MisplacedToken(_beginning(argument), self.legal)
        self.arguments.append(argument)
        self.ways = ways

    @property
    def legal(self) -> frozenset[str]:
        """The tokens that may begin the next argument."""
        return frozenset(token for way in self.ways for expected, _ in _steps(way) for token in TOKENS[expected.form])

    @property
    def expects_count(self) -> bool:
        """True if the next argument can only be a number."""
        return self.legal == NUMBERS

    def legal_behind(self, forms: Collection[ArgumentKind]) -> frozenset[str]:
        """Return the tokens, comma or bracket, that may follow an argument of one of ``forms``.

        The bracket is legal where only the scope is missing, and the comma in an operator without a scope, so that a missing or
        surplus scope gets the error that says so.
        """
        rests = [rest for way in self.ways for expected, rest in _steps(way) if expected.form in forms]
        may_end = any(all(a.is_optional or a.form == ArgumentKind.SCOPE for a in rest) for rest in rests)
        may_go_on = any(rests) or not self._has_scope
        return frozenset({*(["RPAR"] if may_end else []), *(["COMMA"] if may_go_on else [])})

    def operator(self, bracket: Place) -> PatternOperator:
        """Return the operator at its closing bracket; raise MisplacedToken or Refusal if arguments are missing."""
        missing = [[a for a in way if not a.is_optional] for way in self.ways]
        if all(missing):
            if missing[0][0].form != ArgumentKind.SCOPE:
                raise MisplacedToken(bracket, {"COMMA"})
            unscoped = "an unscoped negation: " if any(a.is_negated for a in self.kind.signature) else ""
            hint = "Write one behind the last pattern, such as 5 minutes."
            raise Refusal(token_place(self.keyword), f"{unscoped}{self.keyword.upper()} without a scope", "", hint)
        parts = [argument for argument in self.arguments if isinstance(argument, Part)]
        amounts = [argument for argument in self.arguments if isinstance(argument, Amount)]
        absent = sum(a.form in AMOUNTS for a in self.kind.signature) - len(amounts)
        values: dict[str, Any] = {}
        places: dict[str, Place] = {}
        for expected in self.kind.signature:
            if expected.form == ArgumentKind.PARTS:
                values[expected.field], parts = tuple(parts), []
            elif expected.form == ArgumentKind.PART:
                values[expected.field] = parts.pop(0)
            elif expected.is_optional and absent:
                absent -= 1
            else:
                amount = amounts.pop(0)
                places[expected.field] = amount.place
                values[expected.field] = amount.count() if expected.form == ArgumentKind.COUNT else amount.scope()
        return self.kind(**values, places=places, place=token_place(self.keyword))

    @property
    def _has_scope(self) -> bool:
        return SCOPE in self.kind.signature


def legal_in_call(stack: Sequence[Any], tokens: frozenset[str]) -> tuple[int | None, frozenset[str]]:
    """Return an offset or None, and the tokens, of those that the grammar allows, that the innermost open operator allows.

    ``stack`` is that of the parser. The offset is that of a unit behind a number that must have none. Outside of an operator all
    ``tokens`` are returned.
    """
    opening = next(
        (n for n in reversed(range(len(stack))) if isinstance(stack[n], OperatorCall) or _is(stack[n], "OPERATOR")),
        None,
    )
    if opening is None or "AT" in tokens:
        return None, tokens
    call = stack[opening] if isinstance(stack[opening], OperatorCall) else OperatorCall(stack[opening])
    behind = stack[opening + 1 :]
    if all(_is(one, "LPAR", "COMMA") for one in behind):
        return None, tokens & call.legal if behind else tokens
    if call.expects_count and _is(behind[-1], "NAME"):
        return cast(int, behind[-1].start_pos), frozenset({"COMMA"})
    is_part = not (isinstance(behind[1], Amount | Tree) or _is(behind[1], "NUMBER", "MINUS", "STRING"))
    has_unit = len(behind) > 2
    forms = PARTS if is_part else {ArgumentKind.SCOPE} if has_unit else AMOUNTS
    return None, tokens - {"COMMA", "RPAR"} | tokens & call.legal_behind(forms)


def _is(one: Any, *types: str) -> bool:
    """Return True if an entry of the parser's stack is a token of one of some types."""
    return isinstance(one, Token) and one.type in types


Way = tuple[Argument, ...]
"""The arguments that may still come."""


def _steps(way: Way) -> Iterator[tuple[Argument, Way]]:
    """Yield each argument that may come next, with the way that remains after it, in which a list of parts may go on."""
    for number, argument in enumerate(way):
        more = (replace(argument, is_optional=True),) if argument.form == ArgumentKind.PARTS else ()
        yield argument, (*more, *way[number + 1 :])
        if not argument.is_optional:
            return


def _fits(argument: Part | Amount, form: ArgumentKind) -> bool:
    """Return True if an argument has a form."""
    if isinstance(argument, Part):
        return form not in AMOUNTS
    return form == ArgumentKind.SCOPE or (form == ArgumentKind.COUNT and argument.is_number)


def _beginning(argument: Part | Amount) -> Place:
    """Return the place of the first token of an argument."""
    return argument.place if isinstance(argument, Amount) else argument.pattern.place
