"""The trees of patterns as the oracle walks over them: which parts of an operator are positive, and which are negated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar

from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import Type
from streamq.patterns.syntax import Part

O = TypeVar("O", bound=PatternOperator)


class TreeRoom(ABC, Generic[O]):
    """The parts of one kind of operator; a subclass is registered by being there."""

    kind: ClassVar[type[PatternOperator]]

    @abstractmethod
    def positive(self, tree: O) -> tuple[Part, ...]:
        """Return the parts whose events a match has."""

    def negated(self, tree: O) -> tuple[Part, ...]:
        """Return the parts of which no event must be there."""
        return ()

    def children(self, tree: O) -> tuple[Part, ...]:
        """Return all parts, in the order of a text."""
        return (*self.positive(tree), *self.negated(tree))


@cache
def tree_rooms() -> dict[type[Any], TreeRoom[Any]]:
    """Return the rooms by the kinds of their operators."""
    import_module("streamq.testing.patterns.operators")
    rooms: dict[type[Any], TreeRoom[Any]] = {}
    waiting: list[Any] = [TreeRoom]
    while waiting:
        below = waiting.pop()
        waiting += below.__subclasses__()
        if "kind" in vars(below):
            rooms[below.kind] = below()
    return rooms


def positive(part: Part) -> tuple[Part, ...]:
    """Return the positive parts of a part's operator; there are none of events of a type."""
    return () if isinstance(part.pattern, Type) else tree_rooms()[type(part.pattern)].positive(part.pattern)


def negated(part: Part) -> tuple[Part, ...]:
    """Return the negated parts of a part's operator."""
    return () if isinstance(part.pattern, Type) else tree_rooms()[type(part.pattern)].negated(part.pattern)


def children(part: Part) -> tuple[Part, ...]:
    """Return all parts of a part's operator, in the order of a text."""
    return () if isinstance(part.pattern, Type) else tree_rooms()[type(part.pattern)].children(part.pattern)


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


def variables(whole: Part) -> list[str]:
    """Return the variables that a match of a part has: those of events and of sub-patterns."""
    own = (p.variable or (p.pattern.name if isinstance(p.pattern, Type) else None) for p in seen_parts(whole))
    return [name for name in own if name is not None]


__all__ = [
    "TreeRoom",
    "children",
    "event_types",
    "negated",
    "parts_below",
    "positive",
    "seen_events",
    "seen_parts",
    "tree_rooms",
    "variables",
]
