"""Correlation keys: fields that are equal in all events of a match, so that patterns are found key by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass
from itertools import combinations

from pyspark.sql import types as t

from streamq.functions.comparison import EQUAL
from streamq.patterns.checks import chooses, parts_of
from streamq.patterns.conditions import Conjunct, Variables
from streamq.patterns.matches import of
from streamq.patterns.source_text import Refusal
from streamq.patterns.syntax import All, AtLeast, AtMost, Condition, Part, Pattern, Sequence, Type
from streamq.plan.expr import Call, Cast, Col, Expr
from streamq.plan.spark_types import wider

Owned = tuple[str, str]
"""A field with its variable."""


@dataclass(frozen=True)
class Correlation:
    """The keys: by name, the field of each variable of an event, and the type in which these are compared."""

    fields: Mapping[str, Mapping[str, str]]
    types: Mapping[str, t.DataType]

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the keys."""
        return tuple(self.fields)

    def fields_of(self, variable: str) -> Iterator[tuple[str, str]]:
        """Yield each key with a variable's field for it."""
        return ((name, fields[variable]) for name, fields in self.fields.items())

    def value(self, name: str, field: Expr, kind: t.DataType) -> Expr:
        """A field of some type as the value of a key."""
        return field if kind == self.types[name] else Cast(field, self.types[name])


def correlation(
    where: Iterable[Condition],
    conjuncts: Several[Conjunct],
    variables: Variables,
    types: Mapping[Owned, t.DataType],
    optional: frozenset[str],
    whole: Part,
) -> tuple[Correlation, list[Conjunct]]:
    """Return the keys, and the conditions that they do not stand for.

    A key is what CorrelationKey names, and what equations connect in every variable: ``x.m = y.m AND y.m = z.m``. An equation
    is none where a match may be without the event of one of its variables, which are ``optional``: it is then skipped. Nor are
    equations a key where what an operator of the pattern ``whole`` takes would go by those that are not about its events alone.
    """
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
    groups = _Groups()
    equations: list[tuple[Conjunct, Owned]] = []
    for conjunct in conjuncts:
        pair = _equation(conjunct, variables)
        if pair is not None and types[pair[0]] == types[pair[1]] and not conjunct.names & optional:
            groups.connect(*pair)
            equations.append((conjunct, pair[0]))
    done = set()
    for members in groups.members():
        by_variable = dict(reversed(members))
        is_whole = len(members) == len(by_variable) == len(variables.fields)
        edges = [conjunct.names for conjunct, owned in equations if owned in members]
        if is_whole and all(_takes_by_its_own(part.pattern, edges) for part in parts_of(whole)):
            keys[".".join(members[0])] = by_variable
            compared[".".join(members[0])] = types[members[0]]
            done |= {id(c) for c, owned in equations if owned in members}
    return Correlation(keys, compared), [c for c in conjuncts if id(c) not in done]


def _takes_by_its_own(pattern: Pattern, edges: Several[frozenset[str]]) -> bool:
    """Whether an operator takes the same events key by key as by the equations between its events, two variables each.

    One that selects or consumes binds its parameters one by one, and equations hold for what is bound already: each must be
    connected with those by equations among just these. ATMOST counts events whatever others of its parameter are equal to.
    """
    match pattern:
        case AtMost():
            return False
        case Sequence(parts) if chooses(parts):
            bound = [_events_of(part) for part in parts]
            return all(_are_connected(frozenset().union(*bound[at:]), edges) for at in range(len(parts) - 1))
        case All(parts) | AtLeast(_, parts) if chooses(parts):
            pairs = combinations([_events_of(part) for part in parts], 2)
            return all(_are_connected(one | other, edges) for one, other in pairs)
    return True


def _events_of(whole: Part) -> frozenset[str]:
    """The variables of a part's events."""
    return frozenset(p.variable or p.pattern.name for p in parts_of(whole) if isinstance(p.pattern, Type))


def _are_connected(variables: frozenset[str], edges: Several[frozenset[str]]) -> bool:
    """Whether equations between these variables connect them all."""
    reached = {min(variables)}
    within = [edge for edge in edges if edge <= variables]
    while more := {v for edge in within if edge & reached for v in edge} - reached:
        reached |= more
    return reached == variables


def _equation(conjunct: Conjunct, variables: Variables) -> tuple[Owned, Owned] | None:
    match conjunct.condition:
        case Call(function, (Col() as one, Col() as other)) if function is EQUAL:
            owned = {of(v, f): (v, f) for v, fields in variables.fields.items() for f in fields}
            pair = owned.get(one.name), owned.get(other.name)
            return (pair[0], pair[1]) if pair[0] and pair[1] and pair[0][0] != pair[1][0] else None
    return None


class _Groups:
    """Fields that equations connect."""

    def __init__(self) -> None:
        self._group: dict[Owned, list[Owned]] = {}

    def connect(self, one: Owned, other: Owned) -> None:
        ours, theirs = (self._group.setdefault(f, [f]) for f in (one, other))
        if ours is theirs:
            return
        ours += theirs
        for owned in theirs:
            self._group[owned] = ours

    def members(self) -> list[list[Owned]]:
        """The groups, each once."""
        return list({id(g): g for g in self._group.values()}.values())


__all__ = ["Correlation", "correlation"]
