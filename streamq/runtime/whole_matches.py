"""Pattern step that binds earlier events to each event that may complete a match, and forgets consumed events.

Cost: per event that may complete a match, a look at the events within the scope; conditions are evaluated for all of them at
once. For a part on FIRST or LAST, events are tried in order until one has a whole match, which mostly is the first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from streamq.runtime.candidates import Binding, Candidate, PatternStep, ScannedPart, ScanState
from streamq.time import INFINITY, MINUS_INFINITY


@dataclass(frozen=True)
class WholeMatchStep(PatternStep):
    """Binds ``count`` of the parts whenever an event completes a match; with ``in_order``, in their order."""

    in_order: bool

    def step(self, state: ScanState, start: int, source: int, *values: Any) -> tuple[ScanState, list[dict[str, Any]]]:
        """Return the state after an event of an input, and the matches that it completes.

        The events that these matches consume are removed, for all parts of their input, as are those that started before the
        scope. The event itself is remembered if it fits a part that another event can follow.
        """
        event = self.candidate(start, source, values)
        candidates = self.since(state, start - self.within)
        matches = self._completed(event, source, candidates)
        # equal events are consumed one by one
        consumed = {
            id(bound)
            for match in matches
            for bound, part in zip(match.events, self.parts, strict=True)
            if bound is not None and part.consumes
        }
        if any(part.source == source and part.fitting([event]) for part in self._earlier):
            candidates[source] = (*candidates[source], event)
        if consumed:
            candidates = [tuple([c for c in several if id(c) not in consumed]) for several in candidates]
        return tuple(candidates), [self.row(match) for match in matches]

    @property
    def _earlier(self) -> Sequence[ScannedPart]:
        """The parts whose event may come before another event of the match."""
        return self.parts[:-1] if self.in_order else self.parts

    def _completed(self, event: Candidate, source: int, candidates: Sequence[Sequence[Candidate]]) -> list[Binding]:
        """Return the matches whose last event in time is this one."""
        nothing = Binding(event[0], (None,) * len(self.parts))
        fitting = [part.fitting(candidates[part.source]) for part in self.parts]
        if self.in_order:
            fitting = _reachable(fitting)
        matches: list[Binding] = []
        for last in self._completing:
            part = self.parts[last]
            if part.source == source and part.fitting([event]):
                (completed,) = self._whole([nothing.before(last, event)], frozenset({last}), fitting)
                matches += completed
        return matches

    def _whole(
        self, bindings: Sequence[Binding], bound: frozenset[int], fitting: Sequence[Sequence[Candidate]]
    ) -> list[list[Binding]]:
        """Return, for each of some bindings of the same parts, its selected extensions to whole matches.

        ``bound``: the numbers of these parts; ``fitting``: the candidates that fit each part.
        """
        if len(bound) == self.count or not bindings:
            return [[binding] for binding in bindings]
        whole: list[list[Binding]] = [[] for _ in bindings]
        for number in self._next(bound):
            earlier = self._earlier_events(bindings, bound, number, fitting[number])
            for matches, more in zip(whole, self._selected(bindings, bound, number, earlier, fitting), strict=True):
                matches += more
        return whole

    def _selected(
        self,
        bindings: Sequence[Binding],
        bound: frozenset[int],
        number: int,
        earlier: Sequence[Sequence[Candidate]],
        fitting: Sequence[Sequence[Candidate]],
    ) -> list[list[Binding]]:
        """Return, for each binding, the whole matches in which the part ``number`` has one of the events ``earlier``.

        On FIRST or LAST these are the matches of the first, or the last, event that has any. Events are tried one, two, four,
        ... at a time, because the first one mostly has a match.
        """
        part = self.parts[number]
        ordered = [part.preferred(several) for several in earlier]
        whole: list[list[Binding]] = [[] for _ in bindings]
        begin, end = 0, 1 if part.selects else max(map(len, ordered), default=0)
        waiting = [i for i, several in enumerate(ordered) if several]
        while waiting:
            tried = [(i, bindings[i].before(number, event)) for i in waiting for event in ordered[i][begin:end]]
            for (i, _), matches in zip(
                tried, self._whole([b for _, b in tried], bound | {number}, fitting), strict=True
            ):
                if not (part.selects and whole[i]):
                    whole[i] += matches
            waiting = [i for i in waiting if not whole[i] and len(ordered[i]) > end]
            begin, end = end, 2 * end + 1
        return whole

    @property
    def _completing(self) -> Iterable[int]:
        """The parts whose event may be the last in time."""
        every = range(len(self.parts))
        return every[-1:] if self.in_order else every

    def _next(self, bound: frozenset[int]) -> Iterable[int]:
        """Return the parts that may be bound next, to events before those already bound."""
        if self.in_order:
            return (min(bound) - 1,)
        return (number for number in range(len(self.parts)) if number not in bound)

    def _earlier_events(
        self, bindings: Sequence[Binding], bound: frozenset[int], number: int, fitting: Sequence[Candidate]
    ) -> list[Sequence[Candidate]]:
        """Return, for each binding, the part's earlier events that satisfy the conditions with the bound events."""
        earlier: list[Sequence[Candidate]] = [fitting[: bisect_left(fitting, (b.first,))] for b in bindings]
        for condition in self.conditions:
            if number in condition.parts and condition.parts <= bound | {number}:
                earlier = condition.filtered(bindings, number, earlier)
        return earlier


def _reachable(fitting: Sequence[Sequence[Candidate]]) -> list[Sequence[Candidate]]:
    """Return, for each part of a sequence, the events that have an event of every preceding part before them."""
    reachable: list[Sequence[Candidate]] = []
    first = MINUS_INFINITY
    for several in fitting:
        several = several[bisect_left(several, (first,)) :]
        reachable.append(several)
        first = several[0][0] + 1 if several else INFINITY
    return reachable


__all__ = ["WholeMatchStep"]
