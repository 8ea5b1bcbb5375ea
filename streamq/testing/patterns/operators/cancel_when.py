"""CANCEL_WHEN: a match with none of another pattern strictly between its root and its start."""

from __future__ import annotations

from streamq.patterns.operators.negation import CancelWhen
from streamq.patterns.syntax import Part
from streamq.testing.patterns.matches import Match
from streamq.testing.patterns.room import Drawing, OperatorRoom
from streamq.testing.patterns.rules import Evaluation
from streamq.testing.patterns.set_definitions import Query, Relation


class CancelWhenRoom(OperatorRoom[CancelWhen]):
    """The room of :class:`CancelWhen`."""

    kind = CancelWhen
    verb = "cancel_when"

    def positive(self, tree: CancelWhen) -> tuple[Part, ...]:
        return (tree.pattern,)

    def negated(self, tree: CancelWhen) -> tuple[Part, ...]:
        return (tree.negated,)

    def matches(self, tree: CancelWhen, evaluation: Evaluation) -> list[Match]:
        return evaluation.matches_without(tree.pattern, tree.negated, lambda e, z: e.root < z < e.vs)

    def relation(self, tree: CancelWhen, query: Query) -> Relation:
        return query.relation_without(tree.pattern, tree.negated, "z._vs > e._root AND z._vs < e._vs")

    def drawn(self, drawing: Drawing) -> CancelWhen:
        pattern = drawing.part()
        return CancelWhen(pattern, drawing.part(negated=True))

    def contributors(self, tree: CancelWhen, drawing: Drawing) -> int:
        return drawing.contributors(tree.pattern)
