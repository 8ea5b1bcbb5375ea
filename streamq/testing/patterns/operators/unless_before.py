"""UNLESS_BEFORE: a match that none of another pattern comes before within a scope."""

from __future__ import annotations

from streamq.patterns.operators.negation import UnlessBefore
from streamq.patterns.syntax import Part
from streamq.testing.patterns.matches import Match
from streamq.testing.patterns.room import SCOPES, Drawing, OperatorRoom
from streamq.testing.patterns.rules import Evaluation
from streamq.testing.patterns.set_definitions import Query, Relation, ticks_of


class UnlessBeforeRoom(OperatorRoom[UnlessBefore]):
    """The room of :class:`UnlessBefore`."""

    kind = UnlessBefore
    verb = "unless_before"
    arguments = {("unless_before", "within"): SCOPES}

    def positive(self, tree: UnlessBefore) -> tuple[Part, ...]:
        return (tree.pattern,)

    def negated(self, tree: UnlessBefore) -> tuple[Part, ...]:
        return (tree.negated,)

    def matches(self, tree: UnlessBefore, evaluation: Evaluation) -> list[Match]:
        scope = evaluation.ticks(tree.within)
        alone = evaluation.matches_without(tree.pattern, tree.negated, lambda e, z: e.vs - scope <= z < e.vs)
        return [e.alone("unless before", f"UNLESS_BEFORE {scope}", e.vs + 1) for e in alone]

    def relation(self, tree: UnlessBefore, query: Query) -> Relation:
        between = f"z._vs >= e._vs - {ticks_of(tree.within)} AND z._vs < e._vs"
        header = "e._id || '^', e._vs, e._vs + 1, e._root, [e._vs]"
        return query.relation_without(tree.pattern, tree.negated, between, header)

    def drawn(self, drawing: Drawing) -> UnlessBefore:
        pattern, negated = drawing.part(), drawing.part(negated=True)
        return UnlessBefore(pattern, negated, drawing.scope())

    def contributors(self, tree: UnlessBefore, drawing: Drawing) -> int:
        return 1
