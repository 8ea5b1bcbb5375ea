"""The room of an operator of patterns: its rule and its set definition for the oracle, its draws, its verb read a second time."""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from hypothesis import strategies as st

from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.syntax import Part, Scope
from streamq.testing.patterns.trees import O, TreeRoom, tree_rooms
from streamq.testing.windows.room import Argument, lengths_of_time
from streamq.time import TIMESTAMP, length, show_duration

if TYPE_CHECKING:
    from streamq.testing.patterns.rules import Evaluation, Match
    from streamq.testing.patterns.set_definitions import Query, Relation

Make = Callable[[Sequence[Part]], PatternOperator]
"""Makes an operator of its parts."""


class Drawing(Protocol):
    """Draws the arguments of an operator."""

    def part(self, *, negated: bool = False, may_repeat: bool = True) -> Part:
        """Return a part that is drawn, with a pattern of its own; ``may_repeat``: whether there may be a REPEAT in it."""

    def parts(self, least: int, most: int) -> tuple[Part, ...]:
        """Return some parts that are drawn."""

    def bounding(self) -> Part:
        """Return a part with an operator of two contributors or more within a scope."""

    def scope(self) -> Scope:
        """Return a scope that is drawn."""

    def number(self, least: int, most: int) -> int:
        """Return a number that is drawn."""

    def contributors(self, part: Part) -> int:
        """Return how many contributors a match of a part has."""


class Reading(Protocol):
    """The matches of a pattern in the second reading of the verbs."""

    def with_tree(self, make: Callable[[Any], Any]) -> Any:
        """Return the matches of what is made of the last definition's operator."""

    def negation(self, negated: Any, make: Callable[[Part, Part], PatternOperator]) -> Any:
        """Return the matches of an operator over this pattern and another, which is negated."""


class OperatorRoom(TreeRoom[O]):
    """One kind of operator: its rule, its set definition, its draws, its verbs."""

    bounds_negation: ClassVar[bool] = False
    """True if a NOT may be drawn over it."""

    functions: ClassVar[Mapping[str, Callable[..., tuple[Sequence[Any], Make]]]] = {}
    """The functions that make it, read a second time: of what they are called with, the parts and what makes the operator."""

    verbs: ClassVar[Mapping[str, Callable[..., Any]]] = {}
    """The verbs of patterns that make it, read a second time."""

    arguments: ClassVar[Mapping[tuple[str, str], Argument]] = {}
    """Draws of the arguments of those, by verb and name."""

    @abstractmethod
    def matches(self, tree: O, evaluation: Evaluation) -> list[Match]:
        """Return its matches, one by one, as its rule says it."""

    @abstractmethod
    def relation(self, tree: O, query: Query) -> Relation:
        """Return its matches as SQL, but where parts select or consume."""

    @abstractmethod
    def drawn(self, drawing: Drawing) -> O:
        """Return an operator that is legal."""

    @abstractmethod
    def contributors(self, tree: O, drawing: Drawing) -> int:
        """Return how many contributors a match has."""


def rooms() -> dict[type[PatternOperator], OperatorRoom[Any]]:
    """Return the rooms by the kinds of their operators."""
    return {kind: room for kind, room in tree_rooms().items() if isinstance(room, OperatorRoom)}


def room_of(tree: Any) -> OperatorRoom[Any]:
    """Return the room of an operator."""
    return rooms()[type(tree)]


def scope_read(within: Any) -> Scope:
    """Return a scope as a text has it: with its unit, or as so many ticks."""
    if isinstance(within, dt.timedelta):
        return show_duration(length(within), TIMESTAMP)
    return within if isinstance(within, str) else length(within)


SCOPES = lengths_of_time(1, 9)
"""Draws scopes of verbs."""


def counts(least: int, most: int) -> Argument:
    """Return how a count of a verb is drawn, on any axis."""
    return lambda axis: st.integers(least, most)


__all__ = ["SCOPES", "Drawing", "OperatorRoom", "Reading", "counts", "room_of", "rooms", "scope_read"]
