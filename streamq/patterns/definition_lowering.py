"""Lower the operators of a definition to the algebra: sequences become joins, negations anti joins.

An event of a pattern is a point at its start. To find what follows it within a scope, its lifetime is set from just after its
start to the end of the scope; a later event then joins it if both live at once. So a sequence is a chain of joins, which keep
events as long as the scope, and a negation is an anti join of the same kind. Disorder, corrections and late negated events are
handled as by any join. (Barga et al., Consistent Streaming Through Time: A Vision for Event Stream Processing, section 3.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamq.choices import LengthKind
from streamq.operators.lifetime_change import Length, Start
from streamq.operators.pattern_scan import PatternScan
from streamq.operators.select import Select
from streamq.patterns.conditions import PendingConditions
from streamq.patterns.correlation import CorrelationKeys
from streamq.patterns.ids import ORDINAL, check_identified, event_id, match_id, number_points, placed_id
from streamq.patterns.matches import (
    Matches,
    RunAggregate,
    contributor_of,
    field_column,
    id_column,
    key_column,
    root_column,
    start_column,
    tick_count,
    with_lifetimes,
)
from streamq.patterns.part_scan import PartScan, shared_events
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_pairs import Pair
from streamq.patterns.pattern_tree import SINGLE, Extent, Type
from streamq.patterns.syntax import Part
from streamq.plan.expr import Col, Expr
from streamq.plan.lifetime import Lifetime
from streamq.stream import Stream


@dataclass(frozen=True)
class EventType:
    """The events of a type: those of a stream, or the matches of an earlier definition, which have a ``root`` of their own.

    extent: how far its matches reach; contributors: the starts of a match's contributors, if there is more than one.
    """

    stream: Stream
    fields: tuple[str, ...]
    root: Expr | None = None
    extent: Extent = SINGLE
    id: Expr | None = None
    contributors: tuple[Expr, ...] = ()


class DefinitionLowering:
    """The lowering of one definition."""

    def __init__(
        self,
        types: Mapping[str, EventType],
        correlation: CorrelationKeys,
        conditions: PendingConditions,
        runs: Mapping[str, RunAggregate],
        composites: Mapping[str, Mapping[str, Sequence[str]]],
        *,
        has_ids: bool,
    ):
        """Take the event types, the keys, the conditions, and the columns that conditions and OUTPUT read.

        ``runs``: aggregates by their columns; ``composites``: fields of sub-patterns by variable and name, with the events that
        may have them. ``has_ids``: matches get ids.
        """
        self.types, self.correlation, self.conditions = types, correlation, conditions
        self.runs, self.composites, self.has_ids = runs, composites, has_ids

    def lowered(self, part: Part) -> Matches:
        """Return the matches of a part, named by its variable and filtered by the conditions on them alone."""
        matches = self.matches(part)
        if part.variable is not None:
            named = matches.named(part.variable, self.composites.get(part.variable, {}))
            matches = replace(matches, variables={**matches.variables, part.variable: named})
        return self.filter_matches(matches)

    def matches(self, part: Part) -> Matches:
        """Return the matches of a part without its own conditions; only events of a type have their variable."""
        pattern = part.pattern
        if isinstance(pattern, PatternOperator):
            return pattern.matches(self)
        assert isinstance(pattern, Type)
        return self.events(pattern, part.variable or pattern.name)

    def filter_matches(self, matches: Matches) -> Matches:
        """Filter matches by the conditions that name their variables alone, which are no longer pending then."""
        return self.conditions.filter_matches(matches)

    def extent(self, part: Part) -> Extent:
        """Return how far the matches of a part reach."""
        return part.pattern.extent({name: kind.extent for name, kind in self.types.items()})

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the correlation keys."""
        return tuple(key_column(k) for k in self.correlation.keys)

    # events

    def events(self, pattern: Type, name: str) -> Matches:
        """Return all events of a type under a name, before conditions are applied, as points at their starts.

        Beside the fields there are columns of start, root, contributors and keys, and of ids if the query has ids.
        """
        kind = self.types[pattern.name]
        points = kind.stream.to_points()
        if self.has_ids and kind.id is None:
            check_identified(pattern, kind.fields, points.schema)
            points = number_points(points, ORDINAL)
        columns: dict[str, Expr] = {field_column(name, f): Col(f) for f in kind.fields}
        columns[start_column(name)] = Lifetime("start")
        root: Expr = Col(start_column(name))
        if kind.root is not None:
            root = Col(root_column(name))
            columns[root.name] = kind.root
        own = {contributor_of(name, i): start for i, start in enumerate(kind.contributors)}
        columns |= own
        if self.has_ids:
            columns[id_column(name)] = (
                kind.id if kind.id is not None else event_id(pattern.name, kind.fields, points.schema)
            )
        for k, field in self.correlation.fields_of(name):
            columns[key_column(k)] = self.correlation.value(k, Col(field), points.schema.type_of(field))
        stream = points._derive(Select(points.plan, tuple(columns.items())))
        starts, own_id = Col(start_column(name)), Col(id_column(name)) if self.has_ids else None
        ids = () if own_id is None else (own_id,)
        contributors = tuple(map(Col, own)) or (starts,)
        matches = Matches(
            stream=stream,
            variables={},
            events=(name,),
            starts=starts,
            root=root,
            contributors=contributors,
            lasts=tick_count(1),
            id=own_id,
            ids=ids,
        )
        return replace(matches, variables={name: matches.named(name, {})})

    def identified(self, matches: Matches, operator: str, ids: Iterable[Expr | None]) -> Matches:
        """Return the matches with an id made of those of their contributors; unchanged if nobody reads ids.

        A None in ``ids`` is left out.
        """
        if not self.has_ids:
            return matches
        of_inputs = tuple(i for i in ids if i is not None)
        return replace(matches, id=match_id(operator, of_inputs, matches.starts), ids=of_inputs, listed_ids=None)

    def identified_by_place(
        self, matches: Matches, operator: str, patterns: Sequence[Part], parts: Sequence[Matches]
    ) -> Matches:
        """Return matches of some of several parts with an id that also tells the parts, where contributors' ids do not.

        The id begins with ``operator``. ``patterns`` are the parts, ``parts`` the matches of each.
        """
        identified = self.identified(matches, operator, (p.id for p in parts))
        names = {p.pattern.name for p in patterns if isinstance(p.pattern, Type)}
        is_told = len(names) == len(patterns) and all(self.types[name].id is None for name in names)
        if not self.has_ids or is_told:
            return identified
        placed = tuple(placed_id(number, one) for number, one in enumerate(identified.ids, start=1))
        return replace(identified, id=match_id(operator, placed, matches.starts))

    def pair(self, left: Matches, right: Matches) -> Pair:
        """Return the pair of two patterns with the conditions on both, which are no longer pending then."""
        return Pair(left, right, self.keys, self.conditions.take((*left.variables, *right.variables)))

    def scanned(
        self, parts: Sequence[Part], scan: type[PatternScan], *, count: int, within: int
    ) -> tuple[list[Matches], Matches]:
        """Return the matches of each part, and those of the operator, which a scan computes from their events.

        ``count`` events are in a match, within ``within`` ticks. Parts of one type that share events are not filtered by their
        conditions here; the scan checks these.
        """
        shared = {number for numbers in shared_events(parts, scan) for number in numbers}
        matches = [self.matches(part) if number in shared else self.lowered(part) for number, part in enumerate(parts)]
        return matches, PartScan(parts, matches, scan, self.correlation, self.conditions).matched(count, within)

    # negations

    def without_between(self, matches: Matches, negated: Matches, start: Expr, reach: int) -> Matches:
        """Return the matches with no negated event strictly between an instant and their start.

        The instant ``start`` lies ``reach`` ticks before the match's start at most; with a tick or less between them all matches
        stay. The conditions on both are no longer pending, even then.
        """
        pair = self.pair(matches, negated)
        if reach <= 1:
            return matches
        before = with_lifetimes(negated.stream, Start(by=1), Length(LengthKind.FIXED, reach - 1))
        return replace(matches, stream=pair.without(matches.stream, before, negated.starts > start))


__all__ = ["EventType", "DefinitionLowering"]
