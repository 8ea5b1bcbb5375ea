"""Goes from event to event of a pattern's parameters, binds to each event that may complete a match the ones before it, and
forgets what has been consumed.

Cost: for an event that may complete a match, a look at the events within the scope; conditions are evaluated for all of them at
once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from streamq.runtime.candidates import Binding, Candidate, Gatherer, State, Taking


@dataclass(frozen=True)
class Chooser(Gatherer):
    """Binds ``count`` of the parameters whenever an event completes a match; with ``in_order`` in their order."""

    in_order: bool

    def step(self, state: State, start: int, source: int, *values: Any) -> tuple[State, list[dict[str, Any]]]:
        """Return the state after an event of an input, and the matches that it completes.

        The events that one of them has consumed are gone then, for all parameters of their input.
        """
        event = self.candidate(start, source, values)
        candidates = self.since(state, start - self.within)
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
        return tuple(candidates), [self.row(match) for match in matches]

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


__all__ = ["Chooser"]
