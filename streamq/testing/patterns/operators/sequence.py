"""SEQUENCE: one event of each part, strictly one after the other, within a scope."""

from __future__ import annotations

from streamq.patterns.operators.sequence import Sequence
from streamq.patterns.syntax import Part
from streamq.testing.patterns.matches import Match
from streamq.testing.patterns.room import SCOPES, Drawing, OperatorRoom
from streamq.testing.patterns.rules import Evaluation
from streamq.testing.patterns.set_definitions import Query, Relation, ticks_of


class SequenceRoom(OperatorRoom[Sequence]):
    """The room of :class:`Sequence`."""

    kind = Sequence
    bounds_negation = True
    function = "sequence"
    arguments = {("sequence", "within"): SCOPES}

    def positive(self, tree: Sequence) -> tuple[Part, ...]:
        return tree.parts

    def matches(self, tree: Sequence, evaluation: Evaluation) -> list[Match]:
        within = evaluation.ticks(tree.within)
        return evaluation.ordered_matches(f"SEQUENCE {within}", tree.parts, [tuple(range(len(tree.parts)))], within)

    def relation(self, tree: Sequence, query: Query) -> Relation:
        return query.ordered_relation(tree.parts, [tuple(range(len(tree.parts)))], ticks_of(tree.within))

    def drawn(self, drawing: Drawing) -> Sequence:
        return Sequence(drawing.parts(2, 3), drawing.scope())

    def contributors(self, tree: Sequence, drawing: Drawing) -> int:
        return len(tree.parts)
