"""Operators of patterns of which a match has no event of a negated part: rules match by match, and verbs."""

from __future__ import annotations

from streamq.patterns.operators.negation import CancelWhen, Not, Unless, UnlessBefore
from streamq.patterns.syntax import Part
from streamq.testing.patterns.matches import Match
from streamq.testing.patterns.room import SCOPES, OperatorRoom
from streamq.testing.patterns.rules import Evaluation


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
