"""CANCEL_WHEN(P, B): a match of P with no match of B strictly between its root, the earliest event below it, and its start."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from streamq.patterns.fluent import NegatingVerbs
from streamq.patterns.matches import Matches
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import NEGATED, PATTERN, Extent, Extents, Type
from streamq.patterns.picture_words import PictureWords
from streamq.patterns.syntax import Part

if TYPE_CHECKING:
    from streamq.patterns.contributor import Contributor
    from streamq.patterns.definition_lowering import DefinitionLowering
    from streamq.stream import Stream


@dataclass(frozen=True)
class CancelWhen(PatternOperator):
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

    def extent(self, types: Extents) -> Extent:
        pattern, negated = self.pattern.pattern.extent(types), self.negated.pattern.extent(types)
        return replace(pattern, waits=max(pattern.waits, negated.waits))

    def matches(self, lowering: DefinitionLowering) -> Matches:
        """Anti-join the matches with the negated events after their root."""
        matches, negated = lowering.lowered(self.pattern), lowering.lowered(self.negated)
        return lowering.without_between(matches, negated, matches.root, lowering.extent(self.pattern).span)

    def keeps(self, words: PictureWords) -> str:
        span = words.extent(self.pattern).span
        return f"{words.names((self.negated,))} for {words.amount(span, self.pattern)}"


class CancelWhenVerbs(NegatingVerbs):
    """``cancel_when``."""

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


__all__ = ["CancelWhen", "CancelWhenVerbs"]
