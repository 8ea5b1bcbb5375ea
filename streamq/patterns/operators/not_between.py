"""NOT(B, P): a match of P with no match of B strictly between its first and its last contributor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from streamq.patterns.fluent import NegatingVerbs
from streamq.patterns.matches import Matches
from streamq.patterns.operator import Operator
from streamq.patterns.scale import Scale
from streamq.patterns.source_text import Refusal
from streamq.patterns.syntax import Part
from streamq.patterns.tree import NEGATED, PATTERN, Extent, Extents

if TYPE_CHECKING:
    from streamq.patterns.contributor import Contributor
    from streamq.patterns.lowering import Lowering
    from streamq.stream import Stream


@dataclass(frozen=True)
class Not(Operator):
    """A match of ``pattern`` with no event of ``negated`` between its first and its last contributor."""

    negated: Part
    pattern: Part

    keyword = "NOT"
    signature = (NEGATED, PATTERN)

    def check(self, types: Extents) -> None:
        pattern = self.pattern.pattern
        hint = "Write NOT(type, SEQUENCE(...)); ATLEAST and ALL serve as well."
        if not pattern.bounds_negation:
            wrong = "an unscoped negation: NOT over neither SEQUENCE, ATLEAST nor ALL"
            raise Refusal(pattern.place, wrong, "", hint)
        if pattern.extent(types).contributors < 2:
            wrong = "an unscoped negation: NOT over a pattern with a single contributor"
            raise Refusal(pattern.place, wrong, "", hint)

    def extent(self, types: Extents) -> Extent:
        pattern, negated = self.pattern.pattern.extent(types), self.negated.pattern.extent(types)
        return replace(pattern, waits=max(pattern.waits, negated.waits))

    def matches(self, lowering: Lowering) -> Matches:
        """An anti join with the negated events in the scope of the pattern."""
        negated, matches = lowering.lowered(self.negated), lowering.lowered(self.pattern)
        return lowering.without_between(matches, negated, matches.contributors[0], self.pattern.pattern.scope)

    def keeps(self, scale: Scale) -> str:
        within = self.pattern.pattern.duration
        assert within is not None, "what bounds a negation has a scope"
        return f"{scale.names((self.negated,))} for {scale.scope(within)}"


class NotVerbs(NegatingVerbs):
    """``without``."""

    def without(self, negated: Stream | Contributor) -> Self:
        """The matches with no event of ``negated`` strictly between their first and last contributor: NOT(negated, pattern).

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> c = sq.events([(5, 6, {"v": 5})])
        >>> sq.sequence(a.alias("x"), b.alias("y"), within=10).without(c.alias("z")).show()
        x_v  y_v  root  start  end
          1    3     1      4   11
          2    3     2      4   12
        """
        return self._negation(negated, lambda this, other: Not(other, this))


__all__ = ["Not", "NotVerbs"]
