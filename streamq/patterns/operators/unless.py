"""UNLESS(A, B, w): a match of A that no match of B follows within less than w; UNLESS(A, B, n, w) counts from A's n-th event."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from streamq.choices import LengthKind
from streamq.operators.lifetime_change import Length, Start
from streamq.patterns.fluent import NegatingVerbs, count_of, parse_scope
from streamq.patterns.matches import POINT, Matches, tick_count, with_lifetimes
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import NEGATED, PATTERN, SCOPE, Argument, ArgumentKind, Extent, Extents
from streamq.patterns.picture_words import PictureWords
from streamq.patterns.source_text import Refusal
from streamq.patterns.syntax import Part, Scope

if TYPE_CHECKING:
    from streamq import time
    from streamq.patterns.contributor import Contributor
    from streamq.patterns.definition_lowering import DefinitionLowering
    from streamq.stream import Stream


@dataclass(frozen=True)
class Unless(PatternOperator):
    """A match that no event of ``negated`` follows within a scope.

    The scope starts with the match, or at its ``nth`` contributor, counted from 1.
    """

    pattern: Part
    negated: Part
    within: Scope
    nth: int | None = None

    keyword = "UNLESS"
    signature = (PATTERN, NEGATED, Argument("nth", ArgumentKind.COUNT, is_optional=True), SCOPE)
    is_ordered = True

    def check(self, types: Extents) -> None:
        """Raise Refusal for an ``nth`` that is not one of the pattern's contributors."""
        available = self.pattern.pattern.extent(types).contributors
        if self.nth is not None and not 1 <= self.nth <= available:
            observed = f"found {self.nth}, and the pattern has {available}"
            place = self.places.get("nth", self.place)
            raise Refusal(place, "UNLESS counts from a contributor that is not there", observed)

    def extent(self, types: Extents) -> Extent:
        pattern, negated = self.pattern.pattern.extent(types), self.negated.pattern.extent(types)
        return Extent(1, pattern.span, self.scope, max(pattern.waits, negated.waits) + self.scope)

    def matches(self, lowering: DefinitionLowering) -> Matches:
        """Anti-join the matches with negated events that follow within the scope, from the match or its nth contributor on."""
        matches, negated = lowering.lowered(self.pattern), lowering.lowered(self.negated)
        contributor = matches.starts if self.nth is None else matches.contributors[self.nth - 1]
        is_own = contributor is matches.starts
        pair = lowering.pair(matches, negated)
        stream = matches.stream
        if not is_own:
            span = lowering.extent(self.pattern).span
            stream = with_lifetimes(stream, Start(expr=matches.ticks(contributor), within=span), POINT)
        if self.scope > 1:
            # a negated event lives over all instants that it follows within the scope
            follows = with_lifetimes(negated.stream, Start(by=1 - self.scope), Length(LengthKind.FIXED, self.scope - 1))
            stream = pair.without(stream, follows)
        if not is_own:
            stream = with_lifetimes(stream, Start(expr=matches.ticks(matches.starts), within=0), POINT)
        matches = replace(matches, stream=stream, contributors=(matches.starts,), lasts=tick_count(self.scope))
        return lowering.identified(matches, f"UNLESS {self.nth or 0} {self.scope}", (matches.id,))

    def scope_in_words(self, words: PictureWords) -> str:
        since = "" if self.nth is None else f" of contributor {self.nth}"
        return f"{words.scope(self.within)}{since}"

    def keeps(self, words: PictureWords) -> str:
        """Return both parts in words, with the time for which their events are kept: the scope, or a longer span below."""
        span = words.extent(self.pattern).span
        reaches_further = self.nth is not None and span > self.scope
        span_in_words = words.amount(span, self.pattern) if reaches_further else words.scope(self.within)
        return f"{words.names((self.pattern, self.negated))} for {span_in_words}"


class UnlessVerbs(NegatingVerbs):
    """``unless``."""

    def unless(self, negated: Stream | Contributor, within: time.Duration, *, nth: int | None = None) -> Self:
        """Keep the matches that no event of ``negated`` follows ``within`` a scope, from the match or its nth contributor on.

        UNLESS(pattern, negated, within) in the CEDR language. A match lives in ``[start, start + within)``.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> sq.any_of(a.alias("x")).unless(b.alias("y"), within=3).show()
        x_v  root  start  end
          1     1      1    4
        """
        scope, number = parse_scope(within, "unless"), None if nth is None else count_of(nth, "unless")
        return self._negation(negated, lambda this, other: Unless(this, other, scope, number))


__all__ = ["Unless", "UnlessVerbs"]
