"""Matches of a pattern as a stream: points at their own starts, with the payloads of their events.

The column ``x.m`` is the field ``m`` of the variable ``x``, and ``x.@`` the start of its event, NULL where the match has no such
event; ``@.a`` is the value of the correlation key ``a``, which all events of a match share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import types as t

from streamq.choices import LengthKind
from streamq.functions.catalogue import function_of
from streamq.functions.logic import COALESCE
from streamq.operators.alter_lifetime import AlterLifetime, Length, Start, instant_as_ticks
from streamq.operators.bags import Union
from streamq.operators.select import Select, Where
from streamq.patterns.syntax import Place
from streamq.plan.expr import Call, Cast, Col, Expr, Lifetime, Lit
from streamq.plan.passes import rewrite_expression
from streamq.plan.schema import Schema
from streamq.stream import Stream

POINT = Length(LengthKind.FIXED, 1)


def start_column(variable: str) -> str:
    """Return the column of the start of a variable's event."""
    return f"{variable}.@"


def field_column(variable: str, name: str) -> str:
    """Return the column of a variable's field."""
    return f"{variable}.{name}"


def root_column(variable: str) -> str:
    """Return the column of the root of a variable's match."""
    return f"{variable}.@.root"


def id_column(variable: str) -> str:
    """Return the column of the id of a variable's match."""
    return f"{variable}.@.id"


def contributors_of(variable: str) -> str:
    """Return the column of the ids of the contributors to a variable's match."""
    return f"{variable}.@.contributors"


def contributor_of(variable: str, number: int) -> str:
    """Return the column of the start of a contributor to a variable's match."""
    return f"{variable}.@.{number}"


def run_variable(variable: str) -> str:
    """Return the variable for all occurrences of another one in a run; its columns are their aggregates."""
    return f"{variable}@"


@dataclass(frozen=True)
class RunAggregate:
    """An aggregate over the occurrences of a variable in a run: of a ``column``, or without one of the occurrences themselves."""

    function: str
    variable: str
    column: str | None
    place: Place

    @property
    def name(self) -> str:
        """The column of its value."""
        argument = self.variable if self.column is None else written_name(self.column)
        return f"{run_variable(self.variable)}.{self.function}({argument})"


def in_pattern_names(expr: Expr) -> Expr:
    """Return an expression over columns of matches with their names in a text: ``x.Vs``, ``x.id``, ``x.v``."""
    return rewrite_expression(expr, lambda e: Col(written_name(e.name)) if isinstance(e, Col) else None)


def written_name(column: str) -> str:
    """Return the name of a column of matches in a text: ``x.v``, ``x.Vs``, ``x.id``, ``max(x.v)`` for an aggregate of a run."""
    variable, _, name = column.partition(".")
    if variable.endswith("@"):
        return name
    return f"{variable}.Vs" if name == "@" else f"{variable}.{name.removeprefix('@.')}"


def key_column(name: str) -> str:
    """Return the column of a correlation key's value."""
    return f"@.{name}"


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


@dataclass(frozen=True)
class VariableColumns:
    """The columns of a variable: its start, and its own columns as expressions, by name.

    owners: for a field of a sub-pattern, by its column, the start of the event that has it, NULL where a match has none.
    """

    starts: Expr
    columns: Mapping[str, Expr] = field(default_factory=dict)
    owners: Mapping[str, Expr] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Matches:
    """The matches of a pattern.

    variables: those that a condition may name; events: those of them that are events, in the order of the text; optional: events
    that a match may lack; contributors: the starts of the pattern's own inputs in the order of time; root: the earliest start of
    all events below; lasts: the length of a match's life in ticks; id: that of a match; ids: those of its contributors, NULL for
    one that it lacks; listed_ids: these as a list, where their number differs from match to match. Ids are there if something
    reads them.
    """

    stream: Stream
    variables: Mapping[str, VariableColumns]
    events: tuple[str, ...]
    starts: Expr
    root: Expr
    contributors: tuple[Expr, ...]
    lasts: Expr
    id: Expr | None = None
    ids: tuple[Expr, ...] = ()
    optional: frozenset[str] = frozenset()
    listed_ids: Expr | None = None

    @property
    def schema(self) -> Schema:
        """The columns of the matches."""
        return self.stream.schema

    def named(self, variable: str, fields: Mapping[str, Sequence[str]]) -> VariableColumns:
        """Return the columns of a variable for these matches.

        ``fields`` are those of a sub-pattern, each with the events that may have it; a match has one of these at most.
        """
        columns = {start_column(variable): self.starts, root_column(variable): self.root}
        owners = {}
        for name, events in fields.items():
            values = tuple(Col(field_column(event, name)) for event in events)
            columns[field_column(variable, name)] = values[0] if len(values) == 1 else Call(COALESCE, values)
            owners[field_column(variable, name)] = least_instant([Col(start_column(event)) for event in events])
        if self.id is not None:
            ids = id_list(self.ids) if self.listed_ids is None else self.listed_ids
            columns |= {id_column(variable): self.id, contributors_of(variable): ids}
        return VariableColumns(self.starts, columns, owners)

    def ticks(self, instant: Expr) -> Expr:
        """Return an instant of these matches in ticks."""
        return instant_as_ticks(instant, self.schema.axis_type)


def with_lifetimes(stream: Stream, start: Start, length: Length) -> Stream:
    """Return a stream with other lifetimes."""
    return stream._derive(AlterLifetime(stream.plan, start, length))


def filter_stream(stream: Stream, conditions: Iterable[Expr]) -> Stream:
    """Return the events of a stream for which all conditions hold."""
    condition = conjunction_or_none(conditions)
    return stream if condition is None else stream._derive(Where(stream.plan, condition))


def open_matches(stream: Stream, scope: int) -> Stream:
    """Return matches that live while another event may follow: from just after their start, for a whole scope."""
    return with_lifetimes(stream, Start(by=1), Length(LengthKind.FIXED, scope))


def rest_of_scope(matches: Matches, first: Expr, scope: int) -> Expr:
    """Return the rest of a scope at a match's start, in ticks; the scope begins at the instant ``first``."""
    return tick_count(scope) - (matches.ticks(Lifetime("start")) - matches.ticks(first))


def elapsed_ticks(later: Matches, first: Expr) -> Expr:
    """Return the ticks from an instant to the start of a later match."""
    return later.ticks(later.starts) - later.ticks(first)


def id_list(ids: Sequence[Expr]) -> Expr:
    """Return the list of the ids that are not NULL."""
    return Call(function_of("array_compact"), (Call(function_of("array"), tuple(ids)),))


def least_instant(instants: Sequence[Expr]) -> Expr:
    """Return the least of the instants that are not NULL."""
    return instants[0] if len(instants) == 1 else Call(function_of("least"), tuple(instants))


def greatest_instant(instants: Sequence[Expr]) -> Expr:
    """Return the greatest of the instants that are not NULL."""
    return instants[0] if len(instants) == 1 else Call(function_of("greatest"), tuple(instants))


def sorted_starts(starts: Sequence[Expr], count: int) -> tuple[Expr, ...]:
    """Return the starts of a match's ``count`` contributors in the order of time; they differ, and are NULL for absent parts."""
    if count == 1:
        return (greatest_instant(starts),)
    # each is the least of those after the one before
    ordered = [least_instant(starts)]
    for _ in range(count - 2):
        last = ordered[-1]
        behind = [Call(function_of("nullif"), (greatest_instant([s, last]), last)) for s in starts]
        ordered.append(least_instant(behind))
    return (*ordered, greatest_instant(starts))


def tick_count(number: int) -> Expr:
    """Return a number of ticks as an expression."""
    return Lit(number, t.LongType())


def conjunction_or_none(conditions: Iterable[Expr]) -> Expr | None:
    """Return the conjunction of conditions; None if there are none."""
    several = list(conditions)
    return reduce(lambda a, b: a & b, several) if several else None


def null_padded_union(streams: Sequence[Stream], source: str = "") -> Stream:
    """Return the events of several streams in one; the columns of the other streams are NULL.

    ``source``: the column of the number of an event's stream, from 0, if there is to be one.
    """
    kinds = {f.name: f.type for stream in streams for f in stream.schema.fields}
    plans = []
    for number, stream in enumerate(streams):
        own = set(stream.schema.names)
        columns = [(n, Col(n) if n in own else Cast(Lit(None), kind)) for n, kind in kinds.items()]
        numbered = [(source, Cast(Lit(number), t.IntegerType()))] if source else []
        plans.append(Select(stream.plan, (*numbered, *columns)))
    first, *others = streams
    return first._derive(Union(tuple(plans)) if others else plans[0], *others)


def joint_matches(parts: Sequence[Matches], stream: Stream, *, in_order: bool = False) -> Matches:
    """Return matches that have events of several parts, over a ``stream`` with the columns of all.

    ``in_order``: a match starts with its event of the last part. Contributors, lifetimes and ids are left for the caller to set.
    """
    starts = [p.starts for p in parts]
    return Matches(
        stream=stream,
        variables={name: named for p in parts for name, named in p.variables.items()},
        events=tuple(e for p in parts for e in p.events),
        starts=starts[-1] if in_order else greatest_instant(starts),
        root=least_instant([p.root for p in parts]),
        contributors=(),
        lasts=tick_count(1),
        optional=frozenset[str]().union(*(p.optional for p in parts)),
    )
