"""The callbacks of the grammar: each makes a node of the syntax tree as the parser reduces its rule."""

from __future__ import annotations

import math
from typing import Any

from lark import Token, Transformer, v_args

from streamq.choices import Consumption, Selection
from streamq.errors import TimeError
from streamq.patterns.advice import refused
from streamq.patterns.numbers import Number, duration, number, place_of, unquoted, whole_number, written
from streamq.patterns.source_text import MAX_DEPTH, Refusal
from streamq.patterns.syntax import (
    NOWHERE,
    All,
    AnyOf,
    Apply,
    AtLeast,
    AtMost,
    AttributeEquals,
    CancelWhen,
    Condition,
    CorrelationKey,
    Definition,
    Expression,
    Field,
    Literal,
    Not,
    OutputField,
    Part,
    Pattern,
    Place,
    Program,
    Sequence,
    Slice,
    Type,
    Unless,
)
from streamq.time import length


class TreeBuilder(Transformer[Token, Program]):
    """Makes the nodes; refuses what the grammar allows and no operator means, such as a missing scope."""

    def start(self, definitions: list[Definition]) -> Program:
        return Program(tuple(definitions), place=Place(1, 1))

    @v_args(inline=True)
    def definition(
        self,
        name: Token,
        whole: Part,
        where: tuple[Condition, ...] | None,
        output: tuple[OutputField, ...] | None,
        occurrence: Slice | None,
        validity: Slice | None,
    ) -> Definition:
        return Definition(str(name), whole, where or (), output or (), occurrence, validity, place=place_of(name))

    @v_args(inline=True)
    def name(self, token: Token) -> Token:
        """A name as a token without its backticks."""
        plain = token[1:-1].replace("``", "`") if token.startswith("`") else token
        return Token.new_borrow_pos(token.type, plain, token)

    word = name

    # --- patterns

    @v_args(inline=True)
    def whole(self, pattern: Pattern, variable: Token | None) -> Part:
        return Part(pattern, variable and str(variable), place=pattern.place)

    @v_args(inline=True)
    def part(
        self, pattern: Pattern, variable: Token | None, selection: Token | None, consumption: Token | None
    ) -> Part:
        return Part(
            pattern,
            variable and str(variable),
            Selection(selection.lower()) if selection else Selection.EACH,
            Consumption(consumption.lower()) if consumption else Consumption.REUSE,
            place=place_of(variable) if variable else pattern.place,
        )

    @v_args(inline=True)
    def type(self, name: Token) -> Type:
        return Type(str(name), place=place_of(name))

    @v_args(inline=True)
    def sequence(self, keyword: Token, *arguments: Any) -> Sequence:
        *parts, scope = arguments
        within = required(scope, keyword)
        return Sequence(tuple(parts), within.value, place=place_of(keyword), scope_place=within.place)

    @v_args(inline=True)
    def at_least(self, keyword: Token, count: Number, *arguments: Any) -> AtLeast:
        *parts, scope = arguments
        return AtLeast(count.value, tuple(parts), **counted(keyword, count, required(scope, keyword)))

    @v_args(inline=True)
    def at_most(self, keyword: Token, count: Number, *arguments: Any) -> AtMost:
        *parts, scope = arguments
        return AtMost(count.value, tuple(parts), **counted(keyword, count, required(scope, keyword)))

    @v_args(inline=True)
    def all_of(self, keyword: Token, *arguments: Any) -> All:
        *parts, scope = arguments
        within = required(scope, keyword)
        return All(tuple(parts), within.value, place=place_of(keyword), scope_place=within.place)

    @v_args(inline=True)
    def any_of(self, keyword: Token, *arguments: Any) -> AnyOf:
        *parts, scope = arguments
        if scope is not None:
            hint = "For events within a scope write ATLEAST(1, ..., scope)."
            raise Refusal(scope.place, "ANY has no scope", f"found {scope.value!r}", hint)
        return AnyOf(tuple(parts), place=place_of(keyword))

    @v_args(inline=True)
    def unless(
        self, keyword: Token, pattern: Part, negated: Part, nth: Number | None = None, scope: Number | None = None
    ) -> Unless:
        within = required(scope, keyword, "an unscoped negation: ")
        number = None if nth is None else nth.value
        return Unless(pattern, negated, nth=number, **counted(keyword, nth, within))

    @v_args(inline=True)
    def not_between(self, keyword: Token, negated: Part, pattern: Part) -> Not:
        return Not(negated, pattern, place=place_of(keyword))

    @v_args(inline=True)
    def cancel_when(self, keyword: Token, pattern: Part, negated: Part) -> CancelWhen:
        return CancelWhen(pattern, negated, place=place_of(keyword))

    def count(self, tokens: list[Token]) -> Number:
        return Number(whole_number(tokens, "a count"), place_of(tokens[0]))

    def scope(self, tokens: list[Token]) -> Number:
        within, place = duration(tokens), place_of(tokens[0])
        try:
            ticks = length(within, "scope")
        except TimeError as error:
            raise refused(place, error, "scope", "Write 5 minutes, or '5 minutes'.") from None
        if ticks <= 0:
            raise Refusal(place, "a scope that is not positive", f"found {written(tokens)}")
        return Number(within, place)

    # --- conditions and expressions

    @v_args(inline=True)
    def where(self, condition: Condition) -> tuple[Condition, ...]:
        match condition:
            case Apply("and", conjuncts):
                return conjuncts
        return (condition,)

    def disjunction(self, operands: list[Expression]) -> Apply:
        return flat("or", operands)

    def conjunction(self, operands: list[Expression]) -> Apply:
        return flat("and", operands)

    @v_args(inline=True)
    def inverted(self, keyword: Token, operand: Expression) -> Apply:
        return applied("not", (operand,), place_of(keyword))

    @v_args(inline=True)
    def operation(self, left: Expression, operator: Token, right: Expression) -> Apply:
        return applied("<>" if operator == "!=" else str(operator), (left, right), left.place)

    @v_args(inline=True)
    def is_null(self, operand: Expression, null: Token) -> Apply:
        return applied("is null", (operand,), operand.place)

    @v_args(inline=True)
    def is_not_null(self, operand: Expression, inverse: Token, null: Token) -> Apply:
        return applied("is not null", (operand,), operand.place)

    def contained(self, children: list[Any]) -> Apply:
        return perhaps_inverted("in", children)

    def between(self, children: list[Any]) -> Apply:
        return perhaps_inverted("between", children)

    def like(self, children: list[Any]) -> Apply:
        return perhaps_inverted("like", children)

    @v_args(inline=True)
    def negative(self, sign: Token, operand: Expression) -> Expression:
        match operand:
            case Literal(int() | float() as value) if not isinstance(value, bool) and math.copysign(1, value) > 0:
                return Literal(-value, place=place_of(sign))
        return applied("negative", (operand,), place_of(sign))

    @v_args(inline=True)
    def field(self, first: Token, second: Token | None) -> Field:
        if second is None:
            return Field(None, str(first), place=place_of(first))
        return Field(str(first), str(second), place=place_of(first))

    @v_args(inline=True)
    def call(self, name: Token, *arguments: Expression | None) -> Apply:
        return applied(str(name), tuple(a for a in arguments if a is not None), place_of(name))

    @v_args(inline=True)
    def correlation_key(self, keyword: Token, *arguments: Token | None) -> CorrelationKey:
        *attributes, equality = arguments
        if equality is None:
            raise Refusal(place_of(keyword), "CorrelationKey without EQUAL or UNIQUE", "", "Write it last.")
        return CorrelationKey(tuple(map(str, attributes)), equality.upper() == "EQUAL", place=place_of(keyword))

    @v_args(inline=True)
    def attribute_equals(self, attribute: Token, keyword: Token, value: Literal) -> AttributeEquals:
        return AttributeEquals(str(attribute), value, place=place_of(attribute))

    def number(self, tokens: list[Token]) -> Literal:
        return Literal(number(tokens), place=place_of(tokens[0]))

    @v_args(inline=True)
    def string(self, token: Token) -> Literal:
        return Literal(unquoted(token), place=place_of(token))

    @v_args(inline=True)
    def true(self, token: Token) -> Literal:
        return Literal(True, place=place_of(token))

    @v_args(inline=True)
    def false(self, token: Token) -> Literal:
        return Literal(False, place=place_of(token))

    @v_args(inline=True)
    def null(self, token: Token) -> Literal:
        return Literal(None, place=place_of(token))

    # --- output and slices

    def output(self, fields: list[OutputField]) -> tuple[OutputField, ...]:
        return tuple(fields)

    @v_args(inline=True)
    def output_field(self, expression: Expression, name: Token | None) -> OutputField:
        if name is not None:
            return OutputField(expression, str(name), place=place_of(name))
        if isinstance(expression, Field):
            return OutputField(expression, expression.name, place=expression.place)
        raise Refusal(expression.place, "an output field without a name", "", "Write AS and a name behind it.")

    @v_args(inline=True)
    def slice(self, bracket: Token, start: Literal | None, end: Literal | None) -> Slice:
        return Slice(start, end, place=place_of(bracket))

    @v_args(inline=True)
    def occurrence(self, bounds: Slice) -> Slice:
        return bounds

    validity = occurrence


def required(scope: Number | None, keyword: Token, wrong: str = "") -> Number:
    """Return a scope; refuse an operator that has none."""
    if scope is None:
        hint = "Write one behind the last pattern, such as 5 minutes."
        raise Refusal(place_of(keyword), f"{wrong}{keyword.upper()} without a scope", "", hint)
    return scope


def counted(keyword: Token, count: Number | None, within: Number) -> dict[str, Any]:
    """What an operator with a count and a scope has beside its parts and the count: the scope, and places."""
    count_place = NOWHERE if count is None else count.place
    places = {"place": place_of(keyword), "count_place": count_place, "scope_place": within.place}
    return {"within": within.value, **places}


def applied(function: str, arguments: tuple[Expression, ...], place: Place) -> Apply:
    """Return a function of some arguments; refuse one that is nested too deep for those who walk over trees."""
    node = Apply(function, arguments, place=place)
    if node.depth > MAX_DEPTH:
        raise Refusal(place, f"an expression nested more than {MAX_DEPTH} deep")
    return node


def flat(function: str, operands: list[Expression]) -> Apply:
    """AND or OR of operands; those that are the same function themselves give their arguments."""
    arguments: list[Expression] = []
    for operand in operands:
        match operand:
            case Apply(same, inner) if same == function:
                arguments += inner
            case _:
                arguments.append(operand)
    return applied(function, tuple(arguments), operands[0].place)


def perhaps_inverted(function: str, children: list[Any]) -> Apply:
    """A comparison whose second child is the token NOT, or None."""
    operand, inverse, *others = children
    comparison = applied(function, (operand, *others), operand.place)
    return applied("not", (comparison,), operand.place) if inverse is not None else comparison
