"""Lower operators whose parts select (FIRST, LAST) or consume (CONSUME) events to one scan.

The scan visits the events of all parts in the order of (Vs, id). The id of an event is the name of its type, then its payload;
matches of patterns come after events of types, in the order of the parts, and are ordered by their events. An event completes
the matches of which it is the last. Among all whole matches that it completes, the parts select, from the one before the last
back to the first: FIRST (LAST) keeps those with the least (greatest) event by (Vs, id) in that part, among those that have the
same events in the parts after it. So a part never selects an event that no whole match has. The last part selects nothing:
every event completes all matches that it can.

In ATLEAST and ALL every part without an event is tried at every place. So a match is a choice of parts in an order of time, and
each part selects among the events before the one chosen last. A match of ATLEAST(1, ...) or ANY is one event, so selection and
consumption make no difference there; nor do they in UNLESS, NOT and CANCEL_WHEN, which judge each match of their pattern alone.

In ATMOST an event is a match if few events are in the scope that ends with it. Those at its own start count, and an event that
fits several parts counts once. FIRST and LAST make no difference, and consumed events no longer count.

Consumed events are gone after all matches of the event that completed theirs: for the whole operator, and so for its other parts
over the same type. (Barga et al., Consistent Streaming Through Time, section 3.1.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from operator import or_

from streamq.choices import Consumption
from streamq.errors import NeedsSpark
from streamq.functions.logic import COALESCE
from streamq.operators.alter_lifetime import instant_as_ticks
from streamq.operators.scan import PartCondition, PatternScan, Scan
from streamq.operators.select import Select
from streamq.patterns.conditions import Conjunct, PendingConditions, on_matches
from streamq.patterns.matches import (
    CorrelationKeys,
    Matches,
    conjunction_or_none,
    field_column,
    filter_stream,
    in_pattern_names,
    joint_matches,
    key_column,
    null_padded_union,
    start_column,
)
from streamq.patterns.pattern_tree import Type
from streamq.patterns.syntax import Part, Refusal
from streamq.plan.expr import Call, Cast, Col, Expr, Lifetime, Lit
from streamq.plan.passes import show_to_user, substitute
from streamq.plan.schema import Schema
from streamq.runtime.arrow.arrow_expr import check_in_process
from streamq.runtime.candidates import ScannedPart
from streamq.stream import Stream

SOURCE = "@source"
"""The column of the number of an event's input."""


def shared_events(parts: Sequence[Part], scan: type[PatternScan]) -> list[tuple[int, ...]]:
    """Return, for each type of several parts, the numbers of these, if it matters that they share events; else nothing.

    It matters if a part consumes, or if the scan counts other events.
    """
    if not scan.counts_others and all(p.consumption == Consumption.REUSE for p in parts):
        return []
    by_type: dict[str, list[int]] = {}
    for number, part in enumerate(parts):
        if isinstance(part.pattern, Type):
            by_type.setdefault(part.pattern.name, []).append(number)
    return [tuple(numbers) for numbers in by_type.values() if len(numbers) > 1]


@dataclass(frozen=True)
class _Input:
    """The events of a part, or of several parts over the same type.

    columns: those of a part's events, by its number; fits: the column that is true of the part's events, by its number.
    """

    stream: Stream
    columns: dict[int, tuple[str, ...]]
    fits: dict[int, str]


class PartScan:
    """The parts of an operator, and the inputs from whose events they choose.

    matches: those of each part; for a part that shares its events (``shared_events``) all events of the type, and the conditions
    become a column that is true of the part's events. ``grouped`` are the correlation keys with one value an event, whatever its
    part; ``others`` are checked as conditions.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        matches: Sequence[Matches],
        scan: type[PatternScan],
        correlation: CorrelationKeys,
        conditions: PendingConditions,
    ):
        """Take the parts of an operator with their matches, and make the inputs of its scan."""
        self.parts, self.matches, self.scan = parts, matches, scan
        self.correlation, self.conditions = correlation, conditions
        self.shared = shared_events(parts, scan)
        several = {number for numbers in self.shared for number in numbers}
        self.grouped = [k for k in self.correlation.keys if self._is_one_field(k)]
        self.others = [k for k in self.correlation.keys if k not in self.grouped]
        alone = [(number,) for number in range(len(parts)) if number not in several]
        self.inputs = [self._input(numbers) for numbers in sorted([*self.shared, *alone], key=self._source)]

    def _is_one_field(self, name: str) -> bool:
        """Return True if a key is the same field in all parts over the same events."""
        fields = self.correlation.fields[name]
        return all(len({fields[_variable(self.parts[n])] for n in numbers}) == 1 for numbers in self.shared)

    def _source(self, numbers: Sequence[int]) -> tuple[bool, str, int]:
        """Return the sort key of an input: types come by their names, then patterns as they stand."""
        pattern = self.parts[numbers[0]].pattern
        if isinstance(pattern, Type):
            return False, pattern.name, numbers[0]
        return True, "", numbers[0]

    # inputs

    def _input(self, numbers: Sequence[int]) -> _Input:
        """Return the input of one part, or of several over the same events, with the columns of each.

        The conditions on each of several parts become a column, and are no longer pending. If each part has some, events that fit
        no part are left out.
        """
        first = self.matches[numbers[0]]
        columns: dict[str, Expr] = {key_column(k): Col(key_column(k)) for k in self.grouped}
        own: dict[int, tuple[str, ...]] = {}
        conditions: dict[int, Expr] = {}
        for number in numbers:
            matches = self.matches[number]
            same: dict[str, Expr] = dict(zip(event_columns(matches), map(Col, event_columns(first)), strict=True))
            keys = {_key_of(number, k): self._value(k, number, same) for k in self.others}
            columns |= same | keys
            own[number] = (*same, *keys)
            if len(numbers) > 1:
                condition = conjunction_or_none(self.conditions.take_on(matches))
                conditions |= {} if condition is None else {number: substitute(condition, same)}
        fits = {number: f"{number}@fits" for number in conditions}
        columns |= {fits[number]: condition for number, condition in conditions.items()}
        stream = first.stream._derive(Select(first.stream.plan, tuple(columns.items())))
        if len(fits) == len(numbers):
            stream = filter_stream(stream, [reduce(or_, (Col(name) for name in fits.values()))])
        return _Input(stream, own, fits)

    def _value(self, name: str, number: int, same: Mapping[str, Expr]) -> Expr:
        """Return the value of a key in the events of part ``number``; ``same``: its columns as expressions over the input."""
        part = self.parts[number]
        if not isinstance(part.pattern, Type):
            return Col(key_column(name))
        field = field_column(_variable(part), self.correlation.fields[name][_variable(part)])
        return self.correlation.value(name, same[field], self.matches[number].schema.type_of(field))

    # matches

    def matched(self, count: int, within: int) -> Matches:
        """Return the matches of the scan, for ``count`` events within a scope.

        An event whose key is NULL is left out, except by a scan that counts others: there it is a match alone. Contributors,
        lifetimes and ids are left for the caller to set.
        """
        whole = null_padded_union([one.stream for one in self.inputs], SOURCE)
        # a key that is NULL is equal to no other
        events = filter_stream(whole, [Col(key_column(k)).is_not_null() for k in self.grouped])
        lifetimes = instant_as_ticks(Lifetime("start"), events.schema.axis_type)
        keys = tuple(key_column(k) for k in self.grouped)
        fields = tuple(f for f in events.schema.fields if f.name not in (*keys, SOURCE))
        matches = joint_matches(self.matches, events, in_order=self.scan.in_order)
        operator = self.scan(
            parts=tuple(self._scanned()),
            conditions=tuple(self._requirements(matches)),
            columns=fields,
            sources=tuple(self._own(i) for i in self.inputs),
            axis=events.schema.axis,
            count=count,
            within=within,
        )
        scan = Scan(events.plan, keys, operator, (lifetimes, Col(SOURCE), *(Col(f.name) for f in fields)))
        columns: dict[str, Expr] = {key_column(k): Col(key_column(k)) for k in self.grouped}
        for k in self.others:
            columns[key_column(k)] = Call(COALESCE, tuple(Col(_key_of(n, k)) for n in range(len(self.parts))))
        columns |= {name: Col(name) for m in self.matches for name in event_columns(m)}
        stream = events._derive(Select(scan, tuple(columns.items())))
        if self.scan.counts_others and self.grouped:
            alone = [self._keyless_events(number, whole, columns) for number in range(len(self.parts))]
            stream = stream.union(*alone)
        return replace(matches, stream=stream)

    def _keyless_events(self, number: int, events: Stream, columns: Iterable[str]) -> Stream:
        """Return the events of part ``number`` whose key is NULL; each is a match by itself."""
        source, one = next((i, one) for i, one in enumerate(self.inputs) if number in one.columns)
        conditions = [Col(SOURCE) == Lit(source), reduce(or_, (Col(key_column(k)).is_null() for k in self.grouped))]
        conditions += [Col(one.fits[number])] if number in one.fits else []
        there = filter_stream(events, conditions)
        own = {n: Col(n) for n in (*(key_column(k) for k in self.grouped), *one.columns[number])}
        own |= {key_column(k): Col(_key_of(number, k)) for k in self.others}
        absent = {n: Cast(Lit(None), events.schema.type_of(n)) for n in columns if n not in own}
        return there._derive(Select(there.plan, tuple((n, own[n] if n in own else absent[n]) for n in columns)))

    def _own(self, one: _Input) -> tuple[str, ...]:
        return (*(name for names in one.columns.values() for name in names), *one.fits.values())

    def _scanned(self) -> Iterator[ScannedPart]:
        """Yield the parts as the scan reads them: with their inputs, and the places of their columns in these."""
        inputs = {number: i for i, one in enumerate(self.inputs) for number in one.columns}
        for number, part in enumerate(self.parts):
            one = self.inputs[inputs[number]]
            name = part.variable or "+".join(self.matches[number].events)
            places = {column: place for place, column in enumerate(self._own(one))}
            yield ScannedPart(
                name=name,
                source=inputs[number],
                columns=tuple((column, places[column]) for column in one.columns[number]),
                selection=part.selection,
                consumption=part.consumption,
                keys=tuple(places[_key_of(number, k)] for k in self.others),
                fits=places[one.fits[number]] if number in one.fits else None,
            )

    def _requirements(self, matches: Matches) -> Iterator[PartCondition]:
        """Remove the conditions between parts from those pending and yield them, then the equality of the keys in ``others``.

        Raises Refusal for a condition that only Spark can evaluate.
        """
        for conjunct in self.conditions.take(matches.variables):
            numbers = tuple(n for n, m in enumerate(self.matches) if conjunct.names & set(m.events))
            where = on_matches(conjunct, matches)
            _check_evaluable(where, matches.schema, conjunct)
            yield PartCondition(where, numbers)
        for k in self.others:
            for one, other in combinations(range(len(self.parts)), 2):
                yield PartCondition(Col(_key_of(one, k)) == Col(_key_of(other, k)), (one, other))


def _variable(part: Part) -> str:
    assert isinstance(part.pattern, Type)
    return part.variable or part.pattern.name


def _key_of(number: int, name: str) -> str:
    """Return the column of a key's value in the events of one part."""
    return f"{number}{key_column(name)}"


def event_columns(matches: Matches) -> list[str]:
    """Return the columns of matches without keys, event by event, the start of each first; matches are ordered by them."""
    names = [n for n in matches.schema.names if not n.startswith(key_column(""))]
    owners = {
        name: at
        for at, event in enumerate(matches.events)
        for name in names
        if name.startswith(field_column(event, ""))
    }
    starts = {start_column(event) for event in matches.events}
    return sorted(names, key=lambda n: (owners.get(n, len(owners)), n not in starts))


def _check_evaluable(where: Expr, schema: Schema, conjunct: Conjunct) -> None:
    """Raise Refusal for a condition that only Spark can evaluate: the scan evaluates it in-process."""
    try:
        check_in_process(where, schema, "cedr")
    except NeedsSpark as error:
        wrong = "a condition between parts that select or consume calls what only Spark has"
        raise Refusal(conjunct.place, wrong, f"found {show_to_user(in_pattern_names(conjunct.condition))}") from error
