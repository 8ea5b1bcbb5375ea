"""SEQUENCE(A, B, C, w): one event of each part, strictly one after the other, the last at most w after the first."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import dataclass, replace
from typing import Any

from streamq.errors import check_keywords
from streamq.operators.scan import PatternScan
from streamq.patterns.definition_lowering import DefinitionLowering, are_connected
from streamq.patterns.matches import Matches, elapsed_ticks, least_instant, open_matches, rest_of_scope, tick_count
from streamq.patterns.pattern import Pattern, pattern_of_parts
from streamq.patterns.pattern_operator import PatternOperator, PictureWords, parse_scope
from streamq.patterns.pattern_tree import PARTS, SCOPE, Contributor, Extents, has_choice, variables_below
from streamq.patterns.syntax import Part, Refusal, Scope
from streamq.plan.expr import Expr
from streamq.plan.node import accepts_placeholders
from streamq.runtime.whole_matches import WholeMatchStep
from streamq.stream import Stream
from streamq.time import Duration as Length


@dataclass(frozen=True)
class Sequence(PatternOperator):
    """One event of each part, strictly one after the other, within a scope."""

    parts: tuple[Part, ...]
    within: Scope

    keyword = "SEQUENCE"
    signature = (PARTS, SCOPE)
    is_ordered = True
    bounds_negation = True

    def check(self, types: Extents) -> None:
        if len(self.parts) == 1:
            raise Refusal(self.place, "SEQUENCE of one", "", "It takes two patterns or more.")

    @property
    def needed(self) -> int:
        return len(self.parts)

    def keeps_keys(self, equations: Several[frozenset[str]]) -> bool:
        """Return True if equations connect each part with those after it, by which a scan chooses it; always True for joins."""
        if not has_choice(self.parts):
            return True
        bound = [frozenset(variables_below(part)) for part in self.parts]
        return all(are_connected(frozenset().union(*bound[at:]), equations) for at in range(len(bound) - 1))

    def matches(self, lowering: DefinitionLowering) -> Matches:
        """Join the parts in a chain; or scan them once, if a part selects or consumes."""
        if has_choice(self.parts):
            parts, matches = lowering.scanned(self.parts, SequenceScan, count=len(self.parts), within=self.scope)
        else:
            parts = [lowering.lowered(part) for part in self.parts]
            matches = parts[0]
            for part in parts[1:]:
                matches = self._followed(lowering, matches, part, parts[0].starts)
        matches = replace(
            matches,
            root=least_instant([p.root for p in parts]),
            contributors=tuple(p.starts for p in parts),
            lasts=rest_of_scope(matches, parts[0].starts, self.scope),
        )
        return lowering.identified(matches, f"SEQUENCE {self.scope}", (p.id for p in parts))

    def _followed(self, lowering: DefinitionLowering, before: Matches, later: Matches, first: Expr) -> Matches:
        """Join the matches so far with later ones of the next part, within the scope that begins at the instant ``first``."""
        pair = lowering.pair(before, later)
        is_within = [] if first is before.starts else [elapsed_ticks(later, first) <= tick_count(self.scope)]
        return pair.joined(open_matches(before.stream, self.scope), later.stream, *is_within)

    def keeps(self, words: PictureWords) -> str:
        begun = ", and what they have begun," if len(self.parts) > 2 and not has_choice(self.parts) else ""
        return f"{words.names(self.parts[:-1])}{begun} for {words.scope(self.within)}"


@dataclass(frozen=True, eq=False)
class SequenceScan(PatternScan):
    """The scan for matches of one event of each part, in their order."""

    keyword = Sequence.keyword
    in_order = True

    def step_of(self, **fields: Any) -> WholeMatchStep:
        return WholeMatchStep(**fields, in_order=True)


@check_keywords
@accepts_placeholders
def sequence(*parts: Stream | Contributor, within: Length) -> Pattern:
    """Match one event of each part, each strictly after the one before, within a scope: SEQUENCE.

    A match lives from the start of its last event to the end of the scope, which begins with the first.

    >>> import streamq as sq
    >>> a, b = sq.events([(1, 2, {"v": 1})]), sq.events([(4, 5, {"v": 2})])
    >>> sq.sequence(a.alias("x"), b.alias("y"), within=10).show()
    x_v  y_v  root  start  end
      1    2     1      4   11
    """
    scope = parse_scope(within, "sequence")
    return pattern_of_parts("sequence", parts, lambda several: Sequence(several, scope))
