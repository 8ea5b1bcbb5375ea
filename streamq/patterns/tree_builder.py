"""The callbacks of the grammar: each makes a node of the syntax tree as the parser reduces its rule."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from lark import Token, Transformer, Tree, v_args

from streamq.choices import Consumption, Selection
from streamq.errors import TimeError
from streamq.patterns import syntax
from streamq.patterns.operators import operators
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import SCOPE, Argument, ArgumentKind, Type
from streamq.patterns.syntax import MAX_DEPTH, Definition, Part, Place, Program, Refusal, refusal_for
from streamq.time import length

MAX_DIGITS = 100
"""The greatest length of a number or a duration, so that reading one takes bounded time."""


def token_place(token: Token) -> Place:
    """Return the place of a token."""
    return Place(token.line or 0, token.column or 0)


def unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def token_text(tokens: Sequence[Token]) -> str:
    """Return tokens as text: a sign stands before its number, other tokens are separated by blanks."""
    return " ".join(tokens).replace("- ", "-")


def parse_number(tokens: Sequence[Token]) -> int | float:
    """Return the number that tokens are, with or without a sign; raise Refusal if it is too long or beyond doubles."""
    digits = tokens[-1]
    if len(digits) > MAX_DIGITS:
        raise Refusal(token_place(tokens[0]), f"a number of more than {MAX_DIGITS} characters")
    value = int(digits) if digits.isdigit() else float(digits)
    if math.isinf(value):
        raise Refusal(token_place(tokens[0]), "a number beyond the range of doubles", f"found {token_text(tokens)}")
    return -value if len(tokens) == 2 else value


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

    def whole_number(self, what: str) -> int:
        """Return it as a whole number; raise Refusal for any other, also ``1.0``. ``what`` names it in the message."""
        value = parse_number(self.tokens)
        if not isinstance(value, int):
            raise Refusal(self.place, f"{what} is a whole number", f"found {token_text(self.tokens)}")
        return value

    def scope(self) -> syntax.Scope:
        """Return it as a scope in normal form: a number of ticks, or a string in lower case with single blanks.

        Raises Refusal for what is no duration, or is too long or not positive.
        """
        first = self.tokens[0]
        if max(map(len, self.tokens)) > MAX_DIGITS or len(self.tokens) > MAX_DIGITS:
            raise Refusal(self.place, f"a duration of more than {MAX_DIGITS} characters")
        within: syntax.Scope = token_text(self.tokens).lower()
        if first.type == "STRING":
            within = " ".join(unquoted(first).lower().split())
        elif self.is_number:
            within = self.whole_number("a scope without a unit")
        try:
            ticks = length(within, "scope")
        except TimeError as error:
            raise refusal_for(self.place, error, "scope", "Write 5 minutes, or '5 minutes'.") from None
        if ticks <= 0:
            raise Refusal(self.place, "a scope that is not positive", f"found {token_text(self.tokens)}")
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
        if isinstance(argument, Amount) and SCOPE not in self.kind.signature and not self.expects_count:
            observed = f"found {argument.scope()!r}"
            raise Refusal(argument.place, f"{self.keyword.upper()} has no scope", observed, self.kind.instead_of_scope)
        if not any(self.ways):
            last = self.arguments[-1]
            raise MisplacedToken(comma, {"RPAR", *(["NUMBER"] if isinstance(last, Amount) and last.has_unit else [])})
        ways = tuple(rest for way in self.ways for expected, rest in _steps(way) if _fits(argument, expected.form))
        if not ways and isinstance(argument, Amount) and argument.has_unit and self.expects_count:
            raise MisplacedToken(token_place(argument.tokens[-1]), {"COMMA"})
        if not ways:
            beginning = argument.place if isinstance(argument, Amount) else argument.pattern.place
            raise MisplacedToken(beginning, self.legal)
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
        may_go_on = any(rests) or SCOPE not in self.kind.signature
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
                values[expected.field] = (
                    amount.whole_number("a count") if expected.form == ArgumentKind.COUNT else amount.scope()
                )
        return self.kind(**values, places=places, place=token_place(self.keyword))


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
    if isinstance(argument, Part):
        return form not in AMOUNTS
    return form == ArgumentKind.SCOPE or (form == ArgumentKind.COUNT and argument.is_number)


class TreeBuilder(Transformer[Token, Program]):
    """The callbacks that make the nodes and refuse texts that the grammar allows but that mean nothing."""

    def start(self, definitions: list[Definition]) -> Program:
        return Program(tuple(definitions), place=Place(1, 1))

    @v_args(inline=True)
    def definition(
        self,
        name: Token,
        whole: Part,
        where: tuple[syntax.Condition, ...] | None,
        output: tuple[syntax.OutputField, ...] | None,
        occurrence: syntax.Slice | None,
        validity: syntax.Slice | None,
    ) -> Definition:
        return Definition(str(name), whole, where or (), output or (), occurrence, validity, place=token_place(name))

    @v_args(inline=True)
    def name(self, token: Token) -> Token:
        """Return a name as a token without its backticks."""
        plain = token[1:-1].replace("``", "`") if token.startswith("`") else token
        return Token.new_borrow_pos(token.type, plain, token)

    word = name

    # --- patterns

    @v_args(inline=True)
    def whole(self, pattern: PatternOperator, variable: Token | None) -> Part:
        return Part(pattern, variable and str(variable), place=pattern.place)

    @v_args(inline=True)
    def part(
        self, pattern: PatternOperator, variable: Token | None, selection: Token | None, consumption: Token | None
    ) -> Part:
        """Return a part; without their words it selects EACH and consumes nothing."""
        return Part(
            pattern,
            variable and str(variable),
            Selection(selection.lower()) if selection else Selection.EACH,
            Consumption(consumption.lower()) if consumption else Consumption.REUSE,
            place=token_place(variable) if variable else pattern.place,
        )

    @v_args(inline=True)
    def type(self, name: Token) -> Type:
        return Type(str(name), place=token_place(name))

    @v_args(inline=True)
    def first_argument(self, keyword: Token, argument: Part | Amount) -> OperatorCall:
        """Begin the call of an operator with its first argument; raise MisplacedToken or Refusal if that is illegal there."""
        call = OperatorCall(keyword)
        call.add(argument, token_place(keyword))
        return call

    @v_args(inline=True)
    def next_argument(self, call: OperatorCall, comma: Token, argument: Part | Amount) -> OperatorCall:
        call.add(argument, token_place(comma))
        return call

    @v_args(inline=True)
    def operator(self, call: OperatorCall, bracket: Token) -> PatternOperator:
        return call.operator(token_place(bracket))

    def amount(self, tokens: list[Token]) -> Amount:
        return Amount(tuple(tokens))

    # --- conditions and expressions

    @v_args(inline=True)
    def where(self, condition: syntax.Condition) -> tuple[syntax.Condition, ...]:
        """Return the conditions that AND connects at the top of WHERE."""
        match condition:
            case syntax.Apply("and", conjuncts):
                return conjuncts
        return (condition,)

    def disjunction(self, operands: list[syntax.Expression]) -> syntax.Apply:
        return flat_call("or", operands)

    def conjunction(self, operands: list[syntax.Expression]) -> syntax.Apply:
        return flat_call("and", operands)

    @v_args(inline=True)
    def inverted(self, keyword: Token, operand: syntax.Expression) -> syntax.Apply:
        return function_call("not", (operand,), token_place(keyword))

    @v_args(inline=True)
    def operation(self, left: syntax.Expression, operator: Token, right: syntax.Expression) -> syntax.Apply:
        return function_call("<>" if operator == "!=" else str(operator), (left, right), left.place)

    @v_args(inline=True)
    def is_null(self, operand: syntax.Expression, null: Token) -> syntax.Apply:
        return function_call("is null", (operand,), operand.place)

    @v_args(inline=True)
    def is_not_null(self, operand: syntax.Expression, inverse: Token, null: Token) -> syntax.Apply:
        return function_call("is not null", (operand,), operand.place)

    def contained(self, children: list[Any]) -> syntax.Apply:
        return perhaps_inverted("in", children)

    def between(self, children: list[Any]) -> syntax.Apply:
        return perhaps_inverted("between", children)

    def like(self, children: list[Any]) -> syntax.Apply:
        return perhaps_inverted("like", children)

    @v_args(inline=True)
    def negative(self, sign: Token, operand: syntax.Expression) -> syntax.Expression:
        """Return the operand with a minus: of a positive constant the negative one."""
        match operand:
            case syntax.Literal(int() | float() as value) if (
                not isinstance(value, bool) and math.copysign(1, value) > 0
            ):
                return syntax.Literal(-value, place=token_place(sign))
        return function_call("negative", (operand,), token_place(sign))

    @v_args(inline=True)
    def field(self, first: Token, second: Token | None) -> syntax.EventField:
        """Return the field ``second`` of the variable ``first`` or, of a single name, the field without a variable."""
        if second is None:
            return syntax.EventField(None, str(first), place=token_place(first))
        return syntax.EventField(str(first), str(second), place=token_place(first))

    @v_args(inline=True)
    def call(self, name: Token, *arguments: syntax.Expression | None) -> syntax.Apply:
        return function_call(str(name), tuple(a for a in arguments if a is not None), token_place(name))

    def case(self, children: list[Any]) -> syntax.Apply:
        """Return a CASE; its children are the keyword, pairs of a condition and a value, and a default or None."""
        keyword, *branches, default = children
        parts = [part for branch in branches for part in branch]
        return function_call("case when", (*parts, *([] if default is None else [default])), token_place(keyword))

    def branch(self, children: list[Any]) -> tuple[Any, ...]:
        return tuple(children)

    @v_args(inline=True)
    def cast(self, keyword: Token, operand: syntax.Expression, kind: syntax.Literal) -> syntax.Apply:
        return function_call("cast as", (operand, kind), token_place(keyword))

    def kind(self, tokens: list[Token | None]) -> syntax.Literal:
        """Return the name of a type in lower case as a constant, ``decimal(10, 2)``."""
        first, *sizes = (token for token in tokens if token is not None)
        name = unquoted(first) if first.type == "STRING" else first
        shown = f"({', '.join(sizes)})" if sizes else ""
        return syntax.Literal(f"{name.lower()}{shown}", place=token_place(first))

    @v_args(inline=True)
    def correlation_key(self, keyword: Token, *arguments: Token | None) -> syntax.CorrelationKey:
        """Return a CorrelationKey; raise Refusal if EQUAL or UNIQUE is missing at its end."""
        *attributes, equality = arguments
        if equality is None:
            raise Refusal(token_place(keyword), "CorrelationKey without EQUAL or UNIQUE", "", "Write it last.")
        return syntax.CorrelationKey(
            tuple(map(str, attributes)), equality.upper() == "EQUAL", place=token_place(keyword)
        )

    @v_args(inline=True)
    def attribute_equals(self, attribute: Token, keyword: Token, value: syntax.Literal) -> syntax.AttributeEquals:
        return syntax.AttributeEquals(str(attribute), value, place=token_place(attribute))

    def number(self, tokens: list[Token]) -> syntax.Literal:
        return syntax.Literal(parse_number(tokens), place=token_place(tokens[0]))

    @v_args(inline=True)
    def string(self, token: Token) -> syntax.Literal:
        return syntax.Literal(unquoted(token), place=token_place(token))

    @v_args(inline=True)
    def constant(self, token: Token) -> syntax.Literal:
        return syntax.Literal({"TRUE": True, "FALSE": False, "NULL": None}[token.type], place=token_place(token))

    # --- output and slices

    def output(self, fields: list[syntax.OutputField]) -> tuple[syntax.OutputField, ...]:
        return tuple(fields)

    @v_args(inline=True)
    def output_field(self, expression: syntax.Expression, name: Token | None) -> syntax.OutputField:
        """Return an output field; without AS it has the name of the field it reads. Raise Refusal for an expression."""
        if name is not None:
            return syntax.OutputField(expression, str(name), place=token_place(name))
        if isinstance(expression, syntax.EventField):
            return syntax.OutputField(expression, expression.name, place=expression.place)
        raise Refusal(expression.place, "an output field without a name", "", "Write AS and a name behind it.")

    @v_args(inline=True)
    def slice(self, bracket: Token, start: syntax.Literal | None, end: syntax.Literal | None) -> syntax.Slice:
        return syntax.Slice(start, end, place=token_place(bracket))


def function_call(function: str, arguments: tuple[syntax.Expression, ...], place: Place) -> syntax.Apply:
    """Return a function of some arguments; raise Refusal if it is nested too deep for walks over the tree."""
    node = syntax.Apply(function, arguments, place=place)
    if node.depth > MAX_DEPTH:
        raise Refusal(place, f"an expression nested more than {MAX_DEPTH} deep")
    return node


def flat_call(function: str, operands: list[syntax.Expression]) -> syntax.Apply:
    """Return AND or OR of operands; an operand that is the same function is replaced by its arguments."""
    arguments: list[syntax.Expression] = []
    for operand in operands:
        match operand:
            case syntax.Apply(same, inner) if same == function:
                arguments += inner
            case _:
                arguments.append(operand)
    return function_call(function, tuple(arguments), operands[0].place)


def perhaps_inverted(function: str, children: list[Any]) -> syntax.Apply:
    """Return a comparison, negated if its second child is the token NOT and not None."""
    operand, inverse, *others = children
    comparison = function_call(function, (operand, *others), operand.place)
    return function_call("not", (comparison,), operand.place) if inverse is not None else comparison
