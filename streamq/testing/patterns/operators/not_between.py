"""NOT: a match with none of another pattern strictly between its first contributor and its last."""

from __future__ import annotations

from streamq.patterns.operators.negation import Not
from streamq.patterns.syntax import Part
from streamq.testing.patterns.matches import Match
from streamq.testing.patterns.room import Drawing, OperatorRoom
from streamq.testing.patterns.rules import Evaluation
from streamq.testing.patterns.set_definitions import Query, Relation


class NotRoom(OperatorRoom[Not]):
    """The room of :class:`Not`."""

    kind = Not
    verb = "without"

    def positive(self, tree: Not) -> tuple[Part, ...]:
        return (tree.pattern,)

    def negated(self, tree: Not) -> tuple[Part, ...]:
        return (tree.negated,)

    def children(self, tree: Not) -> tuple[Part, ...]:
        return (tree.negated, tree.pattern)

    def matches(self, tree: Not, evaluation: Evaluation) -> list[Match]:
        return evaluation.matches_without(
            tree.pattern, tree.negated, lambda e, z: e.contributors[0] < z < e.contributors[-1]
        )

    def relation(self, tree: Not, query: Query) -> Relation:
        between = "z._vs > e._contributors[1] AND z._vs < e._contributors[-1]"
        return query.relation_without(tree.pattern, tree.negated, between)

    def drawn(self, drawing: Drawing) -> Not:
        negated = drawing.part(negated=True)
        return Not(negated, drawing.bounding())

    def contributors(self, tree: Not, drawing: Drawing) -> int:
        return drawing.contributors(tree.pattern)
