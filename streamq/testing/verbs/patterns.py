"""Read patterns, as a text or as verbs; verbs give the syntax tree of the text with the same meaning."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from streamq.patterns.conditions import OWN
from streamq.patterns.definitions import used_types
from streamq.patterns.detect import Definitions, Detect, event_type
from streamq.patterns.parser import parse
from streamq.patterns.pattern import Pattern
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import Type
from streamq.patterns.syntax import (
    Apply,
    AttributeEquals,
    Condition,
    CorrelationKey,
    Definition,
    EventField,
    Part,
    Program,
    source_text,
)
from streamq.plan.expr import Col, Expr, as_expr
from streamq.plan.node import Node
from streamq.testing.patterns.room import Make, rooms
from streamq.testing.patterns.trees import event_types
from streamq.testing.verbs.pieces import Function, Piece
from streamq.testing.verbs.streams import Events


@dataclass(frozen=True)
class Matches(Events):
    """The matches of a pattern, which further verbs can extend or make a part of another pattern."""

    written: Written

    def of(self, plan: Node) -> Events:
        """Return the result of another verb over matches: a plain stream."""
        return Events(plan)

    _events = of

    def alias(self, name: str) -> Piece:
        return self.written.piece(self, name)

    def where(self, condition: Any) -> Events:
        """Add a condition: the text after WHERE, or a function of variables."""
        if not isinstance(condition, str):
            return replace(self.written, functions=(*self.written.functions, condition)).matches()
        more = parse(f"EVENT e WHEN x WHERE\n{condition}").definitions[0].where
        return self.written.narrowed(more).matches()

    def with_tree(self, make: Callable[[Any], Any]) -> Matches:
        """Return the matches of the pattern whose last definition has the operator ``make(operator)``."""
        *others, last = self.written.program.definitions
        changed = replace(last, pattern=replace(last.pattern, pattern=make(last.pattern.pattern)))
        return replace(self.written, program=Program((*others, changed)), source=None).matches()

    def negation(self, negated: Any, make: Callable[[Part, Part], PatternOperator]) -> Matches:
        """Return the matches of an operator over this pattern and a negated one."""
        return _matches_over([self, negated], lambda parts: make(*parts))


for _room in rooms().values():
    for _name, _verb in _room.verbs.items():
        setattr(Matches, _name, _verb)


@dataclass(frozen=True)
class Written:
    """The parts of a pattern: its definitions, the streams of their types, and the conditions that are functions."""

    program: Program
    types: dict[str, Events]
    functions: tuple[Function, ...] = ()
    source: str | None = None

    def matches(self) -> Matches:
        """Return the matches of the last definition; a stream of several event types is one type, called as the first is."""
        called: dict[Node, str] = {}
        names = {
            kind.name: called.setdefault(self.types[kind.name].plan, kind.name) for kind in used_types(self.program)
        }
        if len(called) < len(names):
            return replace(self, program=_with_names(self.program, names)).matches()
        inputs = tuple(called)
        columns = {name: event_type(plan, has_ids=False).fields for name, plan in zip(names, inputs, strict=True)}
        of_variable = {variable: columns[kind] for variable, kind in _events(self.program) if kind in columns}
        conditions = tuple(_condition(function, of_variable) for function in self.functions)
        definitions = Definitions.from_program(self.program, self.source)
        return Matches(Detect(inputs, tuple(names), definitions, conditions), self)

    def narrowed(self, more: Sequence[Condition]) -> Written:
        """Return the pattern with more conditions of its last definition; the user's text, which lacks them, is dropped."""
        *others, last = self.program.definitions
        narrower = replace(last, where=(*last.where, *more))
        return replace(self, program=Program((*others, narrower)), source=None)

    def piece(self, matches: Matches, name: str | None) -> Piece:
        """Return the pattern as a part of another: its operator, with its conditions on named variables, if that is all it has.

        A pattern with several definitions, or with an output or slices, becomes the event type of its matches, which must have a
        ``name``. ``matches`` are the pattern's own.
        """
        last = self.program.definitions[-1]
        if len(self.program.definitions) > 1 or last.output or last.occurrence or last.validity:
            assert name is not None
            return Piece(Part(Type(name), name), {name: matches})
        variables = [variable for variable, _ in _events(self.program)]
        where = tuple(named for condition in last.where for named in _named_conditions(variables, condition))
        return Piece(replace(last.pattern, variable=name), self.types, where, self.functions)


def matches_of(pattern: Pattern) -> Matches:
    """Return the matches of a pattern that the scenario contains as an object, with the plan that the product has made of it.

    Only verbs after it are read again.
    """
    written = pattern.written
    types = {name: Events(stream.plan) for name, stream in written.types.items()}
    return Matches(pattern.plan, Written(written.program, types, written.functions, written.source))


def cedr(text: str | bytes, **streams: Events) -> Matches:
    """Return the matches of a text."""
    return Written(parse(text), streams, source=source_text(text).text).matches()


def _function(reading: Callable[..., tuple[Sequence[Any], Make]]) -> Callable[..., Matches]:
    """Return a function of streams, from a room's reading of its arguments as parts and a maker of the operator."""
    return lambda *args, **kwargs: _matches_over(*reading(*args, **kwargs))


FUNCTIONS = {"cedr": cedr} | {name: _function(f) for room in rooms().values() for name, f in room.functions.items()}
"""The functions of streams, by name."""


def _matches_over(parts: Sequence[Any], make: Make) -> Matches:
    """Return the matches of the operator that ``make`` builds over pieces and matches, with the conditions of all of them.

    Matches are parts without a name. Of event types of one name, the last one counts.
    """
    pieces = [part.written.piece(part, None) if isinstance(part, Matches) else part for part in parts]
    types = {name: events for piece in pieces for name, events in piece.types.items()}
    where = tuple(condition for piece in pieces for condition in piece.where)
    functions = tuple(function for piece in pieces for function in piece.functions)
    pattern = make(tuple(piece.part for piece in pieces))
    return Written(Program((Definition("Pattern", Part(pattern), where),)), types, functions).matches()


def _events(program: Program) -> list[tuple[str, str]]:
    """Return the event variables of the last definition, each with its type, in the order of the text."""
    return [(name, kind.name) for name, kind in event_types(program.definitions[-1].pattern)]


def _with_names(syntax: Any, names: Mapping[str, str]) -> Any:
    """Return a piece of syntax whose types have other names; an event keeps the name by which conditions call it."""
    match syntax:
        case Part(Type(name) as kind, variable) if names.get(name, name) != name:
            return replace(syntax, pattern=replace(kind, name=names[name]), variable=variable or name)
        case tuple():
            return tuple(_with_names(one, names) for one in syntax)
        case Program() | Definition() | Part() | PatternOperator():
            below = {field.name: _with_names(getattr(syntax, field.name), names) for field in fields(syntax)}
            return replace(syntax, **below)
        case _:
            return syntax


def _named_conditions(variables: Sequence[str], condition: Condition) -> Iterator[Condition]:
    """Yield a condition on all variables of a pattern as conditions that name them; any other condition as it is.

    EQUAL compares only neighbours in the order of ``variables``, UNIQUE every two.
    """
    match condition:
        case AttributeEquals(attribute, value):
            for variable in variables:
                yield Apply("=", (EventField(variable, attribute), value))
        case CorrelationKey(attributes, equal):
            # EQUAL compares each variable with the one before, UNIQUE with all before
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
    """The argument of a function of variables; its attributes are the event's fields, or columns that every event has."""

    def __init__(self, name: str, fields: Sequence[str]):
        self._name, self._fields = name, fields

    def __getattr__(self, name: str) -> Expr:
        """Return the column of a field or, where the event has no such field, of a built-in one, in upper or lower case.

        A name that is neither is taken for a field; one that begins with two underscores raises AttributeError.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._fields:
            for own, column in OWN.items():
                if own.lower() == name.lower():
                    return Col(column(self._name))
        return Col(f"{self._name}.{name}")

    __getitem__ = __getattr__


def _condition(function: Function, fields: Mapping[str, Sequence[str]]) -> Expr:
    parameters = inspect.signature(function).parameters
    return as_expr(function(*(_Variable(name, fields.get(name, ())) for name in parameters)))


__all__ = ["FUNCTIONS", "Matches", "matches_of"]
