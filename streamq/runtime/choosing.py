"""Goes from event to event of a pattern's parameters, binds to each event that may complete a match the ones before it, and
forgets what has been consumed.

State: of each input the events whose scope an event can still complete. Cost: for an event that may complete a match, a look at
the events within the scope; conditions are evaluated for all of them at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from streamq.choices import Selection
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.evaluators.condition import Condition
from streamq.runtime.user_results import RowShape
from streamq.time import INFINITY, MINUS_INFINITY

Candidate = tuple[int, tuple[Any, ...]]
"""An event that can be bound: its start in ticks, and the values of its input's columns. Plain, as states are pickled by workers,
which could not find a class of streamq's again."""


class Binding(NamedTuple):
    """The events bound so far, by parameter, and the start of the earliest of them."""

    first: int
    events: tuple[Candidate | None, ...]

    def before(self, parameter: int, event: Candidate) -> Binding:
        """Return the binding with one more event, which comes before the others."""
        return Binding(event[0], (*self.events[:parameter], event, *self.events[parameter + 1 :]))


State = tuple[tuple[Candidate, ...], ...]
"""The candidates of each input in the order of (Vs, id)."""


@dataclass(frozen=True)
class Taking:
    """What a parameter takes: events of an input, by its number.

    columns: the names of its columns, and their places among the input's; fits: the place of the column that says whether an
    event fits the parameter at all, None where all do.
    """

    source: int
    columns: tuple[tuple[str, int], ...]
    fits: int | None
    selection: Selection
    consumes: bool

    def of(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return those of the input's candidates that fit the parameter."""
        return candidates if self.fits is None else [c for c in candidates if c[1][self.fits] is True]

    def chosen(self, fitting: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return those of the candidates that fit, in the order of (Vs, id), that are bound."""
        if self.selection == Selection.FIRST:
            return fitting[:1]
        return fitting[-1:] if self.selection == Selection.LAST else fitting


@dataclass(frozen=True)
class Between:
    """A condition on the events of some ``parameters``; ``reads``: its columns, the parameter of each and the place there."""

    condition: Condition
    parameters: frozenset[int]
    reads: tuple[tuple[str, int, int], ...]

    def filtered(
        self, bindings: Sequence[Binding], parameter: int, candidates: Sequence[Sequence[Candidate]]
    ) -> list[Sequence[Candidate]]:
        """Return, of the ``candidates`` that each binding has for a parameter, those for which the condition holds."""
        columns = {}
        for name, owner, place in self.reads:
            values = (
                event[1][place]
                for binding, several in zip(bindings, candidates, strict=True)
                for event in _events_of(binding, parameter, several, owner)
            )
            columns[name] = pa.array(list(values), arrow_type(self.condition.pair.type_of(name)))
        holds = self.condition.holds(pa.table(columns)).tolist()
        ends = accumulate((len(several) for several in candidates), initial=0)
        masks = (holds[begin:end] for begin, end in pairwise(ends))
        return [list(compress(several, mask)) for several, mask in zip(candidates, masks, strict=True)]


def _events_of(binding: Binding, parameter: int, candidates: Sequence[Candidate], owner: int) -> Iterator[Candidate]:
    """Yield for each candidate for a parameter the event of a parameter, ``owner``, that is bound or that one."""
    if owner == parameter:
        yield from candidates
        return
    bound = binding.events[owner]
    assert bound is not None
    for _ in candidates:
        yield bound


@dataclass(frozen=True)
class Chooser:
    """Binds ``count`` of the ``parameters`` whenever an event completes a match; with ``in_order`` in their order.

    inputs: the places of each input's columns among the values of an event; within: the scope in ticks.
    """

    inputs: tuple[tuple[int, ...], ...]
    parameters: tuple[Taking, ...]
    conditions: tuple[Between, ...]
    names: tuple[str, ...]
    count: int
    in_order: bool
    within: int

    def initial(self) -> State:
        """Return the state before the first event: no candidates."""
        return ((),) * len(self.inputs)

    def needed_until(self, state: State) -> int:
        """Return the last start of an event that a state makes a difference to."""
        last = max((candidates[-1][0] for candidates in state if candidates), default=MINUS_INFINITY)
        return last if last == MINUS_INFINITY else min(last + self.within, INFINITY)

    def step(self, state: State, start: int, source: int, *values: Any) -> tuple[State, list[dict[str, Any]]]:
        """Return the state after an event of an input, and the matches that it completes.

        The events that one of them has consumed are gone then, for all parameters of their input.
        """
        event = (start, tuple([values[place] for place in self.inputs[source]]))
        candidates = [several[bisect_left(several, (start - self.within,)) :] for several in state]
        matches = self._completed(event, source, candidates)
        # of equal events each one is consumed for itself
        consumed = {
            id(bound)
            for match in matches
            for bound, parameter in zip(match.events, self.parameters, strict=True)
            if bound is not None and parameter.consumes
        }
        if any(parameter.source == source and parameter.of([event]) for parameter in self._earlier):
            candidates[source] = (*candidates[source], event)
        if consumed:
            candidates = [tuple([c for c in several if id(c) not in consumed]) for several in candidates]
        return tuple(candidates), [self._row(match) for match in matches]

    @property
    def _earlier(self) -> Sequence[Taking]:
        """The parameters whose event may come before another one of the match."""
        return self.parameters[:-1] if self.in_order else self.parameters

    def _completed(self, event: Candidate, source: int, candidates: Sequence[Sequence[Candidate]]) -> list[Binding]:
        """Return the matches of which this event is the last in time."""
        several: dict[frozenset[int], list[Binding]] = {}
        nothing = Binding(event[0], (None,) * len(self.parameters))
        for last in self._completing:
            parameter = self.parameters[last]
            if parameter.source == source and parameter.of([event]):
                several[frozenset({last})] = [nothing.before(last, event)]
        for _ in range(self.count - 1):
            longer: dict[frozenset[int], list[Binding]] = {}
            for bound, bindings in several.items():
                for number in self._next(bound):
                    more = self._extended(bindings, bound, number, candidates)
                    if more:
                        longer.setdefault(bound | {number}, []).extend(more)
            several = longer
        return [binding for bindings in several.values() for binding in bindings]

    @property
    def _completing(self) -> Iterable[int]:
        """The parameters whose event may be the last in time."""
        every = range(len(self.parameters))
        return every[-1:] if self.in_order else every

    def _next(self, bound: frozenset[int]) -> Iterable[int]:
        """Return the parameters that may be bound before those that are."""
        if self.in_order:
            return (min(bound) - 1,)
        return (number for number in range(len(self.parameters)) if number not in bound)

    def _extended(
        self,
        bindings: Sequence[Binding],
        bound: frozenset[int],
        number: int,
        candidates: Sequence[Sequence[Candidate]],
    ) -> list[Binding]:
        """Return bindings of the same parameters with an event more, of the parameter of this number."""
        parameter = self.parameters[number]
        fitting = parameter.of(candidates[parameter.source])
        earlier: list[Sequence[Candidate]] = [fitting[: bisect_left(fitting, (b.first,))] for b in bindings]
        for condition in self.conditions:
            if number in condition.parameters and condition.parameters <= bound | {number}:
                earlier = condition.filtered(bindings, number, earlier)
        return [
            binding.before(number, event)
            for binding, several in zip(bindings, earlier, strict=True)
            for event in parameter.chosen(several)
        ]

    def _row(self, match: Binding) -> dict[str, Any]:
        """Return a match as a row; NULL is what is not bound."""
        row = dict.fromkeys(self.names)
        for event, parameter in zip(match.events, self.parameters, strict=True):
            if event is not None:
                row |= {name: event[1][place] for name, place in parameter.columns}
        return row


class WholeRows(RowShape):
    """Rows of values that came out of columns of the same types: they are taken as they are."""

    def rows(self, result: Any, in_window: Any) -> list[dict[str, Any]]:
        return list(result)


__all__ = ["Between", "Chooser", "Taking", "WholeRows"]
