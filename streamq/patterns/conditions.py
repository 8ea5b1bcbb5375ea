"""Conditions of a pattern as expressions: which variables each names, and what its fields and functions stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import types as t

from streamq.errors import StreamqError, nearest
from streamq.functions.catalogue import by_name, known_names
from streamq.patterns.matches import Named
from streamq.patterns.source_text import Refusal
from streamq.patterns.syntax import Apply, AttributeEquals, Condition, CorrelationKey, Expression, Field, Literal, Place
from streamq.plan.expr import Call, Expr, Lit
from streamq.plan.inference import infer
from streamq.plan.repository import modules
from streamq.plan.schema import Schema
from streamq.plan.user_module import UserModule

STARTS, ROOT = "Vs", "root"
"""What every variable has beside its payload: the start of its match, and that of the earliest event below it."""

OPERATORS: Mapping[str, Callable[..., Expr]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "%": lambda a, b: a % b,
    "and": lambda *parts: reduce(lambda a, b: a & b, parts),
    "or": lambda *parts: reduce(lambda a, b: a | b, parts),
    "not": lambda a: ~a,
    "is null": lambda a: a.is_null(),
    "is not null": lambda a: a.is_not_null(),
    "in": lambda a, *values: a.isin(*values),
    "between": lambda a, low, high: a.between(low, high),
    "negative": lambda a: -a,
}
"""The operators of the language as the expressions they are; LIKE, whose pattern is a text, is not among them."""


@dataclass(frozen=True)
class Conjunct:
    """A condition that holds beside others; ``names`` are the variables of events that it is about."""

    condition: Expression
    names: frozenset[str]


@dataclass(frozen=True)
class Variables:
    """The variables of a definition.

    below: those of events that each stands for, by name; fields: the payload's columns of those that are events; negated:
    those of events that no match has.
    """

    below: Mapping[str, frozenset[str]]
    fields: Mapping[str, tuple[str, ...]]
    negated: frozenset[str]

    def conjuncts(self, where: Iterable[Condition]) -> Iterator[Conjunct]:
        """Yield the conditions of WHERE; of one over all variables, those that it stands for."""
        for condition in where:
            match condition:
                case AttributeEquals(attribute, value):
                    for name in self.events_with(attribute, condition.place):
                        yield self.of_fields("=", (name, attribute), value, condition.place)
                case CorrelationKey(attributes, False):
                    for attribute in attributes:
                        names = self.events_with(attribute, condition.place)
                        for i, name in enumerate(names):
                            for other in names[:i]:
                                field = Field(other, attribute, place=condition.place)
                                yield self.of_fields("<>", (name, attribute), field, condition.place)
                case CorrelationKey():
                    pass
                case _:
                    yield Conjunct(condition, frozenset(self.named_by(condition)))

    def of_fields(self, function: str, field: tuple[str, str], other: Field | Literal, place: Place) -> Conjunct:
        """A condition on a field of a variable."""
        condition = Apply(function, (Field(*field, place=place), other), place=place)
        return Conjunct(condition, frozenset(self.named_by(condition)))

    def correlated(self, where: Iterable[Condition]) -> tuple[str, ...]:
        """The attributes in which all events of a match agree."""
        keys: dict[str, None] = {}
        for condition in where:
            if isinstance(condition, CorrelationKey) and condition.equal:
                for attribute in condition.attributes:
                    self.events_with(attribute, condition.place)
                    keys[attribute] = None
        return tuple(keys)

    def events_with(self, attribute: str, place: Place) -> tuple[str, ...]:
        """All variables of events; raises Refusal where one of them lacks an attribute."""
        for name, fields in self.fields.items():
            if attribute not in fields:
                raise no_field(name, attribute, fields, place)
        return tuple(self.fields)

    def named_by(self, expression: Expression) -> Iterator[str]:
        """Yield the variables of events that an expression is about."""
        match expression:
            case Field(variable, name):
                yield from self.below[self.owner(variable, name, expression.place)]
            case Apply(_, arguments):
                for argument in arguments:
                    yield from self.named_by(argument)

    def owner(self, variable: str | None, name: str, place: Place) -> str:
        """The variable of a field, which may go without saying; raises Refusal where there is none, or several."""
        if variable is not None:
            if variable not in self.below:
                there = f"there are: {', '.join(self.below)}"
                raise Refusal(place, f"no variable {variable!r}", there, nearest(variable, self.below))
            return variable
        owners = [v for v, fields in self.fields.items() if name in fields and v not in self.negated]
        if len(owners) == 1:
            return owners[0]
        if owners:
            hint = f"Write {owners[0]}.{name} or {owners[1]}.{name}."
            raise Refusal(place, f"the field {name!r} of more than one variable", f"found {', '.join(owners)}", hint)
        every = [f"{v}.{f}" for v, fields in self.fields.items() for f in fields]
        raise Refusal(place, f"no field {name!r}", f"there are: {', '.join(every)}", nearest(name, every))


def no_field(variable: str, name: str, fields: Iterable[str], place: Place) -> Refusal:
    """What is wrong with a field that a variable's events do not have."""
    there = f"there are: {', '.join([*fields, STARTS, ROOT])}"
    return Refusal(place, f"no field {name!r} of {variable}", there, nearest(name, [*fields, STARTS, ROOT]))


@dataclass(frozen=True)
class Reader:
    """Makes expressions over the columns of matches."""

    variables: Variables
    named: Mapping[str, Named]

    def condition(self, conjunct: Conjunct, schema: Schema, optional: frozenset[str]) -> Expr:
        """A condition as an expression; of a match without one of its events, which are ``optional``, it is true."""
        expr = self.checked(conjunct.condition, schema, boolean=True)
        missing = sorted(conjunct.names & optional)
        return reduce(lambda a, b: a | b, [*(self.named[n].starts.is_null() for n in missing), expr])

    def checked(self, expression: Expression, schema: Schema, *, boolean: bool = False) -> Expr:
        """An expression; raises Refusal, at its place, where its types do not fit."""
        expr = self.read(expression)
        try:
            kind = infer(expr, schema, "cedr")
        except StreamqError as error:
            raise Refusal(place_of(expression), str(error)) from error
        if boolean and not isinstance(kind, t.BooleanType | t.NullType):
            raise Refusal(place_of(expression), "a condition is true or false", f"found {kind.simpleString()}")
        return expr

    def read(self, expression: Expression) -> Expr:
        """An expression, the types of which are not looked at."""
        match expression:
            case Literal(value):
                return Lit(value)
            case Field(variable, name):
                return self._field(self.variables.owner(variable, name, expression.place), name, expression.place)
            case Apply("like", (value, Literal(str() as pattern))):
                return self.read(value).like(pattern)
            case Apply(function, arguments) if function in OPERATORS:
                return OPERATORS[function](*map(self.read, arguments))
            case Apply("like"):
                raise Refusal(expression.place, "LIKE takes a text as its pattern")
            case Apply(function, arguments):
                return self._call(function, [self.read(a) for a in arguments], expression.place)

    def _field(self, variable: str, name: str, place: Place) -> Expr:
        named = self.named[variable]
        if name in named.fields:
            return named.fields[name]
        if name.lower() in (STARTS.lower(), ROOT):
            return named.root if name.lower() == ROOT else named.starts
        raise no_field(variable, name, named.fields, place)

    def _call(self, name: str, arguments: list[Any], place: Place) -> Expr:
        own = modules.get(name) if name in modules else None
        try:
            if isinstance(own, UserModule) and own.kind == "udf":
                called: Expr = own(*arguments)  # type: ignore[operator]
                return called
            if name in known_names():
                return Call(by_name(name), tuple(arguments))
        except StreamqError as error:
            raise Refusal(place, str(error)) from error
        if name.lower() in known_names():
            return self._call(name.lower(), arguments, place)
        hint = nearest(name, [*known_names(), *modules])
        raise Refusal(place, f"no function {name!r}", "", hint or "A function of your own is made by @sq.udf.")


def place_of(expression: Expression) -> Place:
    """Where an expression stands."""
    return expression.place


__all__ = ["Conjunct", "Reader", "Variables"]
