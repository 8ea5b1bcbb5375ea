"""ATLEAST(n, A, B, C, w): events of n of the parts, at different instants, in any order, within w; ATMOST the other way round.

ALL(A, B, w) matches an event of each part, ANY(A, B) an event of one part alone. ATMOST(n, A, B, w) is an event of any part, with
at most n events of all parts in the scope that ends with it. SEQUENCE(A, B, C, w): one event of each part, strictly one after
the other, the last at most w after the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass, replace
from itertools import combinations
from math import perm
from typing import Any

from streamq.choices import JoinKind
from streamq.errors import check_keywords
from streamq.functions.logic import COALESCE
from streamq.operators.join import Join
from streamq.operators.scan import PatternScan
from streamq.operators.select import Select
from streamq.patterns.definition_lowering import DefinitionLowering, are_connected
from streamq.patterns.matches import (
    Matches,
    conjunction_or_none,
    elapsed_ticks,
    filter_stream,
    joint_matches,
    least_instant,
    null_padded_union,
    open_matches,
    rest_of_scope,
    sorted_starts,
    tick_count,
)
from streamq.patterns.pattern import Pattern, pattern_of_parts
from streamq.patterns.pattern_operator import PatternOperator, PictureWords, count_of, parse_scope
from streamq.patterns.pattern_tree import (
    COUNT,
    PARTS,
    SCOPE,
    Contributor,
    Extent,
    Extents,
    Type,
    has_choice,
    variables_below,
)
from streamq.patterns.syntax import Part, Refusal, Scope
from streamq.plan.expr import Call, Col, Expr
from streamq.plan.node import accepts_placeholders
from streamq.plan.passes import rewrite_expression
from streamq.runtime.whole_matches import CrowdStep, WholeMatchStep
from streamq.stream import Stream
from streamq.time import Duration as Length

MANY_ORDERS = 24
"""The number of matches of the same events, one for each order, from which on there is a warning; four events have as many."""

OTHER = "~"
"""Suffix of the right side's columns when the events of the parts are joined with themselves."""


@dataclass(frozen=True)
class UnorderedOperator(PatternOperator):
    """Events of some of the parts, in any order of the parts."""

    def advice(self, primitive: Collection[str]) -> Iterator[str]:
        """Yield a warning for a type in so many parts that its events match in many orders."""
        kinds = Counter(part.pattern.name for part in self.positive if isinstance(part.pattern, Type))
        for name, number in kinds.items():
            together = min(self.needed, number)
            if together > 1 and perm(number, together) >= MANY_ORDERS:
                yield (
                    f"each {together} events of {name} are {perm(number, together)} matches, one in each order of the parts that "
                    f"they fit; write SEQUENCE({name} AS a, {name} AS b, ...), which has them once, in the order of time"
                )

    def keeps_keys(self, equations: Several[frozenset[str]]) -> bool:
        """Return True if equations connect every two parts, because a scan may choose any two first; always True for joins."""
        if not self.is_scanned:
            return True
        pairs = combinations([frozenset(variables_below(part)) for part in self.positive], 2)
        return all(are_connected(one | other, equations) for one, other in pairs)

    @property
    def is_scanned(self) -> bool:
        """True if some part selects or consumes."""
        return has_choice(self.positive)

    def matches(self, lowering: DefinitionLowering) -> Matches:
        """Join the events of all parts with themselves; or scan them once, if a part selects or consumes."""
        count, scope = self.needed, self.scope
        if count > 1 and self.is_scanned:
            parts, matches = lowering.scanned(self.positive, AtLeastScan, count=count, within=scope)
            first = least_instant([p.starts for p in parts])
        else:
            parts = [lowering.lowered(part) for part in self.positive]
            one = matches = joint_matches(parts, null_padded_union([p.stream for p in parts]))
            first = least_instant([p.starts for p in parts])
            for others in range(1, count):
                stream = _with_another(lowering, open_matches(matches.stream, scope), one, parts)
                matches = replace(matches, stream=stream)
                if others > 1:
                    is_within = elapsed_ticks(matches, first) <= tick_count(scope)
                    matches = replace(matches, stream=filter_stream(stream, [is_within]))
        optional = (
            frozenset(matches.events) if self.lacks_events else frozenset[str]().union(*(p.optional for p in parts))
        )
        contributors = sorted_starts([p.starts for p in parts], count)
        lasts = rest_of_scope(matches, first, scope)
        matches = replace(matches, optional=optional, contributors=contributors, lasts=lasts)
        operator = f"ATLEAST {count} {scope}"
        if not self.lacks_events:
            return lowering.conditions.filter_matches(lowering.identified(matches, operator, (p.id for p in parts)))
        return lowering.conditions.filter_matches(lowering.identified_by_place(matches, operator, self.positive, parts))

    def keeps(self, words: PictureWords) -> str:
        """Return the parts with the scope for which their events are kept, in words; empty for matches of one event."""
        if self.needed == 1:
            return ""
        begun = ", and what they have begun," if self.needed > 2 and not self.is_scanned else ""
        return f"{words.names(self.positive)}{begun} for {self.scope_in_words(words)}"


@dataclass(frozen=True)
class AtLeast(UnorderedOperator):
    """Events of ``count`` of the parts, in any order of the parts, within a scope."""

    count: int
    parts: tuple[Part, ...]
    within: Scope

    keyword = "ATLEAST"
    signature = (COUNT, PARTS, SCOPE)
    bounds_negation = True

    @property
    def needed(self) -> int:
        return self.count

    def check(self, types: Extents) -> None:
        """Raise Refusal unless the count is between 1 and the number of parts."""
        if not 1 <= self.count <= len(self.parts):
            wrong = "the count of ATLEAST is between 1 and the number of its patterns"
            raise Refusal(self.place_of("count"), wrong, f"found {self.count} of {len(self.parts)}")

    @property
    def title(self) -> str:
        return f"ATLEAST {self.count}"


@dataclass(frozen=True)
class All(UnorderedOperator):
    """One event of each part, in any order, within a scope."""

    parts: tuple[Part, ...]
    within: Scope

    keyword = "ALL"
    signature = (PARTS, SCOPE)
    bounds_negation = True

    @property
    def needed(self) -> int:
        return len(self.parts)


@dataclass(frozen=True)
class AnyOf(UnorderedOperator):
    """An event of any part."""

    parts: tuple[Part, ...]

    keyword = "ANY"
    signature = (PARTS,)
    instead_of_scope = "For events within a scope write ATLEAST(1, ..., scope)."

    is_scanned = False


@dataclass(frozen=True, eq=False)
class AtLeastScan(PatternScan):
    """The matches of one event each of some parts, in any order."""

    keyword = AtLeast.keyword

    def step_of(self, **fields: Any) -> WholeMatchStep:
        return WholeMatchStep(**fields, in_order=False)


def _with_another(lowering: DefinitionLowering, matches: Stream, one: Matches, parts: Several[Matches]) -> Stream:
    """Extend each match by one event of a part that it does not contain yet.

    ``matches`` has the matches so far, with the lifetimes in which another event may follow; ``one`` has the events of all
    ``parts``.
    """
    keys = lowering.keys
    names = [n for n in one.schema.names if n not in keys]

    def of_other(column: Expr) -> Expr | None:
        return Col(column.name + OTHER) if isinstance(column, Col) and column.name not in keys else None

    both = [p.starts.is_not_null() & rewrite_expression(p.starts, of_other).is_not_null() for p in parts]
    joined = Join(
        matches.plan,
        one.stream.plan,
        on=tuple((k, k) for k in keys),
        where=conjunction_or_none(~b for b in both),
        how=JoinKind.INNER,
        left_names=tuple((n, n) for n in matches.schema.names),
        right_names=tuple((n, n + OTHER) for n in names),
    )
    columns = {k: Col(k) for k in keys} | {n: Call(COALESCE, (Col(n), Col(n + OTHER))) for n in names}
    return matches._derive(Select(joined, tuple((n, columns[n]) for n in one.schema.names)), one.stream)


@check_keywords
@accepts_placeholders
def at_least(count: int, *parts: Stream | Contributor, within: Length) -> Pattern:
    """Match events of ``count`` of the parts, in any order, within a scope: ATLEAST. Fields of the other parts are NULL.

    >>> import streamq as sq
    >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
    >>> c = sq.events([(5, 6, {"v": 5})])
    >>> sq.at_least(2, a.alias("x"), b.alias("y"), c.alias("z"), within=3).show()
     x_v   y_v   z_v  root  start  end
       1     3  NULL     1      4    5
       2     3  NULL     2      4    5
       2  NULL     5     2      5    6
    NULL     3     5     4      5    7
    NULL     4     5     5      6    8
    """
    number, scope = count_of(count, "at_least"), parse_scope(within, "at_least")
    return pattern_of_parts("at_least", parts, lambda several: AtLeast(number, several, scope))


@check_keywords
@accepts_placeholders
def all_of(*parts: Stream | Contributor, within: Length) -> Pattern:
    """Match one event of each part, in any order, within a scope: ALL.

    >>> import streamq as sq
    >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
    >>> c = sq.events([(5, 6, {"v": 5})])
    >>> sq.all_of(a.alias("x"), c.alias("z"), within=10).show()
    x_v  z_v  root  start  end
      1    5     1      5   11
      2    5     2      5   12
    """
    scope = parse_scope(within, "all_of")
    return pattern_of_parts("all_of", parts, lambda several: All(several, scope))


@check_keywords
@accepts_placeholders
def any_of(*parts: Stream | Contributor) -> Pattern:
    """Match an event of any part: ANY.

    >>> import streamq as sq
    >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
    >>> sq.any_of(a.alias("x"), b.alias("y")).show()
     x_v   y_v  root  start  end
       1  NULL     1      1    2
       2  NULL     2      2    3
    NULL     3     4      4    5
    NULL     4     6      6    7
    """
    return pattern_of_parts("any_of", parts, AnyOf)


@dataclass(frozen=True)
class AtMost(PatternOperator):
    """An event of a part with no more than ``count`` events of the parts in the scope that ends with it."""

    count: int
    parts: tuple[Part, ...]
    within: Scope

    keyword = "ATMOST"
    signature = (COUNT, PARTS, SCOPE)

    def check(self, types: Extents) -> None:
        """Raise Refusal for a count less than 1."""
        if self.count < 1:
            raise Refusal(self.place_of("count"), "the count of ATMOST is 1 or more", f"found {self.count}")

    def extent(self, types: Extents) -> Extent:
        below = super().extent(types)
        return replace(below, span=below.span - self.scope, lives=self.scope)

    def keeps_keys(self, equations: Several[frozenset[str]]) -> bool:
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
        """Join the parts in a chain, rare ones first; or scan them once, if a part selects or consumes."""
        if has_choice(self.parts):
            parts, matches = lowering.scanned(self.parts, SequenceScan, count=len(self.parts), within=self.scope)
        else:
            parts = [lowering.lowered(part) for part in self.parts]
            first, *others = lowering.rarest_first(parts)
            matches, joined = parts[first], [first]
            for number in others:
                matches = self._joined(lowering, matches, parts, joined, number)
                joined = sorted([*joined, number])
        matches = replace(
            matches,
            events=tuple(event for part in parts for event in part.events),
            root=least_instant([p.root for p in parts]),
            contributors=tuple(p.starts for p in parts),
            lasts=rest_of_scope(matches, parts[0].starts, self.scope),
        )
        return lowering.identified(matches, f"SEQUENCE {self.scope}", (p.id for p in parts))

    def _joined(
        self, lowering: DefinitionLowering, matches: Matches, parts: Several[Matches], joined: Several[int], number: int
    ) -> Matches:
        """Join the matches of the parts ``joined``, which stand at their last event, with the part ``number``.

        A later event is looked for by the matches, which wait for it for the whole scope; an earlier one waits for the last event
        of the matches itself.
        """
        part, starts = parts[number], [parts[n].starts for n in joined]
        if number > joined[-1]:
            is_within = [elapsed_ticks(part, starts[0]) <= tick_count(self.scope)] if len(joined) > 1 else []
            return lowering.pair(matches, part).joined(
                open_matches(matches.stream, self.scope), part.stream, *is_within
            )
        after = [part.starts < start for n, start in zip(joined[:-1], starts, strict=False) if n > number]
        before = [start < part.starts for n, start in zip(joined, starts, strict=True) if n < number]
        pair = lowering.pair(part, matches)
        return pair.joined(open_matches(part.stream, self.scope), matches.stream, *after[:1], *before[-1:])

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
