"""Patterns: as a text, or put together by verbs, which must give the tree that the text of the same meaning has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamq.patterns.conditions import OWN
from streamq.patterns.definitions import used_types
from streamq.patterns.detect import Definitions, Detect, event_type
from streamq.patterns.parser import parse
from streamq.patterns.pattern import Pattern
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import Type
from streamq.patterns.source_text import source_text
from streamq.patterns.syntax import (
    Apply,
    AttributeEquals,
    Condition,
    CorrelationKey,
    Definition,
    EventField,
    Part,
    Program,
)
from streamq.plan.expr import Col, Expr, as_expr
from streamq.plan.node import Node
from streamq.testing.patterns.room import Make, rooms
from streamq.testing.patterns.trees import event_types
from streamq.testing.verbs.pieces import Function, Piece
from streamq.testing.verbs.streams import Events


@dataclass(frozen=True)
class Matches(Events):
    """The matches of a pattern, which can become longer, or a part of another one."""

    written: Written

    def of(self, plan: Node) -> Events:
        """What other verbs make of matches is a stream and nothing more."""
        return Events(plan)

    _events = of

    def alias(self, name: str) -> Piece:
        return self.written.piece(self, name)

    def where(self, condition: Any) -> Events:
        """Text as behind WHERE, or a function of variables."""
        if not isinstance(condition, str):
            return replace(self.written, functions=(*self.written.functions, condition)).matches()
        more = parse(f"EVENT e WHEN x WHERE\n{condition}").definitions[0].where
        return self.written.narrowed(more).matches()

    def with_tree(self, make: Callable[[Any], Any]) -> Matches:
        """The matches of what is made of the last definition's operator."""
        *others, last = self.written.program.definitions
        changed = replace(last, pattern=replace(last.pattern, pattern=make(last.pattern.pattern)))
        return replace(self.written, program=Program((*others, changed)), source=None).matches()

    def negation(self, negated: Any, make: Callable[[Part, Part], PatternOperator]) -> Matches:
        """The matches of an operator over this pattern and another, which is negated."""
        return _of([self, negated], lambda parts: make(*parts))


for _room in rooms().values():
    for _name, _verb in _room.verbs.items():
        setattr(Matches, _name, _verb)


@dataclass(frozen=True)
class Written:
    """What a pattern says: its definitions, the streams of their types, and the conditions that are functions."""

    program: Program
    types: dict[str, Events]
    functions: tuple[Function, ...] = ()
    source: str | None = None

    def matches(self) -> Matches:
        """Return the matches of the last definition."""
        names = tuple(kind.name for kind in used_types(self.program))
        inputs = tuple(self.types[name].plan for name in names)
        fields = {name: event_type(plan, has_ids=False).fields for name, plan in zip(names, inputs, strict=True)}
        of_variable = {variable: fields[kind] for variable, kind in _events(self.program) if kind in fields}
        conditions = tuple(_called(function, of_variable) for function in self.functions)
        definitions = Definitions.from_program(self.program, self.source)
        return Matches(Detect(inputs, names, definitions, conditions), self)

    def narrowed(self, more: Sequence[Condition]) -> Written:
        """Return the pattern with more conditions of its last definition."""
        *others, last = self.program.definitions
        narrower = replace(last, where=(*last.where, *more))
        return replace(self, program=Program((*others, narrower)), source=None)

    def piece(self, matches: Matches, name: str | None) -> Piece:
        """The pattern itself, if it is one and nothing else, with conditions on its own events; else the type of its matches."""
        last = self.program.definitions[-1]
        if len(self.program.definitions) > 1 or last.output or last.occurrence or last.validity:
            assert name is not None
            return Piece(Part(Type(name), name), {name: matches})
        variables = [variable for variable, _ in _events(self.program)]
        where = tuple(of_them for condition in last.where for of_them in _about(variables, condition))
        return Piece(replace(last.pattern, variable=name), self.types, where, self.functions)


def matches_of(pattern: Pattern) -> Matches:
    """Return the matches of a pattern that was there before, as it was understood."""
    written = pattern.written
    types = {name: Events(stream.plan) for name, stream in written.types.items()}
    return Matches(pattern.plan, Written(written.program, types, written.functions, written.source))


def cedr(text: str | bytes, **streams: Events) -> Matches:
    """The matches of a text."""
    return Written(parse(text), streams, source=source_text(text).text).matches()


def _by(reading: Callable[..., tuple[Sequence[Any], Make]]) -> Callable[..., Matches]:
    """The function of which a room says the parts and what makes the operator."""
    return lambda *args, **kwargs: _of(*reading(*args, **kwargs))


FUNCTIONS = {"cedr": cedr} | {name: _by(f) for room in rooms().values() for name, f in room.functions.items()}
"""The functions of streams, by name."""


def _of(parts: Sequence[Any], tree: Any) -> Matches:
    """The matches of a tree over parts, with the conditions and functions of all of them."""
    pieces = [part.written.piece(part, None) if isinstance(part, Matches) else part for part in parts]
    types = {name: events for piece in pieces for name, events in piece.types.items()}
    where = tuple(condition for piece in pieces for condition in piece.where)
    functions = tuple(function for piece in pieces for function in piece.functions)
    pattern: PatternOperator = tree(tuple(piece.part for piece in pieces))
    return Written(Program((Definition("Pattern", Part(pattern), where),)), types, functions).matches()


def _events(program: Program) -> list[tuple[str, str]]:
    """The variables of the last definition that are events, each with its type, in the order of the text."""
    return [(name, kind.name) for name, kind in event_types(program.definitions[-1].pattern)]


def _about(variables: Sequence[str], condition: Condition) -> Iterator[Condition]:
    """Yield a condition over all variables of a pattern as conditions that name them; another one as it is."""
    match condition:
        case AttributeEquals(attribute, value):
            for variable in variables:
                yield Apply("=", (EventField(variable, attribute), value))
        case CorrelationKey(attributes, equal):
            # equal ones go hand in hand; of unique ones each differs from each
            before = {i: variables[max(0, i - 1) : i] if equal else variables[:i] for i in range(len(variables))}
            for attribute in attributes:
                for i, variable in enumerate(variables):
                    for other in before[i]:
                        yield Apply(
                            "=" if equal else "<>",
                            (EventField(other, attribute), EventField(variable, attribute)),
                        )
        case _:
            yield condition


class _Variable:
    """A variable in a function: its attributes are fields, or else what every event has."""

    def __init__(self, name: str, fields: Sequence[str]):
        self._name, self._fields = name, fields

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._fields:
            for own, column in OWN.items():
                if own.lower() == name.lower():
                    return Col(column(self._name))
        return Col(f"{self._name}.{name}")

    __getitem__ = __getattr__


def _called(function: Function, fields: Mapping[str, Sequence[str]]) -> Expr:
    parameters = inspect.signature(function).parameters
    return as_expr(function(*(_Variable(name, fields.get(name, ())) for name in parameters)))


__all__ = ["FUNCTIONS", "Matches", "matches_of"]
