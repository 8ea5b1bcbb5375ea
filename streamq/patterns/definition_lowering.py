"""Lower the operators of a definition to the algebra: sequences become joins, negations anti joins.

An event of a pattern is a point at its start. To find what follows it within a scope, its lifetime is set from just after its
start to the end of the scope; a later event then joins it if both live at once. So a sequence is a chain of joins, which keep
events as long as the scope, and a negation is an anti join of the same kind. Disorder, corrections and late negated events are
handled as by any join. (Barga et al., Consistent Streaming Through Time: A Vision for Event Stream Processing, section 3.)
Fields that are equal in all events of a match are keys of these joins. Numbers in the ids of events and matches tell events of
equal start and payload apart.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import types as t

from streamq.aggregates.basic import count
from streamq.choices import JoinKind, LengthKind
from streamq.compiler.estimates import LikelyFlows
from streamq.compiler.rules.rule import can_fail, nondeterminism
from streamq.functions.catalogue import builder, function_of
from streamq.functions.logic import EQUAL, GREATER, GREATER_OR_EQUAL, ISIN, LESS, LESS_OR_EQUAL
from streamq.functions.structures import SEQUENCE
from streamq.functions.text import IdText
from streamq.operators.alter_lifetime import Length, Start, instant_as_ticks
from streamq.operators.join import Join
from streamq.operators.scan import PatternScan
from streamq.operators.select import Select
from streamq.patterns.conditions import Conjunct, PendingConditions, Variables, condition_on
from streamq.patterns.matches import (
    CorrelationKeys,
    Matches,
    RunAggregate,
    conjunction_or_none,
    contributor_of,
    field_column,
    id_column,
    joint_matches,
    key_column,
    root_column,
    start_column,
    tick_count,
    with_lifetimes,
)
from streamq.patterns.part_scan import PartScan, shared_events
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import SINGLE, Extent, Type, parts_of
from streamq.patterns.syntax import Condition, Part, Refusal
from streamq.plan.expr import Call, Col, Expr, Lifetime, Lit
from streamq.plan.schema import POINT, Schema, has_equality
from streamq.plan.spark_types import wider
from streamq.stream import Stream
from streamq.time import TIMESTAMP, Duration

Owned = tuple[str, str]
"""A field with its variable."""

COMPARISONS = (EQUAL, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL, ISIN)
"""Functions that never fail on values of one type, and are true of all equal values or of none."""


def extract_keys(
    where: Iterable[Condition],
    conjuncts: Sequence[Conjunct],
    variables: Variables,
    optional: frozenset[str],
    whole: Part,
) -> tuple[CorrelationKeys, list[Conjunct]]:
    """Return the keys, and the conditions that remain beside them.

    Each attribute of CorrelationKey(..., EQUAL) is a key, and so are fields of one type, one of each variable, that equations
    connect: ``x.m = y.m AND y.m = z.m``. An equation with a variable in ``optional`` makes no key, because it is
    skipped for a match without that event. Equations make no key if an operator of the pattern ``whole`` would then choose other
    events. What compares a key's field with constants in every match is a condition on the events of all variables. Raises
    Refusal for an attribute whose types are never equal.
    """
    types = variables.types
    keys: dict[str, dict[str, str]] = {}
    compared: dict[str, t.DataType] = {}
    for attribute, place in variables.correlated(where).items():
        kinds = [types[v, attribute] for v in variables.fields]
        common: t.DataType | None = kinds[0]
        for kind in kinds[1:]:
            common = None if common is None else wider(common, kind)
        if common is None:
            shown = ", ".join(dict.fromkeys(kind.simpleString() for kind in kinds))
            raise Refusal(place, f"CorrelationKey over {attribute!r} of types that are never equal", f"found {shown}")
        keys[attribute] = dict.fromkeys(variables.fields, attribute)
        compared[attribute] = common
    groups = _FieldGroups()
    equations: list[tuple[Conjunct, Owned, Owned]] = []
    for conjunct in conjuncts:
        pair = _equation(conjunct, variables)
        if pair is not None and types[pair[0]] == types[pair[1]] and not {v for v, _ in pair} & optional:
            groups.connect(*pair)
            equations.append((conjunct, *pair))
    done = set()
    for members in groups.members():
        by_variable = dict(reversed(members))
        is_whole = len(members) == len(by_variable) == len(variables.fields)
        edges = [frozenset({one[0], other[0]}) for _, one, other in equations if one in members]
        if is_whole and all(part.pattern.keeps_keys(edges) for part in parts_of(whole)):
            keys[".".join(members[0])] = by_variable
            compared[".".join(members[0])] = types[members[0]]
            done |= {id(conjunct) for conjunct, one, _ in equations if one in members}
    rest = [c for c in conjuncts if id(c) not in done]
    every = {c.condition.digest: c for c in (*rest, *_implied(rest, keys, variables, optional))}
    return CorrelationKeys(keys, compared), list(every.values())


def _implied(
    conjuncts: Iterable[Conjunct], keys: Mapping[str, Mapping[str, str]], variables: Variables, optional: frozenset[str]
) -> Iterator[Conjunct]:
    """Yield the conditions on other events that follow from comparisons of a key's field with constants.

    An event that every match has tells what the key is, and so whom it may meet and what negates it. One that is negated, or that
    a match may lack, does not; of repeated ones it is not asked.
    """
    uncertain = optional | variables.negated | variables.repeated
    for conjunct in conjuncts:
        match conjunct.condition:
            case Call(function, (Col(name=name), *constants)) if function in COMPARISONS:
                variable, _, field = name.partition(".")
                if variable in uncertain or not all(isinstance(constant, Lit) for constant in constants):
                    continue
                kind = variables.types.get((variable, field))
                for fields in keys.values():
                    if fields.get(variable) != field:
                        continue
                    for other, its in fields.items():
                        if other != variable and variables.types[other, its] == kind:
                            of_other = replace(conjunct.condition, args=(Col(field_column(other, its)), *constants))
                            yield variables.conjunct(of_other, conjunct.place)


def are_connected(variables: frozenset[str], edges: Sequence[frozenset[str]]) -> bool:
    """Return True if the equations among these variables connect all of them; each edge is an equation of two."""
    reached = {min(variables)}
    within = [edge for edge in edges if edge <= variables]
    while more := {v for edge in within if edge & reached for v in edge} - reached:
        reached |= more
    return reached == variables


def _equation(conjunct: Conjunct, variables: Variables) -> tuple[Owned, Owned] | None:
    """Return the fields of two events that a condition says are equal; None for another condition.

    A field of a sub-pattern is that of its event, but not beside one of an event below it: such a condition is about whole
    matches of the sub-pattern.
    """
    match conjunct.condition:
        case Call(function, (Col() as one, Col() as other)) if function is EQUAL:
            apart = [variables.below[v] for v in conjunct.variables]
            pair = _owned(one.name, variables), _owned(other.name, variables)
            if pair[0] and pair[1] and len(apart) == 2 and apart[0].isdisjoint(apart[1]):
                return pair[0], pair[1]
    return None


def _owned(column: str, variables: Variables) -> Owned | None:
    """Return the event and field of a column; None for other columns, and for a field that several events may have."""
    variable, _, name = column.partition(".")
    if name in variables.fields.get(variable, ()):
        return variable, name
    composite = variables.composites.get(variable, {}).get(name)
    return (min(composite.owners), name) if composite is not None and len(composite.owners) == 1 else None


class _FieldGroups:
    """Groups of fields that equations connect."""

    def __init__(self) -> None:
        self._group: dict[Owned, list[Owned]] = {}

    def connect(self, one: Owned, other: Owned) -> None:
        """Put two fields, with all that they are connected with, into one group."""
        ours, theirs = (self._group.setdefault(f, [f]) for f in (one, other))
        if ours is theirs:
            return
        ours += theirs
        for owned in theirs:
            self._group[owned] = ours

    def members(self) -> list[list[Owned]]:
        """Return the groups, each a list of the connected fields."""
        return list({id(g): g for g in self._group.values()}.values())


class Pair:
    """Two patterns to be joined; ``keys`` are columns that both have, ``conjuncts`` the conditions on both."""

    def __init__(self, left: Matches, right: Matches, keys: Sequence[str], conjuncts: Sequence[Conjunct]):
        self.left, self.right = left, right
        self.variables = {**left.variables, **right.variables}
        self.events = (*left.events, *right.events)
        self.optional = left.optional | right.optional
        self.keys = tuple(keys)
        self.conjuncts = conjuncts

    def joined(self, left: Stream, right: Stream, *more: Expr) -> Matches:
        """Return the pairs that live at once and fulfil the conditions, and ``more`` conditions.

        ``left`` and ``right`` are the matches with the lifetimes that decide which of them live at once. A pair starts
        with its right match; contributors and ids are left empty for the caller, who sets them.
        """
        stream = left._derive(self._join(left, right, JoinKind.INNER, more), right)
        return joint_matches((self.left, self.right), stream, in_order=True)

    def anti_join(self, left: Stream, right: Stream, *more: Expr) -> Stream:
        """Return the left matches with no right one that lives at once and fulfils the conditions, and ``more`` conditions.

        ``left`` and ``right`` are the matches with the lifetimes that decide which of them live at once.
        """
        return left._derive(self._join(left, right, JoinKind.ANTI, more), right)

    def _join(self, left: Stream, right: Stream, how: JoinKind, more: Sequence[Expr]) -> Join:
        """Return the join of both sides by the keys and by equations between columns, filtered by the other conditions."""
        columns = [(c, self._equal(c, left.schema, right.schema)) for c in self.conjuncts]
        equal = [pair for _, pair in columns if pair is not None]
        fields = (*left.schema.fields, *(f for f in right.schema.fields if f.name not in self.keys))
        schema = left.schema.with_fields(fields)
        conditions = [condition_on(c, self.variables, schema, self.optional) for c, pair in columns if pair is None]
        return Join(
            left.plan,
            right.plan,
            on=(*((k, k) for k in self.keys), *equal),
            where=conjunction_or_none([*more, *conditions]),
            how=how,
            left_names=tuple((n, n) for n in left.schema.names),
            right_names=tuple((n, n) for n in right.schema.names if n not in self.keys),
        )

    def _equal(self, conjunct: Conjunct, left: Schema, right: Schema) -> tuple[str, str] | None:
        """Return the columns, one of either side and of one type, that a condition equates; None for any other condition.

        None also for a condition on an event that a match may lack, because that is skipped for such a match.
        """
        match conjunct.condition:
            case Call(function, (Col() as one, Col() as other)) if (
                function is EQUAL and not conjunct.names & self.optional
            ):
                for a, b in ((one.name, other.name), (other.name, one.name)):
                    if a in left.names and b in right.names:
                        return (a, b) if left.type_of(a) == right.type_of(b) else None
        return None


ORDINAL = "@.ordinal"
"""The column of the number of an event among equal ones."""


def number_points(points: Stream, to: str) -> Stream:
    """Add a column ``to`` that numbers points of equal start and payload: 0, 1, 2, ..."""
    names = points.columns
    counted = points.group_by(*names).tumbling_window(_a_tick(points)).select(**{to: count()})
    ordinals = counted.with_columns(**{to: Call(SEQUENCE, (tick_count(0), Col(to) - tick_count(1)))})
    return ordinals.explode(to).select(*names, to)


def event_id(name: str, fields: Sequence[str], schema: Schema) -> Expr:
    """Return the id of an event: its type, start, payload and number among equal ones.

    ``name`` is that of the type, ``fields`` its payload; the number is in the column that :func:`number_points` adds. The length
    of a text stands before it, and so does that of a name that is no plain word, so no two events have one id.
    """
    name = name if name.isidentifier() else f"{len(name)}:{name}"
    starts = instant_as_ticks(Lifetime("start"), schema.axis_type)
    parts: list[Expr] = [Lit(f"{name} "), starts.cast("string"), Lit(" "), Col(ORDINAL).cast("string")]
    parts += [Call(IdText(schema.type_of(field)), (Col(field),)) for field in fields]
    return Call(function_of("concat"), tuple(parts))


def check_identified(pattern: Type, fields: Sequence[str], schema: Schema) -> None:
    """Raise Refusal for a type with a field whose values have no equality, because ids are made of all fields."""
    for field in fields:
        if not has_equality(schema.type_of(field)):
            observed = f"found {schema.type_of(field).simpleString()} in {field!r}"
            hint = "Leave it out of the stream, by select."
            raise Refusal(
                pattern.place, f"no ids of {pattern.name!r}: values of a field are not compared", observed, hint
            )


def match_id(operator: str, ids: Sequence[Expr], starts: Expr) -> Expr:
    """Return the id of a match: its operator and the ids of its contributors; NULL where ``starts`` is, as there is no match.

    An id that is NULL is left out.
    """
    listed = builder("concat_ws")(", ", *ids)
    return Call(
        function_of("nvl2"),
        (starts, Call(function_of("concat"), (Lit(f"{operator} ("), listed, Lit(")"))), Lit(None).cast("string")),
    )


def placed_id(place: int, id: Expr) -> Expr:
    """Return the id of a contributor with the number of its part, from 1; NULL where the match has none there."""
    return Call(function_of("concat"), (Lit(f"{place}: "), id))


def _a_tick(stream: Stream) -> Duration:
    return dt.timedelta(microseconds=1) if stream.schema.axis == TIMESTAMP else 1


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
        likely: LikelyFlows | None,
    ):
        """Take the event types, the keys, the conditions, and the columns that conditions and OUTPUT read.

        ``runs``: aggregates by their columns; ``composites``: fields of sub-patterns by variable and name, with the events that
        may have them. ``has_ids``: matches get ids. ``likely``: the rows that are expected, None if nobody has said.
        """
        self.types, self.correlation, self.conditions = types, correlation, conditions
        self.runs, self.composites, self.has_ids, self.likely = runs, composites, has_ids, likely

    def lowered(self, part: Part) -> Matches:
        """Return the matches of a part, named by its variable and filtered by the conditions on them alone."""
        matches = self.matches(part)
        if part.variable is not None:
            named = matches.named(part.variable, self.composites.get(part.variable, {}))
            matches = replace(matches, variables={**matches.variables, part.variable: named})
        return self.conditions.filter_matches(matches)

    def matches(self, part: Part) -> Matches:
        """Return the matches of a part without its own conditions; only events of a type have their variable."""
        pattern = part.pattern
        if isinstance(pattern, PatternOperator):
            return pattern.matches(self)
        assert isinstance(pattern, Type)
        return self.events(pattern, part.variable or pattern.name)

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
        points = kind.stream if kind.stream.schema.shape == POINT else kind.stream.to_points()
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

    def rarest_first(self, parts: Sequence[Matches]) -> list[int]:
        """Return the numbers of parts in the order in which to join them: the rarest first, if rows are expected.

        Within one scope and by the same keys that order makes fewest pairs. It is that of the text if the rows of a part are not
        estimated, and if a condition on several of them may fail, because it would see other pairs.
        """
        written = list(range(len(parts)))
        flows = [self.likely and self.likely.flow(part.stream.plan) for part in parts]
        rates = [flow.rate for flow in flows if flow]
        if len(rates) < len(parts) or self._may_fail(parts):
            return written
        first, second, *others = sorted(written, key=rates.__getitem__)
        return [*sorted((first, second)), *others]

    def _may_fail(self, parts: Sequence[Matches]) -> bool:
        """Return True if a condition on the events of some parts may fail, or may be true in one order and not in another."""
        variables = {name: named for part in parts for name, named in part.variables.items()}
        schema = parts[0].schema.with_fields({f.name: f for part in parts for f in part.schema.fields}.values())
        optional = frozenset[str]().union(*(part.optional for part in parts))
        pending = [c for c in self.conditions.left if c.variables <= variables.keys()]
        conditions = [condition_on(c, variables, schema, optional) for c in pending]
        return any(nondeterminism(condition) or can_fail(condition, schema) for condition in conditions)

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
        return replace(matches, stream=pair.anti_join(matches.stream, before, negated.starts > start))
