"""Correlation keys: fields that are equal in all events of a match, so that matches are sought key by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass

from pyspark.sql import types as t

from streamq.functions.logic import EQUAL
from streamq.patterns.conditions import Conjunct, Variables
from streamq.patterns.pattern_tree import parts_of
from streamq.patterns.syntax import Condition, Part, Refusal
from streamq.plan.expr import Call, Cast, Col, Expr
from streamq.plan.spark_types import wider

Owned = tuple[str, str]
"""A field with its variable."""


@dataclass(frozen=True)
class CorrelationKeys:
    """The keys by name: the field of each event's variable, and the type in which the fields are compared."""

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
        """Return a field of some type as the value of a key."""
        return field if kind == self.types[name] else Cast(field, self.types[name])


def extract_keys(
    where: Iterable[Condition],
    conjuncts: Several[Conjunct],
    variables: Variables,
    optional: frozenset[str],
    whole: Part,
) -> tuple[CorrelationKeys, list[Conjunct]]:
    """Return the keys, and the conditions that remain beside them.

    Each attribute of CorrelationKey(..., EQUAL) is a key, and so are fields of one type, one of each variable, that equations
    connect: ``x.m = y.m AND y.m = z.m``. An equation with a variable in ``optional`` makes no key, because it is
    skipped for a match without that event. Equations make no key if an operator of the pattern ``whole`` would then choose other
    events. Raises Refusal for an attribute whose types are never equal.
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
    return CorrelationKeys(keys, compared), [c for c in conjuncts if id(c) not in done]


def are_connected(variables: frozenset[str], edges: Several[frozenset[str]]) -> bool:
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
