"""The operators of negation, each an anti join: UNLESS, UNLESS_BEFORE, NOT and CANCEL_WHEN.

- UNLESS(A, B, w): a match of A that no match of B follows within less than w; UNLESS(A, B, n, w) counts from A's n-th event.
- UNLESS_BEFORE(A, B, w): a match of A with no match of B in the w before it, w included and its own start not.
- NOT(B, P): a match of P with no match of B strictly between its first and its last contributor.
- CANCEL_WHEN(P, B): a match of P with no match of B strictly between its root, the earliest event below it, and its start.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Self

from streamq import time
from streamq.choices import LengthKind
from streamq.operators.alter_lifetime import Length, Start
from streamq.patterns.definition_lowering import DefinitionLowering
from streamq.patterns.matches import POINT, Matches, tick_count, with_lifetimes
from streamq.patterns.pattern_operator import PatternOperator, PictureWords, count_of, parse_scope
from streamq.patterns.pattern_tree import (
    NEGATED,
    PATTERN,
    SCOPE,
    Argument,
    ArgumentKind,
    Contributor,
    Extent,
    Extents,
    Type,
)
from streamq.patterns.syntax import Part, Refusal, Scope
from streamq.plan.node import Verbs
from streamq.stream import Stream


class Negation(PatternOperator):
    """The matches of ``pattern`` that no event of ``negated`` ends."""

    pattern: Part
    negated: Part

    def extent(self, types: Extents) -> Extent:
        """Return the extent of the pattern; a match waits for negated ones, too."""
        pattern, negated = self.pattern.pattern.extent(types), self.negated.pattern.extent(types)
        return replace(pattern, waits=max(pattern.waits, negated.waits))


@dataclass(frozen=True)
class Unless(Negation):
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
            raise Refusal(self.place_of("nth"), "UNLESS counts from a contributor that is not there", observed)

    def extent(self, types: Extents) -> Extent:
        below = super().extent(types)
        return Extent(1, below.span, self.scope, below.waits + self.scope)

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
            stream = pair.anti_join(stream, follows)
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


@dataclass(frozen=True)
class UnlessBefore(Negation):
    """A match that no event of ``negated`` comes before within a scope."""

    pattern: Part
    negated: Part
    within: Scope

    keyword = "UNLESS_BEFORE"
    signature = (PATTERN, NEGATED, SCOPE)

    def extent(self, types: Extents) -> Extent:
        return replace(super().extent(types), contributors=1, lives=0)

    def matches(self, lowering: DefinitionLowering) -> Matches:
        """Anti-join the matches with the negated events, which live from just after their start to the end of the scope."""
        matches, negated = lowering.lowered(self.pattern), lowering.lowered(self.negated)
        pair = lowering.pair(matches, negated)
        lasting = with_lifetimes(negated.stream, Start(by=1), Length(LengthKind.FIXED, self.scope))
        alone = pair.anti_join(matches.stream, lasting)
        matches = replace(matches, stream=alone, contributors=(matches.starts,), lasts=tick_count(1))
        return lowering.identified(matches, f"UNLESS_BEFORE {self.scope}", (matches.id,))

    def keeps(self, words: PictureWords) -> str:
        return f"{words.names((self.negated,))} for {words.scope(self.within)}"


@dataclass(frozen=True)
class Not(Negation):
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

    def matches(self, lowering: DefinitionLowering) -> Matches:
        """Anti-join the matches with the negated events in the scope of the pattern."""
        negated, matches = lowering.lowered(self.negated), lowering.lowered(self.pattern)
        return lowering.without_between(matches, negated, matches.contributors[0], self.pattern.pattern.scope)

    def keeps(self, words: PictureWords) -> str:
        """Return the negated part with the pattern's scope, for which its events are kept, in words."""
        within = self.pattern.pattern.duration
        assert within is not None, "what bounds a negation has a scope"
        return f"{words.names((self.negated,))} for {words.scope(within)}"


@dataclass(frozen=True)
class CancelWhen(Negation):
    """A match with no event of ``negated`` between its root time and its own start."""

    pattern: Part
    negated: Part

    keyword = "CANCEL_WHEN"
    signature = (PATTERN, NEGATED)

    def advice(self, primitive: Collection[str]) -> Iterator[str]:
        """Yield a warning for single events: they have no time between root and start in which to be cancelled."""
        pattern = self.pattern.pattern
        if isinstance(pattern, Type) and pattern.name in primitive:
            yield (
                f"CANCEL_WHEN over the events of a type, here {pattern.name}, cancels none: they begin where they happen; "
                "write CANCEL_WHEN(pattern, negated)"
            )

    def matches(self, lowering: DefinitionLowering) -> Matches:
        """Anti-join the matches with the negated events after their root."""
        matches, negated = lowering.lowered(self.pattern), lowering.lowered(self.negated)
        return lowering.without_between(matches, negated, matches.root, lowering.extent(self.pattern).span)

    def keeps(self, words: PictureWords) -> str:
        span = words.extent(self.pattern).span
        return f"{words.names((self.negated,))} for {words.amount(span, self.pattern)}"


class NegationVerbs(Verbs):
    """``unless``, ``unless_before``, ``without``, ``cancel_when``."""

    @abstractmethod
    def _negation(self, negated: Stream | Contributor, make: Callable[[Part, Part], PatternOperator]) -> Self:
        """Return the pattern of an operator over this pattern and a negated one."""

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

    def cancel_when(self, negated: Stream | Contributor) -> Self:
        """Keep the matches with no event of ``negated`` strictly between their root and start: CANCEL_WHEN(pattern, negated).

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> c = sq.events([(5, 6, {"v": 5})])
        >>> sq.sequence(a.alias("x"), b.alias("y"), within=10).cancel_when(c.alias("z")).show()
        x_v  y_v  root  start  end
          1    3     1      4   11
          2    3     2      4   12
        """
        return self._negation(negated, CancelWhen)
