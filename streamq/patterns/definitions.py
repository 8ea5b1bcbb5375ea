"""Detect, the node of a pattern as the user wrote it, and its translation: names are resolved, and each definition lowered.

The compiler replaces the node by joins and scans. Readers of a plan, the oracle above all, can so judge a pattern by its syntax.
(Barga et al., Consistent Streaming Through Time: A Vision for Event Stream Processing, section 3.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from streamq.choices import LengthKind
from streamq.compiler.estimates import LikelyFlows
from streamq.errors import StreamqError, nearest
from streamq.functions.logic import conjuncts
from streamq.operators.alter_lifetime import Length, Start, instant_as_ticks
from streamq.operators.select import Select
from streamq.patterns import syntax
from streamq.patterns.conditions import Conjunct, PendingConditions, Variables, asks_for_ids, condition_on, typed_expr
from streamq.patterns.definition_lowering import DefinitionLowering, EventType, extract_keys
from streamq.patterns.matches import (
    Matches,
    RunAggregate,
    contributor_of,
    field_column,
    filter_stream,
    greatest_instant,
    least_instant,
    run_variable,
    tick_count,
    with_lifetimes,
)
from streamq.patterns.parser import parse
from streamq.patterns.pattern_text import render, shown_part
from streamq.patterns.pattern_tree import (
    Type,
    composites_of,
    extent_of,
    leaves,
    negated_below,
    optional_below,
    parts_of,
    repeated_below,
    variables_below,
)
from streamq.patterns.syntax import NOWHERE, Definition, Part, Program, Refusal, expressions_in, refusal_for
from streamq.plan.expr import Col, Expr, Lifetime, Lit
from streamq.plan.node import Node, Traits, WrittenPattern, node
from streamq.plan.passes import columns as columns_of
from streamq.plan.schema import Schema, check_names
from streamq.stream import Stream
from streamq.time import INTEGER, TIMESTAMP, ticks

ROOT, ID = "@.root", "@.id"
"""The columns of a match's root and id, for definitions that use it as an event."""


_AXIS = {INTEGER: "an integer axis", TIMESTAMP: "a timestamp axis"}

AGGREGATES_OF_RUNS = "Take an aggregate, such as max(f.v) or first(f.v). For events that agree write CorrelationKey."

Where = Callable[[Variables], Iterable[Conjunct]]
"""Makes the conditions that come from no text, from the variables that they may name."""


def matches_of(
    program: Program,
    types: Mapping[str, EventType],
    where: Where = lambda _: (),
    *,
    has_ids: bool = False,
    likely: LikelyFlows | None = None,
) -> EventType:
    """Return the matches of the program's last definition; raise Refusal at the place of an error.

    ``where`` makes more conditions of the last definition; with ``has_ids`` its matches have ids even if it reads none.
    ``likely``: the rows that are expected, which decide in which order parts are joined.
    """
    earlier = _with_earlier(program, types, has_ids, likely)
    return _defined(program.definitions[-1], earlier, where, has_ids=has_ids, likely=likely)


def variables_of(program: Program, types: Mapping[str, EventType]) -> Variables:
    """Return the variables that conditions of the program's last definition may name."""
    last = program.definitions[-1]
    earlier = _with_earlier(program, types, has_ids=False)
    _check_types(last, earlier)
    return _variables(last.pattern, earlier)


def _with_earlier(
    program: Program, types: Mapping[str, EventType], has_ids: bool, likely: LikelyFlows | None = None
) -> dict[str, EventType]:
    """Return the event types and the definitions before the last one, by name.

    The matches of a definition have ids if ``has_ids`` is true, or if it or a later one reads ids.
    """
    every = dict(types)
    *earlier, _ = program.definitions
    for i, definition in enumerate(earlier):
        fields = {name: kind.fields for name, kind in every.items()}
        is_asked = has_ids or mentions_ids(program.definitions[i:], fields)
        every[definition.name] = _defined(definition, every, has_ids=is_asked, likely=likely)
    return every


def mentions_ids(definitions: Iterable[Definition], fields: Mapping[str, Collection[str]]) -> bool:
    """Return True if a definition reads ``id`` or ``contributors``, and not a payload field of that name.

    ``fields`` are those of the known types, by name.
    """
    for definition in definitions:
        kinds = {name: kind.name for name, _, kind in leaves(definition.pattern)}
        for one in expressions_in([*definition.where, *(f.expression for f in definition.output)]):
            if isinstance(one, syntax.EventField) and one.name.lower() in ("id", "contributors"):
                own = fields.get(kinds.get(one.variable or "", ""), ())
                if one.name.lower() not in map(str.lower, own):
                    return True
    return False


def used_types(program: Program) -> tuple[Type, ...]:
    """Return the event types that are streams, each where it stands first, in the order of the text."""
    kinds: dict[str, Type] = {}
    defined: set[str] = set()
    for definition in program.definitions:
        for _, _, kind in leaves(definition.pattern):
            if kind.name not in defined:
                kinds.setdefault(kind.name, kind)
        defined.add(definition.name)
    return tuple(kinds.values())


def no_type(kind: Type, types: Collection[str]) -> Refusal:
    """Return the refusal of an unknown event type; ``types`` are those there are."""
    there = f"there are: {', '.join(types)}" if types else "there is none"
    return Refusal(kind.place, f"no event type {kind.name!r}", there, nearest(kind.name, types))


def _defined(
    definition: Definition,
    types: Mapping[str, EventType],
    where: Where = lambda _: (),
    *,
    has_ids: bool = False,
    likely: LikelyFlows | None = None,
) -> EventType:
    """Return the matches of a definition as an event type, over the types before it; raise Refusal at the place of an error.

    ``where`` returns further conditions over the definition's variables. The matches have ids if ``has_ids`` is true, or if a
    condition or an output reads them.
    """
    if definition.name in types:
        raise Refusal(definition.place, f"{definition.name!r} is an event type already")
    _check_types(definition, types)
    variables = _variables(definition.pattern, types)
    optional = optional_below(definition.pattern)
    conjuncts = [*variables.conjuncts(definition.where), *where(variables)]
    keys, conjuncts = extract_keys(definition.where, conjuncts, variables, optional, definition.pattern)
    read = _read_outputs(definition, variables)
    if not read:
        variables.runs.update(_listed_runs(variables))
    has_ids = has_ids or asks_for_ids([*conjuncts, *read.values()])
    conditions = PendingConditions(c for c in conjuncts if c.variables)
    asked = {column for c in (*conjuncts, *read.values()) for column in columns_of(c.condition)}
    asked |= {run.column for run in variables.runs.values() if run.column is not None}
    composites = {
        v: {name: tuple(field.owners) for name, field in fields.items() if field_column(v, name) in asked}
        for v, fields in variables.composites.items()
    }
    lowering = DefinitionLowering(types, keys, conditions, variables.runs, composites, has_ids=has_ids, likely=likely)
    matches = lowering.lowered(definition.pattern)
    _check_left(conditions.left, variables)
    # a condition without a variable filters the matches, and not what they negate
    constant = [condition_on(c, {}, matches.schema, frozenset()) for c in conjuncts if not c.variables]
    stream = filter_stream(_living(matches, definition), constant)
    outputs = _outputs(read, matches, variables)
    ids = {} if matches.id is None else {ID: matches.id}
    is_cut = definition.validity is not None and definition.validity.start is not None
    several = matches.contributors if len(matches.contributors) > 1 or is_cut else ()
    contributors = {contributor_of("@", i): start for i, start in enumerate(several)}
    columns = {**outputs, ROOT: matches.root, **ids, **contributors}
    stream = stream._derive(Select(stream.plan, tuple(columns.items())))
    own = tuple(map(Col, contributors))
    extent = extent_of(definition, {name: kind.extent for name, kind in types.items()})
    return EventType(stream, tuple(outputs), Col(ROOT), extent, Col(ID) if ids else None, own)


def _events(whole: Part) -> dict[str, Type]:
    """Return the types of events, also negated ones, by variable; an event without a variable is called by its type.

    Raises Refusal for a name with a dot, and for one that stands for two events.
    """
    events: dict[str, Type] = {}
    for name, part, kind in leaves(whole):
        if "." in name:
            raise Refusal(part.place, "a variable has no dot in its name", f"found {name!r}", "Name it by AS.")
        if name in events:
            hint = "Name each of them: A AS first, A AS second."
            raise Refusal(part.place, f"{name!r} stands for two events", "", hint)
        events[name] = kind
    return events


def _check_types(definition: Definition, types: Mapping[str, EventType]) -> None:
    """Raise Refusal for an unknown event type, for types on different axes, and for a scope that does not fit the axis."""
    for kind in _events(definition.pattern).values():
        if kind.name not in types:
            raise no_type(kind, types)
    axes = {types[kind.name].stream.schema.axis: kind for kind in reversed(_events(definition.pattern).values())}
    if len(axes) > 1:
        (other, second), (one, first) = axes.items()
        observed = f"{first.name!r} is on {_AXIS[one]}, {second.name!r} on {_AXIS[other]}"
        raise Refusal(second.place, "event types on different time axes", observed)
    _check_scopes(definition.pattern, next(iter(axes)))


def _check_scopes(whole: Part, axis: str) -> None:
    for part in parts_of(whole):
        pattern = part.pattern
        if pattern.duration is not None:
            try:
                ticks(pattern.duration, axis, "cedr")
            except StreamqError as error:
                raise refusal_for(
                    pattern.place_of("within"), error, "cedr", "Write a unit behind it: 5 minutes."
                ) from error


def _variables(whole: Part, types: Mapping[str, EventType]) -> Variables:
    """Return the variables of events and of named sub-patterns; raise Refusal for one that stands for two patterns."""
    events = _events(whole)
    below: dict[str, frozenset[str]] = {name: frozenset({name}) for name in events}
    for part in parts_of(whole):
        if part.variable is not None and not isinstance(part.pattern, Type):
            if part.variable in below:
                raise Refusal(part.place, f"{part.variable!r} stands for two patterns")
            below[part.variable] = frozenset(variables_below(part)) - negated_below(part)
    repeated = repeated_below(whole)
    below |= {run_variable(name): below[name] for name in repeated}
    fields = {name: types[kind.name].fields for name, kind in events.items()}
    kinds = {
        (name, field): types[kind.name].stream.schema.type_of(field)
        for name, kind in events.items()
        for field in types[kind.name].fields
    }
    return Variables(below, fields, negated_below(whole), composites_of(whole, kinds), kinds, repeated)


def _check_left(left: list[Conjunct], variables: Variables) -> None:
    """Raise Refusal for the first condition that no operator has applied: on negated and other events, or on repeated ones."""
    if left:
        repeated = sorted(left[0].variables & variables.repeated)
        if repeated:
            wrong = f"a condition on {', '.join(repeated)}, which is repeated, and on another"
            raise Refusal(left[0].place, wrong, "", AGGREGATES_OF_RUNS)
        negated = sorted(v for v in left[0].variables if variables.below[v] & variables.negated)
        others = sorted(left[0].variables.difference(negated))
        wrong = f"a condition on {', '.join(negated)}, which is negated, and on {', '.join(others) or 'another'}"
        hint = "It may name events of the pattern that the negation is about, and no others."
        raise Refusal(left[0].place, wrong, "", hint)


def _living(matches: Matches, definition: Definition) -> Stream:
    """Return the matches with their lifetimes, cut by the slices of the definition.

    A slice of occurrence drops matches that start outside of it; one of validity cuts lifetimes, and drops those outside of it.
    """
    lasts = greatest_instant([matches.lasts, tick_count(1)])
    stream = with_lifetimes(matches.stream, Start(), Length(LengthKind.GIVEN, expr=lasts))
    axis = stream.schema.axis_type
    start: Expr = Lifetime("start")
    if definition.occurrence is not None:
        low, high = _bounds(definition.occurrence, stream.schema.axis)
        conditions = [*([] if low is None else [start >= low]), *([] if high is None else [start < high])]
        stream = filter_stream(stream, conditions)
    if definition.validity is not None:
        low, high = _bounds(definition.validity, stream.schema.axis)
        begins = instant_as_ticks(start if low is None else greatest_instant([start, low]), axis)
        ends = instant_as_ticks(Lifetime("end") if high is None else least_instant([Lifetime("end"), high]), axis)
        length = Length(LengthKind.GIVEN, expr=greatest_instant([ends - begins, tick_count(0)]))
        stream = with_lifetimes(stream, Start(expr=begins), length)
    return stream


def _bounds(cut: syntax.Slice, axis: str) -> tuple[Expr | None, Expr | None]:
    """Return the bounds of a slice as instants, None for one that it lacks.

    Raises Refusal for a bound of the wrong axis, and for an empty slice.
    """
    # both are numbers, or both are instants
    low: Any = None if cut.start is None else _bound(cut.start, axis)
    high: Any = None if cut.end is None else _bound(cut.end, axis)
    if low is not None and high is not None and low >= high:
        raise Refusal(cut.place, "an empty slice: it ends where it begins, or before")
    return None if low is None else Lit(low), None if high is None else Lit(high)


def _bound(bound: syntax.Literal, axis: str) -> int | datetime:
    """Return the bound of a slice as an instant of the axis, in UTC if it has no offset; raise Refusal if it is none."""
    value, place = bound.value, bound.place
    if axis == INTEGER:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Refusal(
                place, "the bound of a slice is a whole number of ticks on an integer axis", f"found {value!r}"
            )
        return value
    if not isinstance(value, str):
        hint = "Write '2024-05-01 08:00:00'; without an offset it is UTC."
        raise Refusal(place, "the bound of a slice is a timestamp in quotes", f"found {value!r}", hint)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        hint = "Write '2024-05-01', or '2024-05-01 08:00:00'."
        raise Refusal(place, "no timestamp", f"found {value!r}", hint) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _read_outputs(definition: Definition, variables: Variables) -> dict[str, Conjunct]:
    """Return the expressions of OUTPUT by the names of their columns, none without OUTPUT.

    Raises Refusal for a field of a negated event, of a repeated one without an aggregate, and for a name that no column may have.
    """
    outputs = {}
    for field in definition.output:
        place = field.expression.place
        output = variables.conjunct(variables.read(field.expression), place)
        for name in sorted(output.variables & variables.repeated):
            raise Refusal(place, f"OUTPUT of {name}, which is repeated", "", AGGREGATES_OF_RUNS)
        for name in sorted(output.names & variables.negated):
            raise Refusal(place, f"OUTPUT of {name}, which is negated", "", "No match has an event of it.")
        try:
            check_names([field.name], "cedr")
        except StreamqError as error:
            raise refusal_for(field.place, error, "cedr", "Write AS and another name behind it.") from error
        outputs[field.name] = output
    return outputs


def _outputs(outputs: Mapping[str, Conjunct], matches: Matches, variables: Variables) -> dict[str, Expr]:
    """Return the columns of the result: those of OUTPUT alone, else all fields of all events as ``x_v``, and ``root``.

    Negated events have none; fields of repeated ones are lists.
    """
    if not outputs:
        lists = {(a.variable, a.column): Col(name) for name, a in _listed_runs(variables).items()}
        fields: dict[str, Expr] = {
            f"{v}_{f}": lists.get((v, field_column(v, f)), Col(field_column(v, f)))
            for v in matches.events
            for f in variables.fields[v]
        }
        return {**fields, "root": matches.root}
    return {n: typed_expr(o.condition, matches.variables, matches.schema, o.place) for n, o in outputs.items()}


def _listed_runs(variables: Variables) -> dict[str, RunAggregate]:
    """Return the lists that stand for the fields of repeated events where there is no OUTPUT."""
    events = [name for name in variables.fields if name in variables.repeated]
    lists = (RunAggregate("collect", v, field_column(v, f), NOWHERE) for v in events for f in variables.fields[v])
    return {aggregate.name: aggregate for aggregate in lists}


@dataclass(frozen=True)
class Definitions:
    """The definitions of a program, by their text in normal form."""

    text: str

    @classmethod
    def from_program(cls, program: Program, source: str | None = None) -> Definitions:
        """Return a program's definitions; errors show places in ``source``, the text that the user wrote."""
        definitions = cls(render(program))
        definitions.__dict__.update(program=program, source=source)
        return definitions

    @cached_property
    def source(self) -> str | None:
        """The text that the user wrote; None if there is none, or if verbs have added to it."""
        return None

    @cached_property
    def program(self) -> Program:
        """The definitions as trees."""
        return parse(self.text)


@node
class Detect(Node):
    """The matches of a pattern; ``names``: event types of ``inputs``; ``conditions``: more of the last one, over ``x.v``."""

    inputs: tuple[Node, ...]
    names: tuple[str, ...]
    definitions: Definitions
    conditions: tuple[Expr, ...] = ()

    title = "pattern"

    def _schema(self) -> Schema:
        return self.expansion.schema

    def _traits(self) -> Traits:
        return replace(self.expansion.traits, mixes_windows=False, on_windows=False, implied_windows=None)

    @cached_property
    def expansion(self) -> Node:
        """The matches with the columns of OUTPUT."""
        return self.expansion_by(None)

    def expansion_by(self, likely: LikelyFlows | None) -> Node:
        """Return the matches with the columns of OUTPUT, whose parts are joined in the order of fewest pairs."""
        matches = self.event_type(has_ids=False, likely=likely)
        return matches.stream.select(*matches.fields).plan

    @property
    def types(self) -> Mapping[str, Node]:
        """The plans of the event types, by their names."""
        return dict(zip(self.names, self.inputs, strict=True))

    def event_type(self, *, has_ids: bool, likely: LikelyFlows | None = None) -> EventType:
        """Return the matches as events of a type, with their roots and contributors, and with ids if asked.

        Inputs have ids if the matches must have some, or a definition reads them. ``likely``: the rows that are expected.
        """
        if likely is None and has_ids in self._event_types:
            return self._event_types[has_ids]
        program, fields = self.definitions.program, {name: plan.schema.names for name, plan in self.types.items()}
        is_asked = has_ids or mentions_ids(program.definitions, fields)
        types = {name: event_type(plan, has_ids=is_asked, likely=likely) for name, plan in self.types.items()}
        matches = matches_of(program, types, self._conjuncts, has_ids=has_ids, likely=likely)
        if likely is None:
            self._event_types[has_ids] = matches
        return matches

    @cached_property
    def _event_types(self) -> dict[bool, EventType]:
        """The matches lowered so far, as the text has its parts: with ids, without ids, or both."""
        return {}

    def _conjuncts(self, variables: Variables) -> Iterator[Conjunct]:
        """Yield the conditions that AND connects in those of functions."""
        parts = (part for condition in self.conditions for part in conjuncts(condition))
        return (variables.conjunct(variables.of_matches(part)) for part in parts)

    @property
    def patterns(self) -> tuple[WrittenPattern, ...]:
        return tuple(
            WrittenPattern(d.name, shown_part(d.pattern), frozenset(variables_below(d.pattern)))
            for d in self.definitions.program.definitions
        )

    def detail(self) -> str:
        """The definitions on one line."""
        return " ".join(self.definitions.text.split())


def event_type(plan: Node, *, has_ids: bool, likely: LikelyFlows | None = None) -> EventType:
    """Return the rows of a plan as events of a type: matches if the plan is a pattern, else single events."""
    if isinstance(plan, Detect):
        return plan.event_type(has_ids=has_ids, likely=likely)
    stream = Stream(plan, {})
    return EventType(stream, tuple(stream.columns))
