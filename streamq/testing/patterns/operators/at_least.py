"""ATLEAST, ALL, ANY: events of some of the parts, of all, or of one, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from streamq.patterns.operators.at_least import All, AnyOf, AtLeast
from streamq.patterns.syntax import Part
from streamq.testing.patterns.matches import Match
from streamq.testing.patterns.room import SCOPES, Drawing, OperatorRoom, counts
from streamq.testing.patterns.rules import Evaluation
from streamq.testing.patterns.set_definitions import Query, Relation, ticks_of


def orders(parts: Sequence[Part], count: int) -> list[tuple[int, ...]]:
    """Return the orders in which events of ``count`` parts may come."""
    return list(permutations(range(len(parts)), count))


def some_of(parts: Sequence[Part], count: int, within: int, evaluation: Evaluation) -> list[Match]:
    """Return the matches of ``count`` of the parts in any order."""
    return evaluation.ordered_matches(f"ATLEAST {count} {within}", parts, orders(parts, count), within)


class AtLeastRoom(OperatorRoom[AtLeast]):
    """The room of :class:`AtLeast`."""

    kind = AtLeast
    bounds_negation = True
    function = "at_least"
    arguments = {("at_least", "within"): SCOPES, ("at_least", "count"): counts(1, 2)}

    def positive(self, tree: AtLeast) -> tuple[Part, ...]:
        return tree.parts

    def matches(self, tree: AtLeast, evaluation: Evaluation) -> list[Match]:
        return some_of(tree.parts, tree.count, evaluation.ticks(tree.within), evaluation)

    def relation(self, tree: AtLeast, query: Query) -> Relation:
        return query.ordered_relation(tree.parts, orders(tree.parts, tree.count), ticks_of(tree.within))

    def drawn(self, drawing: Drawing) -> AtLeast:
        parts = drawing.parts(2, 3)
        return AtLeast(drawing.number(2, len(parts)), parts, drawing.scope())

    def contributors(self, tree: AtLeast, drawing: Drawing) -> int:
        return tree.count


class AllRoom(OperatorRoom[All]):
    """The room of :class:`All`."""

    kind = All
    bounds_negation = True
    function = "all_of"
    arguments = {("all_of", "within"): SCOPES}

    def positive(self, tree: All) -> tuple[Part, ...]:
        return tree.parts

    def matches(self, tree: All, evaluation: Evaluation) -> list[Match]:
        return some_of(tree.parts, len(tree.parts), evaluation.ticks(tree.within), evaluation)

    def relation(self, tree: All, query: Query) -> Relation:
        return query.ordered_relation(tree.parts, orders(tree.parts, len(tree.parts)), ticks_of(tree.within))

    def drawn(self, drawing: Drawing) -> All:
        return All(drawing.parts(2, 3), drawing.scope())

    def contributors(self, tree: All, drawing: Drawing) -> int:
        return len(tree.parts)


class AnyRoom(OperatorRoom[AnyOf]):
    """The room of :class:`AnyOf`."""

    kind = AnyOf
    function = "any_of"

    def positive(self, tree: AnyOf) -> tuple[Part, ...]:
        return tree.parts

    def matches(self, tree: AnyOf, evaluation: Evaluation) -> list[Match]:
        return some_of(tree.parts, 1, 1, evaluation)

    def relation(self, tree: AnyOf, query: Query) -> Relation:
        return query.ordered_relation(tree.parts, orders(tree.parts, 1), 1)

    def drawn(self, drawing: Drawing) -> AnyOf:
        return AnyOf(drawing.parts(1, 3))

    def contributors(self, tree: AnyOf, drawing: Drawing) -> int:
        return 1
