"""Rooms of the operators of patterns in tests (parts, rule, draws, verbs), and walks over trees by these rooms."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from hypothesis import strategies as st

from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import Type
from streamq.patterns.syntax import Part
from streamq.testing.windows.room import Argument, lengths_of_time

if TYPE_CHECKING:
    from streamq.testing.patterns.matches import Match
    from streamq.testing.patterns.rules import Evaluation


O = TypeVar("O", bound=PatternOperator)


@cache
def rooms() -> dict[type[Any], OperatorRoom[Any]]:
    """Return the rooms by the kinds of their operators."""
    import_module("streamq.testing.patterns.operators")
    return {room.kind: room() for room in OperatorRoom.__subclasses__()}


def positive(part: Part) -> tuple[Part, ...]:
    """Return the positive parts of a part's operator; a type has none."""
    return () if isinstance(part.pattern, Type) else rooms()[type(part.pattern)].positive(part.pattern)


def negated(part: Part) -> tuple[Part, ...]:
    """Return the negated parts of a part's operator."""
    return () if isinstance(part.pattern, Type) else rooms()[type(part.pattern)].negated(part.pattern)


def children(part: Part) -> tuple[Part, ...]:
    """Return all parts of a part's operator, in the order of a text."""
    return () if isinstance(part.pattern, Type) else rooms()[type(part.pattern)].children(part.pattern)


def parts_below(whole: Part) -> Iterator[Part]:
    """Yield a part and all parts below it, in the order of a text."""
    yield whole
    for part in children(whole):
        yield from parts_below(part)


def event_types(whole: Part) -> Iterator[tuple[str, Type]]:
    """Yield the variables of the events below a part with their types, in the order of a text."""
    for part in parts_below(whole):
        if isinstance(part.pattern, Type):
            yield part.variable or part.pattern.name, part.pattern


def seen_parts(whole: Part) -> Iterator[Part]:
    """Yield a part and the parts below it of which a match of it has events."""
    yield whole
    for part in positive(whole):
        yield from seen_parts(part)


def seen_events(whole: Part) -> Iterator[tuple[str, Type]]:
    """Yield the variables of the events that a match of a part may have with their types, in the order of a text."""
    for part in seen_parts(whole):
        if isinstance(part.pattern, Type):
            yield part.variable or part.pattern.name, part.pattern


def repeated_variables(whole: Part) -> dict[str, int]:
    """Map each variable that a match has several times, of an event or a pattern, to the number (from 0) of its REPEAT."""
    trees = (part for part in parts_below(whole) if not isinstance(part.pattern, Type))
    repeating = (part for part in trees if rooms()[type(part.pattern)].repeats)
    return {
        name: number
        for number, part in enumerate(repeating)
        for p in itertools.chain(*map(parts_below, positive(part)))
        if (name := p.variable or (p.pattern.name if isinstance(p.pattern, Type) else None)) is not None
    }


def sub_patterns(whole: Part) -> frozenset[str]:
    """Return the variables of named sub-patterns in a part, itself counted."""
    parts = (part for part in parts_below(whole) if not isinstance(part.pattern, Type))
    return frozenset(part.variable for part in parts if part.variable is not None)


def variables(whole: Part) -> list[str]:
    """Return the variables that a match of a part has: those of events and of sub-patterns, under a REPEAT as ``f@``."""
    own = (p.variable or (p.pattern.name if isinstance(p.pattern, Type) else None) for p in seen_parts(whole))
    many = repeated_variables(whole)
    return [f"{name}@" if name in many else name for name in own if name is not None]


class OperatorRoom(ABC, Generic[O]):
    """One kind of operator: its parts, rule, draws, function or verb; every subclass with a ``kind`` is registered."""

    kind: ClassVar[type[PatternOperator]]

    @abstractmethod
    def positive(self, tree: O) -> tuple[Part, ...]:
        """Return the parts whose events a match has."""

    repeats: ClassVar[bool] = False
    """True if a match has several events of its positive parts, which then take aggregates."""

    def negated(self, tree: O) -> tuple[Part, ...]:
        """Return the parts of which no event must be there."""
        return ()

    def children(self, tree: O) -> tuple[Part, ...]:
        """Return all parts, in the order of a text."""
        return (*self.positive(tree), *self.negated(tree))

    function: ClassVar[str] = ""
    """The name of the function of streams that makes it; "" if a verb of patterns does."""

    verb: ClassVar[str] = ""
    """The name of the verb of patterns that makes it."""

    arguments: ClassVar[Mapping[tuple[str, str], Argument]] = {}
    """Draws of the arguments of functions and verbs, by verb and name."""

    @abstractmethod
    def matches(self, tree: O, evaluation: Evaluation) -> list[Match]:
        """Return its matches, one by one, by its rule."""


def room_of(tree: Any) -> OperatorRoom[Any]:
    """Return the room of an operator."""
    return rooms()[type(tree)]


SCOPES = lengths_of_time(1, 9)
"""Draws scopes of verbs."""


def counts(least: int, most: int) -> Argument:
    """Return the draw of a count of a verb, on any axis."""
    return lambda axis: st.integers(least, most)
