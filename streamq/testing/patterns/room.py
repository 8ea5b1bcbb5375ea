"""The room of an operator of patterns in tests: its rule and set definition for the oracle, its draws, the name of its verb."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from hypothesis import strategies as st

from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.syntax import Part, Scope
from streamq.testing.patterns.trees import O, TreeRoom, tree_rooms
from streamq.testing.windows.room import Argument, lengths_of_time

if TYPE_CHECKING:
    from streamq.testing.patterns.matches import Match
    from streamq.testing.patterns.rules import Evaluation
    from streamq.testing.patterns.set_definitions import Query, Relation


class Drawing(Protocol):
    """Draws the arguments of an operator."""

    def part(self, *, negated: bool = False, may_repeat: bool = True) -> Part:
        """Draw a part with a pattern of its own; ``may_repeat``: True if there may be a REPEAT in it."""

    def parts(self, least: int, most: int) -> tuple[Part, ...]:
        """Draw ``least`` parts or more, ``most`` at most."""

    def bounding(self) -> Part:
        """Draw a part with an operator of two contributors or more within a scope."""

    def scope(self) -> Scope:
        """Draw a scope."""

    def number(self, least: int, most: int) -> int:
        """Draw a number."""

    def contributors(self, part: Part) -> int:
        """Return the number of contributors of a part's match."""


class OperatorRoom(TreeRoom[O]):
    """One kind of operator: its rule, its set definition, its draws, its function or verb."""

    bounds_negation: ClassVar[bool] = False
    """True if a NOT may be drawn over it."""

    function: ClassVar[str] = ""
    """The name of the function of streams that makes it; "" if a verb of patterns does."""

    verb: ClassVar[str] = ""
    """The name of the verb of patterns that makes it."""

    arguments: ClassVar[Mapping[tuple[str, str], Argument]] = {}
    """Draws of the arguments of functions and verbs, by verb and name."""

    @abstractmethod
    def matches(self, tree: O, evaluation: Evaluation) -> list[Match]:
        """Return its matches, one by one, by its rule."""

    @abstractmethod
    def relation(self, tree: O, query: Query) -> Relation:
        """Return its matches as SQL; only for parts that neither select nor consume."""

    @abstractmethod
    def drawn(self, drawing: Drawing) -> O:
        """Draw a legal operator."""

    @abstractmethod
    def contributors(self, tree: O, drawing: Drawing) -> int:
        """Return the number of contributors of a match."""


def rooms() -> dict[type[PatternOperator], OperatorRoom[Any]]:
    """Return the rooms by the kinds of their operators."""
    return {kind: room for kind, room in tree_rooms().items() if isinstance(room, OperatorRoom)}


def room_of(tree: Any) -> OperatorRoom[Any]:
    """Return the room of an operator."""
    return rooms()[type(tree)]


SCOPES = lengths_of_time(1, 9)
"""Draws scopes of verbs."""


def counts(least: int, most: int) -> Argument:
    """Return the draw of a count of a verb, on any axis."""
    return lambda axis: st.integers(least, most)


__all__ = ["SCOPES", "Drawing", "OperatorRoom", "counts", "room_of", "rooms"]
