"""Correlation keys: fields that are equal in all events of a match, so that patterns are found key by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import types as t

from streamq.functions.comparison import EQUAL
from streamq.patterns.conditions import Conjunct, Variables
from streamq.patterns.matches import of
from streamq.patterns.syntax import Condition
from streamq.plan.expr import Call, Col

Owned = tuple[str, str]
"""A field with its variable."""


@dataclass(frozen=True)
class Correlation:
    """The keys: by name, the field of each variable of an event."""

    fields: Mapping[str, Mapping[str, str]]

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the keys."""
        return tuple(self.fields)

    def fields_of(self, variable: str) -> Iterator[tuple[str, str]]:
        """Yield each key with a variable's field for it."""
        return ((name, fields[variable]) for name, fields in self.fields.items())


def correlation(
    where: Iterable[Condition],
    conjuncts: Sequence[Conjunct],
    variables: Variables,
    types: Mapping[Owned, t.DataType],
    optional: frozenset[str],
) -> tuple[Correlation, list[Conjunct]]:
    """Return the keys, and the conditions that they do not stand for.

    A key is what CorrelationKey names, and what equations connect in every variable: ``x.m = y.m AND y.m = z.m``. An equation
    is none where a match may be without the event of one of its variables, which are ``optional``: it is then skipped.
    """
    keys: dict[str, dict[str, str]] = {}
    for attribute in variables.correlated(where):
        if len({types[v, attribute] for v in variables.fields}) == 1:
            keys[attribute] = dict.fromkeys(variables.fields, attribute)
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
        if len(members) == len(by_variable) == len(variables.fields):
            keys[".".join(members[0])] = by_variable
            done |= {id(c) for c, owned in equations if owned in members}
    return Correlation(keys), [c for c in conjuncts if id(c) not in done]


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
