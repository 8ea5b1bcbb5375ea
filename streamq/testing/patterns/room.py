"""The room of an operator of patterns in tests: its rule and set definition for the oracle, its draws, its verb once more."""

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
    from streamq.testing.patterns.matches import Match
    from streamq.testing.patterns.rules import Evaluation
    from streamq.testing.patterns.set_definitions import Query, Relation

Make = Callable[[Sequence[Part]], PatternOperator]
"""Makes an operator of its parts."""


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


class Reading(Protocol):
    """The matches of a pattern in the second reading of the verbs."""

    def with_tree(self, make: Callable[[Any], Any]) -> Any:
        """Return the matches after ``make`` has changed the last definition's operator."""

    def negation(self, negated: Any, make: Callable[[Part, Part], PatternOperator]) -> Any:
        """Return the matches of an operator over this pattern and a negated one."""


class OperatorRoom(TreeRoom[O]):
    """One kind of operator: its rule, its set definition, its draws, its verbs."""

    bounds_negation: ClassVar[bool] = False
    """True if a NOT may be drawn over it."""

    functions: ClassVar[Mapping[str, Callable[..., tuple[Sequence[Any], Make]]]] = {}
    """Second readings of the functions that make it: from a call's arguments to the parts and the maker of the operator."""

    verbs: ClassVar[Mapping[str, Callable[..., Any]]] = {}
    """Second readings of the verbs of patterns that make it."""

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


def scope_read(within: Any) -> Scope:
    """Return a scope as a text writes it: with its unit, or as a number of ticks."""
    if isinstance(within, dt.timedelta):
        return show_duration(length(within), TIMESTAMP)
    return within if isinstance(within, str) else length(within)


SCOPES = lengths_of_time(1, 9)
"""Draws scopes of verbs."""


def counts(least: int, most: int) -> Argument:
    """Return the draw of a count of a verb, on any axis."""
    return lambda axis: st.integers(least, most)


__all__ = ["SCOPES", "Drawing", "OperatorRoom", "Reading", "counts", "room_of", "rooms", "scope_read"]
