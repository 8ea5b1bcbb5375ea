"""ATMOST(n, A, B, w): an event of any part, with at most n events of all parts in the scope that ends with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamq.keywords import check_keywords
from streamq.operators.pattern_scan import PatternScan
from streamq.patterns.fluent import count_of, parse_scope
from streamq.patterns.matches import Matches, tick_count
from streamq.patterns.pattern import Pattern, pattern_of_parts
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import COUNT, PARTS, SCOPE, Extent, Extents
from streamq.patterns.picture_words import PictureWords
from streamq.patterns.source_text import Refusal
from streamq.patterns.syntax import Part, Scope
from streamq.plan.verbs import accepts_placeholders
from streamq.runtime.crowding import CrowdStep
from streamq.time import Duration as Length

if TYPE_CHECKING:
    from streamq.patterns.contributor import Contributor
    from streamq.patterns.definition_lowering import DefinitionLowering
    from streamq.stream import Stream


@dataclass(frozen=True)
class AtMost(PatternOperator):
    """An event of a part with no more than ``count`` events of the parts in the scope that ends with it."""

    count: int
    parts: tuple[Part, ...]
    within: Scope

    keyword = "ATMOST"
    signature = (COUNT, PARTS, SCOPE)

    @property
    def lacks_events(self) -> bool:
        return len(self.parts) > 1

    @property
    def has_one_part(self) -> bool:
        return True

    def check(self, types: Extents) -> None:
        """Raise Refusal for a count less than 1."""
        if self.count < 1:
            raise Refusal(
                self.places.get("count", self.place), "the count of ATMOST is 1 or more", f"found {self.count}"
            )

    def extent(self, types: Extents) -> Extent:
        below = [part.pattern.extent(types) for part in self.parts]
        return Extent(1, max(e.span for e in below), self.scope, max(e.waits for e in below))

    def keeps_keys(self, equations: Sequence[frozenset[str]]) -> bool:
        """Return False: it counts all events of its parts, also those that an equation would leave out."""
        return False

    def matches(self, lowering: DefinitionLowering) -> Matches:
        """Scan the events of all parts once."""
        parts, matches = lowering.scanned(self.parts, AtMostScan, count=self.count, within=self.scope)
        optional = frozenset(matches.events) if self.lacks_events else parts[0].optional
        lasts = tick_count(self.scope)
        matches = replace(matches, optional=optional, contributors=(matches.starts,), lasts=lasts)
        return lowering.identified_by_place(matches, f"ATMOST {self.count} {self.scope}", self.parts, parts)

    @property
    def title(self) -> str:
        return f"ATMOST {self.count}"

    def keeps(self, words: PictureWords) -> str:
        return f"{words.names(self.parts)} for {words.scope(self.within)}"


@dataclass(frozen=True, eq=False)
class AtMostScan(PatternScan):
    """The scan that keeps events with few others in the scope before them."""

    keyword = AtMost.keyword
    counts_others = True

    def step_of(self, **fields: Any) -> CrowdStep:
        return CrowdStep(**fields)


@check_keywords
@accepts_placeholders
def at_most(count: int, *parts: Stream | Contributor, within: Length) -> Pattern:
    """Match an event of any part, if the scope that ends with it has at most ``count`` events of all parts: ATMOST.

    >>> import streamq as sq
    >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
    >>> sq.at_most(1, a.alias("x"), b.alias("y"), within=2).show()
     x_v   y_v  root  start  end
       1  NULL     1      1    3
    NULL     3     4      4    6
    NULL     4     6      6    8
    """
    number, scope = count_of(count, "at_most"), parse_scope(within, "at_most")
    return pattern_of_parts("at_most", parts, lambda several: AtMost(number, several, scope))


__all__ = ["AtMost", "at_most"]
