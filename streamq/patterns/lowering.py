"""Definitions of the CEDR language as queries of the algebra: sequences are joins, negations are anti joins.

An event of a pattern is a point at its start. It comes after another one within a scope where both live at once, once that one
lives from behind its start to the end of the scope: so a sequence is a chain of joins, whose state goes with the scope. That
nothing comes is an anti join of the same kind. So matches survive disorder, corrections and late negation as joins do. (Barga
et al., Consistent Streaming Through Time: A Vision for Event Stream Processing, section 3.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamq.choices import Gathering, JoinKind, LengthKind
from streamq.errors import StreamqError
from streamq.functions.choice import COALESCE
from streamq.operators.join import Join
from streamq.operators.lifetime_change import Length, Start
from streamq.operators.select import Select
from streamq.operators.union import Union
from streamq.patterns import syntax
from streamq.patterns.advice import refused
from streamq.patterns.checks import chooses
from streamq.patterns.choosing import Choice, shared_events
from streamq.patterns.conditions import Unplaced
from streamq.patterns.correlation import Correlation
from streamq.patterns.ids import ORDINAL, check_identified, event_id, match_id, numbered, placed_id
from streamq.patterns.matches import (
    Matches,
    all_of,
    altered,
    at,
    contributor_of,
    filtered,
    greatest,
    id_of,
    in_order,
    key,
    least,
    of,
    root_of,
    so_many,
)
from streamq.patterns.pairs import Pair
from streamq.patterns.source_text import Refusal
from streamq.patterns.syntax import Part
from streamq.plan.expr import Call, Cast, Col, Expr, Lit
from streamq.plan.lifetime import Lifetime
from streamq.plan.passes import rewrite
from streamq.stream import Stream
from streamq.time import ticks

POINT = Length(LengthKind.FIXED, 1)

OTHER = "~"
"""What the columns of another event of the same patterns are called behind, in a join with it."""


@dataclass(frozen=True)
class EventType:
    """The events of a type: a stream's, or the matches of an earlier definition, which have a ``root`` of their own.

    span: how far before an event's start its root can lie at most, in ticks; contributors: where those of a match start, if
    there is more than one.
    """

    stream: Stream
    fields: tuple[str, ...]
    root: Expr | None = None
    span: int = 0
    id: Expr | None = None
    contributors: tuple[Expr, ...] = ()


class Lowering:
    """The lowering of one definition."""

    def __init__(
        self,
        types: Mapping[str, EventType],
        correlation: Correlation,
        conditions: Unplaced,
        *,
        has_ids: bool,
    ):
        self.types, self.correlation, self.conditions, self.has_ids = types, correlation, conditions, has_ids

    def lowered(self, part: Part) -> Matches:
        """The matches of a parameter, with its variable among theirs."""
        match part.pattern:
            case syntax.Type():
                return self.conditions.holding(self._type(part, part.pattern))
            case syntax.Sequence():
                matches = self._sequence(part.pattern)
            case syntax.AtLeast(count, parts):
                matches = self._at_least(count, parts, self.scope(part.pattern))
            case syntax.All(parts):
                matches = self._at_least(len(parts), parts, self.scope(part.pattern))
            case syntax.AnyOf(parts):
                matches = self._at_least(1, parts, 1)
            case syntax.Unless():
                matches = self._unless(part.pattern)
            case syntax.Not():
                matches = self._not(part.pattern)
            case syntax.CancelWhen():
                matches = self._cancel_when(part.pattern)
            case syntax.AtMost():
                matches = self._at_most(part.pattern)
        if part.variable is None:
            return matches
        return self.conditions.holding(
            replace(matches, variables={**matches.variables, part.variable: matches.named(part.variable)})
        )

    # events

    def _type(self, part: Part, pattern: syntax.Type) -> Matches:
        """The events of a type, those too for which conditions do not hold."""
        kind, name = self.types[pattern.name], part.variable or pattern.name
        points = kind.stream.to_points()
        if self.has_ids and kind.id is None:
            check_identified(pattern, kind.fields, points.schema)
            points = numbered(points, ORDINAL)
        columns: dict[str, Expr] = {of(name, f): Col(f) for f in kind.fields}
        columns[at(name)] = Lifetime("start")
        root: Expr = Col(at(name))
        if kind.root is not None:
            root = Col(root_of(name))
            columns[root.name] = kind.root
        own = {contributor_of(name, i): start for i, start in enumerate(kind.contributors)}
        columns |= own
        if self.has_ids:
            columns[id_of(name)] = (
                kind.id if kind.id is not None else event_id(pattern.name, kind.fields, points.schema)
            )
        for k, field in self.correlation.fields_of(name):
            columns[key(k)] = self.correlation.value(k, Col(field), points.schema.type_of(field))
        stream = points._derive(Select(points.plan, tuple(columns.items())))
        starts, own_id = Col(at(name)), Col(id_of(name)) if self.has_ids else None
        ids = () if own_id is None else (own_id,)
        contributors = tuple(map(Col, own)) or (starts,)
        matches = Matches(
            stream=stream,
            variables={},
            events=(name,),
            starts=starts,
            root=root,
            contributors=contributors,
            span=kind.span,
            lasts=so_many(1),
            id=own_id,
            ids=ids,
        )
        return replace(matches, variables={name: matches.named(name)})

    def _identified(self, matches: Matches, operator: str, ids: Iterable[Expr | None]) -> Matches:
        """Matches with an id made of their contributors'; where nobody asks for ids, without."""
        if not self.has_ids:
            return matches
        of_inputs = tuple(i for i in ids if i is not None)
        return replace(matches, id=match_id(operator, of_inputs, matches.starts), ids=of_inputs)

    def _identified_by_place(
        self, matches: Matches, operator: str, patterns: Sequence[Part], parts: Sequence[Matches]
    ) -> Matches:
        """Matches of some of several parameters, with an id that tells which ones where contributors' ids do not."""
        identified = self._identified(matches, operator, (p.id for p in parts))
        names = {p.pattern.name for p in patterns if isinstance(p.pattern, syntax.Type)}
        is_told = len(names) == len(patterns) and all(self.types[name].id is None for name in names)
        if not self.has_ids or is_told:
            return identified
        placed = tuple(placed_id(number, one) for number, one in enumerate(identified.ids, start=1))
        return replace(identified, id=match_id(operator, placed, matches.starts))

    def scope(self, pattern: syntax.ScopedPattern) -> int:
        """A pattern's scope in ticks; raises Refusal for one that is not positive, or no duration of the axis."""
        axis = next(iter(self.types.values())).stream.schema.axis
        try:
            scope = ticks(pattern.within, axis, "cedr")
        except StreamqError as error:
            raise refused(pattern.scope_place, error, "cedr", "Write a unit behind it: 5 minutes.") from error
        if scope <= 0:
            raise Refusal(pattern.scope_place, "a scope is positive", f"found {pattern.within!r}")
        return scope

    def _pair(self, left: Matches, right: Matches) -> Pair:
        """Two patterns with the conditions on both."""
        return Pair(left, right, self.keys, self.conditions.taken((*left.variables, *right.variables)))

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the correlation keys."""
        return tuple(key(k) for k in self.correlation.keys)

    # one after the other

    def _sequence(self, pattern: syntax.Sequence) -> Matches:
        scope = self.scope(pattern)
        if chooses(pattern.parts):
            parts, matches = self._chosen(pattern.parts, Gathering.SEQUENCE, count=len(pattern.parts), within=scope)
        else:
            parts = [self.lowered(p) for p in pattern.parts]
            matches = parts[0]
            for part in parts[1:]:
                matches = self._followed(matches, part, parts[0].starts, scope)
        matches = replace(
            matches,
            root=least([p.root for p in parts]),
            contributors=tuple(p.starts for p in parts),
            span=scope + max(p.span for p in parts),
            lasts=self._rest(matches, parts[0].starts, scope),
        )
        return self._identified(matches, f"SEQUENCE {scope}", (p.id for p in parts))

    def _followed(self, before: Matches, later: Matches, first: Expr, scope: int) -> Matches:
        """Matches of one pattern with those of another that come later, within the scope that ``first`` begins."""
        pair = self._pair(before, later)
        is_within = [] if first is before.starts else [self._elapsed(later, first) <= so_many(scope)]
        return pair.joined(_opened(before.stream, scope), later.stream, *is_within)

    def _rest(self, matches: Matches, first: Expr, scope: int) -> Expr:
        """How much of the scope that begins at an instant lies behind a match's start, in ticks."""
        return so_many(scope) - (matches.ticks(Lifetime("start")) - matches.ticks(first))

    def _elapsed(self, later: Matches, first: Expr) -> Expr:
        """How long after an instant a later match starts, in ticks."""
        return later.ticks(later.starts) - later.ticks(first)

    # some of several

    def _at_least(self, count: int, patterns: Sequence[Part], scope: int) -> Matches:
        if count > 1 and chooses(patterns):
            parts, matches = self._chosen(patterns, Gathering.AT_LEAST, count=count, within=scope)
            first = least([p.starts for p in parts])
        else:
            parts = [self.lowered(p) for p in patterns]
            one = _any_of(parts)
            matches = one
            first = least([p.starts for p in parts])
            for others in range(1, count):
                stream = self._joined_with_another(_opened(matches.stream, scope), one, parts)
                matches = replace(matches, stream=stream)
                if others > 1:
                    is_within = self._elapsed(matches, first) <= so_many(scope)
                    matches = replace(matches, stream=filtered(stream, [is_within]))
        every = frozenset(matches.events)
        optional = every if count < len(parts) else frozenset[str]().union(*(p.optional for p in parts))
        matches = replace(matches, optional=optional, span=scope + max(p.span for p in parts))
        contributors = in_order([p.starts for p in parts], count)
        matches = replace(matches, contributors=contributors, lasts=self._rest(matches, first, scope))
        operator = f"ATLEAST {count} {scope}"
        if count == len(parts):
            return self.conditions.holding(self._identified(matches, operator, (p.id for p in parts)))
        return self.conditions.holding(self._identified_by_place(matches, operator, patterns, parts))

    def _joined_with_another(self, opened: Stream, one: Matches, parts: Sequence[Matches]) -> Stream:
        """Matches with an event more: of a part that they have none of."""
        keys = self.keys
        names = [n for n in one.schema.names if n not in keys]

        def of_other(column: Expr) -> Expr | None:
            return Col(column.name + OTHER) if isinstance(column, Col) and column.name not in keys else None

        both = [p.starts.is_not_null() & rewrite(p.starts, of_other).is_not_null() for p in parts]
        joined = Join(
            opened.plan,
            one.stream.plan,
            on=tuple((k, k) for k in keys),
            where=all_of(~b for b in both),
            how=JoinKind.INNER,
            left_names=tuple((n, n) for n in opened.schema.names),
            right_names=tuple((n, n + OTHER) for n in names),
        )
        columns = {k: Col(k) for k in keys} | {n: Call(COALESCE, (Col(n), Col(n + OTHER))) for n in names}
        return opened._derive(Select(joined, tuple((n, columns[n]) for n in one.schema.names)), one.stream)

    def _at_most(self, pattern: syntax.AtMost) -> Matches:
        scope = self.scope(pattern)
        parts, matches = self._chosen(pattern.parts, Gathering.AT_MOST, count=pattern.count, within=scope)
        optional = frozenset(matches.events) if len(parts) > 1 else parts[0].optional
        matches = replace(
            matches,
            optional=optional,
            contributors=(matches.starts,),
            span=max(p.span for p in parts),
            lasts=so_many(scope),
        )
        return self._identified_by_place(matches, f"ATMOST {pattern.count} {scope}", pattern.parts, parts)

    def _chosen(
        self, parts: Sequence[Part], gathering: Gathering, *, count: int, within: int
    ) -> tuple[list[Matches], Matches]:
        """The matches of each parameter, and those of an operator that selects among them, or consumes them."""
        shared = {number for numbers in shared_events(parts, gathering) for number in numbers}
        matches = [
            self._type(part, part.pattern)
            if number in shared and isinstance(part.pattern, syntax.Type)
            else self.conditions.holding(self.lowered(part))
            for number, part in enumerate(parts)
        ]
        choice = Choice(parts, matches, gathering, self.correlation, self.conditions)
        return matches, choice.matched(count, within)

    # nothing of another

    def _unless(self, pattern: syntax.Unless) -> Matches:
        scope = self.scope(pattern)
        matches, negated = self.lowered(pattern.pattern), self.lowered(pattern.negated)
        contributor = matches.starts if pattern.nth is None else matches.contributors[pattern.nth - 1]
        is_own = contributor is matches.starts
        pair = self._pair(matches, negated)
        stream = matches.stream
        if not is_own:
            stream = altered(stream, Start(expr=matches.ticks(contributor), within=matches.span), POINT)
        if scope > 1:
            # an instant is followed by an event within the scope where it lies among those that such an event follows
            follows = altered(negated.stream, Start(by=1 - scope), Length(LengthKind.FIXED, scope - 1))
            stream = pair.without(stream, follows)
        if not is_own:
            stream = altered(stream, Start(expr=matches.ticks(matches.starts), within=0), POINT)
        matches = replace(matches, stream=stream, contributors=(matches.starts,), lasts=so_many(scope))
        return self._identified(matches, f"UNLESS {pattern.nth or 0} {scope}", (matches.id,))

    def _not(self, pattern: syntax.Not) -> Matches:
        negated, matches = self.lowered(pattern.negated), self.lowered(pattern.pattern)
        inner = pattern.pattern.pattern
        assert isinstance(inner, syntax.Sequence | syntax.AtLeast | syntax.All)
        return self._without_between(matches, negated, matches.contributors[0], self.scope(inner))

    def _cancel_when(self, pattern: syntax.CancelWhen) -> Matches:
        matches, negated = self.lowered(pattern.pattern), self.lowered(pattern.negated)
        return self._without_between(matches, negated, matches.root, matches.span)

    def _without_between(self, matches: Matches, negated: Matches, start: Expr, reach: int) -> Matches:
        """The matches with no negated event strictly between an instant, at most ``reach`` before, and their start."""
        pair = self._pair(matches, negated)
        if reach <= 1:
            return matches
        before = altered(negated.stream, Start(by=1), Length(LengthKind.FIXED, reach - 1))
        return replace(matches, stream=pair.without(matches.stream, before, negated.starts > start))


def _opened(stream: Stream, scope: int) -> Stream:
    """Matches that live while another event may follow: from behind their start, as long as any scope."""
    return altered(stream, Start(by=1), Length(LengthKind.FIXED, scope))


def _any_of(parts: Sequence[Matches]) -> Matches:
    """A match of any of some patterns, with NULL for what the others have."""
    kinds = {f.name: f.type for p in parts for f in p.schema.fields}
    plans = []
    for part in parts:
        own = set(part.schema.names)
        columns = [(n, Col(n) if n in own else Cast(Lit(None), kind)) for n, kind in kinds.items()]
        plans.append(Select(part.stream.plan, tuple(columns)))
    stream = parts[0].stream._derive(Union(tuple(plans)), *(p.stream for p in parts[1:]))
    return Matches(
        stream=stream,
        variables={name: named for p in parts for name, named in p.variables.items()},
        events=tuple(e for p in parts for e in p.events),
        starts=greatest([p.starts for p in parts]),
        root=least([p.root for p in parts]),
        contributors=(),
        span=max(p.span for p in parts),
        lasts=so_many(1),
        optional=frozenset(e for p in parts for e in p.events),
    )


__all__ = ["EventType", "Lowering"]
