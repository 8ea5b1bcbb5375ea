"""The callbacks of the grammar: each makes a node of the syntax tree as the parser reduces its rule."""

from __future__ import annotations

import math
from typing import Any

from lark import Token, Transformer, v_args

from streamq.choices import Consumption, Selection
from streamq.patterns.operator_call import Amount, OperatorCall, parse_number, token_place, unquoted
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import Type
from streamq.patterns.syntax import (
    MAX_DEPTH,
    Apply,
    AttributeEquals,
    Condition,
    CorrelationKey,
    Definition,
    EventField,
    Expression,
    Literal,
    OutputField,
    Part,
    Place,
    Program,
    Refusal,
    Slice,
)


class TreeBuilder(Transformer[Token, Program]):
    """The callbacks that make the nodes and refuse texts that the grammar allows but that mean nothing."""

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
    def where(self, condition: Condition) -> tuple[Condition, ...]:
        """Return the conditions that AND connects at the top of WHERE."""
        match condition:
            case Apply("and", conjuncts):
                return conjuncts
        return (condition,)

    def disjunction(self, operands: list[Expression]) -> Apply:
        return flat_call("or", operands)

    def conjunction(self, operands: list[Expression]) -> Apply:
        return flat_call("and", operands)

    @v_args(inline=True)
    def inverted(self, keyword: Token, operand: Expression) -> Apply:
        return function_call("not", (operand,), token_place(keyword))

    @v_args(inline=True)
    def operation(self, left: Expression, operator: Token, right: Expression) -> Apply:
        return function_call("<>" if operator == "!=" else str(operator), (left, right), left.place)

    @v_args(inline=True)
    def is_null(self, operand: Expression, null: Token) -> Apply:
        return function_call("is null", (operand,), operand.place)

    @v_args(inline=True)
    def is_not_null(self, operand: Expression, inverse: Token, null: Token) -> Apply:
        return function_call("is not null", (operand,), operand.place)

    def contained(self, children: list[Any]) -> Apply:
        return perhaps_inverted("in", children)

    def between(self, children: list[Any]) -> Apply:
        return perhaps_inverted("between", children)

    def like(self, children: list[Any]) -> Apply:
        return perhaps_inverted("like", children)

    @v_args(inline=True)
    def negative(self, sign: Token, operand: Expression) -> Expression:
        """Return the operand with a minus: of a positive constant the negative one."""
        match operand:
            case Literal(int() | float() as value) if not isinstance(value, bool) and math.copysign(1, value) > 0:
                return Literal(-value, place=token_place(sign))
        return function_call("negative", (operand,), token_place(sign))

    @v_args(inline=True)
    def field(self, first: Token, second: Token | None) -> EventField:
        """Return the field ``second`` of the variable ``first`` or, of a single name, the field without a variable."""
        if second is None:
            return EventField(None, str(first), place=token_place(first))
        return EventField(str(first), str(second), place=token_place(first))

    @v_args(inline=True)
    def call(self, name: Token, *arguments: Expression | None) -> Apply:
        return function_call(str(name), tuple(a for a in arguments if a is not None), token_place(name))

    def case(self, children: list[Any]) -> Apply:
        """Return a CASE; its children are the keyword, pairs of a condition and a value, and a default or None."""
        keyword, *branches, default = children
        parts = [part for branch in branches for part in branch]
        return function_call("case when", (*parts, *([] if default is None else [default])), token_place(keyword))

    def branch(self, children: list[Any]) -> tuple[Any, ...]:
        return tuple(children)

    @v_args(inline=True)
    def cast(self, keyword: Token, operand: Expression, kind: Literal) -> Apply:
        return function_call("cast as", (operand, kind), token_place(keyword))

    def kind(self, tokens: list[Token | None]) -> Literal:
        """Return the name of a type in lower case as a constant, ``decimal(10, 2)``."""
        first, *sizes = (token for token in tokens if token is not None)
        name = unquoted(first) if first.type == "STRING" else first
        shown = f"({', '.join(sizes)})" if sizes else ""
        return Literal(f"{name.lower()}{shown}", place=token_place(first))

    @v_args(inline=True)
    def correlation_key(self, keyword: Token, *arguments: Token | None) -> CorrelationKey:
        """Return a CorrelationKey; raise Refusal if EQUAL or UNIQUE is missing at its end."""
        *attributes, equality = arguments
        if equality is None:
            raise Refusal(token_place(keyword), "CorrelationKey without EQUAL or UNIQUE", "", "Write it last.")
        return CorrelationKey(tuple(map(str, attributes)), equality.upper() == "EQUAL", place=token_place(keyword))

    @v_args(inline=True)
    def attribute_equals(self, attribute: Token, keyword: Token, value: Literal) -> AttributeEquals:
        return AttributeEquals(str(attribute), value, place=token_place(attribute))

    def number(self, tokens: list[Token]) -> Literal:
        return Literal(parse_number(tokens), place=token_place(tokens[0]))

    @v_args(inline=True)
    def string(self, token: Token) -> Literal:
        return Literal(unquoted(token), place=token_place(token))

    @v_args(inline=True)
    def true(self, token: Token) -> Literal:
        return Literal(True, place=token_place(token))

    @v_args(inline=True)
    def false(self, token: Token) -> Literal:
        return Literal(False, place=token_place(token))

    @v_args(inline=True)
    def null(self, token: Token) -> Literal:
        return Literal(None, place=token_place(token))

    # --- output and slices

    def output(self, fields: list[OutputField]) -> tuple[OutputField, ...]:
        return tuple(fields)

    @v_args(inline=True)
    def output_field(self, expression: Expression, name: Token | None) -> OutputField:
        """Return an output field; without AS it has the name of the field it reads. Raise Refusal for an expression."""
        if name is not None:
            return OutputField(expression, str(name), place=token_place(name))
        if isinstance(expression, EventField):
            return OutputField(expression, expression.name, place=expression.place)
        raise Refusal(expression.place, "an output field without a name", "", "Write AS and a name behind it.")

    @v_args(inline=True)
    def slice(self, bracket: Token, start: Literal | None, end: Literal | None) -> Slice:
        return Slice(start, end, place=token_place(bracket))

    @v_args(inline=True)
    def occurrence(self, bounds: Slice) -> Slice:
        return bounds

    validity = occurrence


def function_call(function: str, arguments: tuple[Expression, ...], place: Place) -> Apply:
    """Return a function of some arguments; raise Refusal if it is nested too deep for walks over the tree."""
    node = Apply(function, arguments, place=place)
    if node.depth > MAX_DEPTH:
        raise Refusal(place, f"an expression nested more than {MAX_DEPTH} deep")
    return node


def flat_call(function: str, operands: list[Expression]) -> Apply:
    """Return AND or OR of operands; an operand that is the same function is replaced by its arguments."""
    arguments: list[Expression] = []
    for operand in operands:
        match operand:
            case Apply(same, inner) if same == function:
                arguments += inner
            case _:
                arguments.append(operand)
    return function_call(function, tuple(arguments), operands[0].place)


def perhaps_inverted(function: str, children: list[Any]) -> Apply:
    """Return a comparison, negated if its second child is the token NOT and not None."""
    operand, inverse, *others = children
    comparison = function_call(function, (operand, *others), operand.place)
    return function_call("not", (comparison,), operand.place) if inverse is not None else comparison
