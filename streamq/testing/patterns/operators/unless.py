"""UNLESS: a match that none of another pattern follows within a scope, from the match on or from one of its contributors."""

from __future__ import annotations

from streamq.patterns.operators.negation import Unless
from streamq.patterns.syntax import Part
from streamq.testing.patterns.matches import Match
from streamq.testing.patterns.room import SCOPES, Drawing, OperatorRoom
from streamq.testing.patterns.rules import Evaluation
from streamq.testing.patterns.set_definitions import Query, Relation, ticks_of


class UnlessRoom(OperatorRoom[Unless]):
    """The room of :class:`Unless`."""

    kind = Unless
    verb = "unless"
    arguments = {("unless", "within"): SCOPES}

    def positive(self, tree: Unless) -> tuple[Part, ...]:
        return (tree.pattern,)

    def negated(self, tree: Unless) -> tuple[Part, ...]:
        return (tree.negated,)

    def matches(self, tree: Unless, evaluation: Evaluation) -> list[Match]:
        """Return the matches with no negated one after their start, or their nth contributor, and within the scope.

        They keep their start and last until the scope after it; their only contributor is that start.
        """
        scope, nth = evaluation.ticks(tree.within), tree.nth
        alone = evaluation.matches_without(
            tree.pattern, tree.negated, lambda e, z: 0 < z - (e.contributors[nth - 1] if nth else e.vs) < scope
        )
        return [e.alone("unless", f"UNLESS {nth or 0} {scope}", e.vs + scope) for e in alone]

    def relation(self, tree: Unless, query: Query) -> Relation:
        """Return the same matches as SQL."""
        since = f"e._contributors[{tree.nth}]" if tree.nth else "e._vs"
        between = f"z._vs > {since} AND z._vs < {since} + {ticks_of(tree.within)}"
        header = f"e._id || '~', e._vs, e._vs + {ticks_of(tree.within)}, e._root, [e._vs]"
        return query.relation_without(tree.pattern, tree.negated, between, header)

    def drawn(self, drawing: Drawing) -> Unless:
        pattern, negated = drawing.part(), drawing.part(negated=True)
        nth = drawing.number(0, drawing.contributors(pattern))
        return Unless(pattern, negated, drawing.scope(), nth or None)

    def contributors(self, tree: Unless, drawing: Drawing) -> int:
        return 1
