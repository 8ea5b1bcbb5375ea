"""NOT(B, P): a match of P with no match of B strictly between its first and its last contributor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from streamq.patterns.fluent import NegatingVerbs
from streamq.patterns.matches import Matches
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import NEGATED, PATTERN, Extent, Extents
from streamq.patterns.picture_words import PictureWords
from streamq.patterns.source_text import Refusal
from streamq.patterns.syntax import Part

if TYPE_CHECKING:
    from streamq.patterns.contributor import Contributor
    from streamq.patterns.definition_lowering import DefinitionLowering
    from streamq.stream import Stream


@dataclass(frozen=True)
class Not(PatternOperator):
    """A match of ``pattern`` with no event of ``negated`` between its first and its last contributor."""

    negated: Part
    pattern: Part

    keyword = "NOT"
    signature = (NEGATED, PATTERN)

    def check(self, types: Extents) -> None:
        """Raise Refusal unless the pattern has a scope and two contributors, between which to look for negated events."""
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

    def matches(self, lowering: DefinitionLowering) -> Matches:
        """Anti-join the matches with the negated events in the scope of the pattern."""
        negated, matches = lowering.lowered(self.negated), lowering.lowered(self.pattern)
        return lowering.without_between(matches, negated, matches.contributors[0], self.pattern.pattern.scope)

    def keeps(self, words: PictureWords) -> str:
        """Return the negated part with the pattern's scope, for which its events are kept, in words."""
        within = self.pattern.pattern.duration
        assert within is not None, "what bounds a negation has a scope"
        return f"{words.names((self.negated,))} for {words.scope(within)}"


class NotVerbs(NegatingVerbs):
    """``without``."""

    def without(self, negated: Stream | Contributor) -> Self:
        """Keep the matches with no event of ``negated`` strictly between their first and last contributor: NOT(negated, pattern).

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
