"""UNLESS_BEFORE(A, B, w): a match of A with no match of B in the w before it, w included and its own start not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from streamq.choices import LengthKind
from streamq.operators.lifetime_change import Length, Start
from streamq.patterns.fluent import NegatingVerbs, parse_scope
from streamq.patterns.matches import Matches, tick_count, with_lifetimes
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import NEGATED, PATTERN, SCOPE, Extent, Extents
from streamq.patterns.picture_words import PictureWords
from streamq.patterns.syntax import Part, Scope

if TYPE_CHECKING:
    from streamq import time
    from streamq.patterns.contributor import Contributor
    from streamq.patterns.definition_lowering import DefinitionLowering
    from streamq.stream import Stream


@dataclass(frozen=True)
class UnlessBefore(PatternOperator):
    """A match that no event of ``negated`` comes before within a scope."""

    pattern: Part
    negated: Part
    within: Scope

    keyword = "UNLESS_BEFORE"
    signature = (PATTERN, NEGATED, SCOPE)

    def extent(self, types: Extents) -> Extent:
        pattern, negated = self.pattern.pattern.extent(types), self.negated.pattern.extent(types)
        return Extent(1, pattern.span, waits=max(pattern.waits, negated.waits))

    def matches(self, lowering: DefinitionLowering) -> Matches:
        """Anti-join the matches with the negated events, which live from just after their start to the end of the scope."""
        matches, negated = lowering.lowered(self.pattern), lowering.lowered(self.negated)
        pair = lowering.pair(matches, negated)
        lasting = with_lifetimes(negated.stream, Start(by=1), Length(LengthKind.FIXED, self.scope))
        alone = pair.without(matches.stream, lasting)
        matches = replace(matches, stream=alone, contributors=(matches.starts,), lasts=tick_count(1))
        return lowering.identified(matches, f"UNLESS_BEFORE {self.scope}", (matches.id,))

    def keeps(self, words: PictureWords) -> str:
        return f"{words.names((self.negated,))} for {words.scope(self.within)}"


class UnlessBeforeVerbs(NegatingVerbs):
    """``unless_before``."""

    def unless_before(self, negated: Stream | Contributor, within: time.Duration) -> Self:
        """Keep the matches with no event of ``negated`` before them, ``within`` a scope that ends with the match's start.

        UNLESS_BEFORE(pattern, negated, within) in the CEDR language: the scope is ``[start - within, start)``, so an event at the
        match's own start is not before it. A match lives for a tick.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (6, 7, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> sq.any_of(b.alias("y")).unless_before(a.alias("x"), within=3).show()
        y_v  root  start  end
          4     6      6    7
        """
        scope = parse_scope(within, "unless_before")
        return self._negation(negated, lambda this, other: UnlessBefore(this, other, scope))


__all__ = ["UnlessBefore", "UnlessBeforeVerbs"]
